"""NodeResourcesBalancedAllocation: prefer nodes where the pod balances the use of cpu and memory.

Source: ``noderesources/balanced_allocation.go``. Since 1.36, the change of balance scores: 75 means no change.
"""

import numpy as np
import numpy.typing as npt

from predicates.nodes import CPU, MEMORY, Numbers
from predicates.scores.frame import MAX_SCORE, ScoringRequest
from predicates.versions import Rule


def score(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if the pod requests neither cpu nor memory."""
    pod, table, rows = request.pod, request.snapshot.nodes, request.rows
    amounts = dict(pod.requests)
    requests = [amounts.get("cpu", 0), amounts.get("memory", 0)]
    if not any(requests):
        return None
    capacity = table.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    requested = capacity - table.free.take(rows, axis=0)[:, CPU : MEMORY + 1]
    before, after = _balance(requested + np.array([[[0, 0]], [requests]]), capacity)
    scores: Numbers = after
    if request.snapshot.scheduler.version.has(Rule.BALANCE_BY_CHANGE):
        scores = MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2
    return scores


def _balance(requested: Numbers, capacity: Numbers) -> Numbers:
    """Return 100 minus the standard deviation of the utilizations in percent; 100 if a node lacks a resource."""
    utilization: npt.NDArray[np.float64] = np.minimum(requested / np.where(capacity, capacity, 1), 1.0)
    deviation = np.abs((utilization[..., 0] - utilization[..., 1]) / 2)
    if not capacity.all():
        deviation[:, (capacity == 0).any(axis=1)] = 0.0
    return ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)
