"""NodeResourcesFit: by default, prefer nodes with more free cpu and memory.

The strategies are those of ``least_allocated.go``, ``most_allocated.go`` and ``requested_to_capacity_ratio.go``.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from predicates.indexes.nonzero import NonZero
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.requests import scored
from predicates.scheduler import ScoringStrategy
from predicates.scores.frame import MAX_SCORE, ScoringRequest, broken_line

_DEFAULT: Final = ScoringStrategy()
_PERCENT: Final = 100
#: Resources that score even if the pod does not request them.
_ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")


def score(request: ScoringRequest) -> Numbers:
    """Return the scores by the strategy of the pod's profile."""
    strategy = request.snapshot.scheduler.profile(request.pod.spec.scheduler_name).strategy
    return _least_allocated(request) if strategy == _DEFAULT else _configured(request, strategy)


def _configured(request: ScoringRequest, strategy: ScoringStrategy) -> Numbers:
    """Return the weighted means of the scores of all resources that a node has and the pod may use."""
    total, weights = np.zeros(len(request.rows), np.int64), np.zeros(len(request.rows), np.int64)
    for weight, requested, capacity in _amounts(request, strategy):
        scores = _of_resource(strategy, requested, capacity)
        counts = capacity != 0
        if strategy.type == "RequestedToCapacityRatio":
            counts &= scores > 0
        total += np.where(counts, weight * scores, 0)
        weights += np.where(counts, weight, 0)
    divisor = np.maximum(weights, 1)
    if strategy.type == "RequestedToCapacityRatio":
        return np.floor(total / divisor + 0.5).astype(np.int64)
    quotients: Numbers = total // divisor
    return quotients


def _amounts(request: ScoringRequest, strategy: ScoringStrategy) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Yield the weight, the amount requested with the pod, and the capacity, for each resource."""
    table, rows, own = request.snapshot.nodes, request.rows, dict(request.pod.requests)
    defaults = request.snapshot.index(NonZero).defaults().take(rows, axis=0)
    nonzero = scored(request.pod)
    for name, weight in strategy.resources:
        if (column := table.resources.get(name)) is None or (name not in _ALWAYS and not own.get(name)):
            continue
        capacity = table.allocatable[rows, column]
        requested = capacity - table.free[rows, column]
        if column in (CPU, MEMORY):
            requested = requested + defaults[:, column - CPU] + nonzero[column - CPU]
        else:
            requested = requested + own.get(name, 0)
        yield weight, requested, capacity


def _of_resource(strategy: ScoringStrategy, requested: Numbers, capacity: Numbers) -> Numbers:
    divisor = np.where(capacity, capacity, 1)
    match strategy.type:
        case "MostAllocated":
            most: Numbers = np.minimum(requested, capacity) * MAX_SCORE // divisor
            return most
        case "RequestedToCapacityRatio":
            used = np.where(requested > capacity, _PERCENT, requested * _PERCENT // divisor)
            return np.array([broken_line(strategy.shape, int(percent)) for percent in used], np.int64)
        case _:
            least: Numbers = np.maximum(capacity - requested, 0) * MAX_SCORE // divisor
            return least


def _least_allocated(request: ScoringRequest) -> Numbers:
    """Return the mean of the shares of cpu and memory that are free after the pod is placed.

    ``((capacity - requested) * MaxNodeScore) / capacity``; 0 if requested exceeds capacity. A resource that the node
    does not have is left out of the mean.
    """
    table, rows = request.snapshot.nodes, request.rows
    capacity = table.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    defaults = request.snapshot.index(NonZero).defaults().take(rows, axis=0)
    free = table.free.take(rows, axis=0)[:, CPU : MEMORY + 1] - defaults - np.array(scored(request.pod))
    shares = np.maximum(free, 0) * MAX_SCORE // np.maximum(capacity, 1)
    total: Numbers = shares[:, 0] + shares[:, 1]
    if capacity.all():
        return total // 2
    resources: Numbers = np.count_nonzero(capacity, axis=1)
    return total // np.maximum(resources, 1)
