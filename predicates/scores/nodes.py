"""The score plugins that compare a pod with the nodes: taints, labels, resources, images and volumes. One module
for each kind of plugin: plugins do not import each other.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.indexes.by_node import Images, NonZero, SoftTaints
from predicates.indexes.claims import PodClaimsIndex
from predicates.indexes.unbound_volumes import UnboundVolumes
from predicates.node_selectors import node_selector_mask
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.objects import NodeSelector, PersistentVolumeClaim
from predicates.requests import scored
from predicates.scheduler import ScoringStrategy
from predicates.scores.frame import MAX_SCORE, ScoringRequest, Shape, broken_line, normalized
from predicates.snapshot import Snapshot
from predicates.storage import capacity as storage_capacity
from predicates.storage import find_volume, free_storage, requested_size, storage_class_name
from predicates.versions import VersionRule

# TaintToleration: prefer nodes with fewer intolerable ``PreferNoSchedule`` taints (``taint_toleration.go``).


def taint_toleration(request: ScoringRequest) -> Numbers | int:
    """Return the scores: MAX_SCORE everywhere if the pod tolerates all soft taints."""
    counts = request.snapshot.index(SoftTaints).intolerable(request.pod.spec.tolerations)
    return MAX_SCORE if counts is None else normalized(counts.take(request.rows), reverse=True)


# NodeAffinity: the sum of the weights of matching preferred terms (``nodeaffinity/node_affinity.go``).
#
# A term that cannot be parsed has no effect here. In the scheduler the pod would fail, but the API rejects such terms.


def node_affinity(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if neither the pod nor its profile has preferred terms."""
    affinity = request.pod.spec.affinity
    terms = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
    if (added := request.snapshot.scheduler.profile(request.pod.spec.scheduler_name).added_affinity) is not None:
        terms += added.preferred
    if not terms:
        return None
    scores = np.zeros(len(request.rows), np.int64)
    for term in terms:
        selector = NodeSelector(node_selector_terms=(term.preference,))
        scores += term.weight * node_selector_mask(selector, request.snapshot, request.rows)
    return normalized(scores)


# NodeResourcesFit: by default, prefer nodes with more free cpu and memory.
#
# The strategies are those of ``least_allocated.go``, ``most_allocated.go`` and ``requested_to_capacity_ratio.go``.

_DEFAULT: Final = ScoringStrategy()
_PERCENT: Final = 100
#: Resources that score even if the pod does not request them.
_ALWAYS: Final = ("cpu", "memory", "ephemeral-storage")


def node_resources_fit(request: ScoringRequest) -> Numbers:
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
    own_scored = scored(request.pod, request.snapshot.scheduler.version)
    for name, weight in strategy.resources:
        if (column := table.resources.get(name)) is None or (name not in _ALWAYS and not own.get(name)):
            continue
        capacity = table.allocatable[rows, column]
        requested = capacity - table.free[rows, column]
        if column in (CPU, MEMORY):
            requested = requested + defaults[:, column - CPU] + own_scored[column - CPU]
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
    free = (
        table.free.take(rows, axis=0)[:, CPU : MEMORY + 1]
        - defaults
        - np.array(scored(request.pod, request.snapshot.scheduler.version))
    )
    shares = np.maximum(free, 0) * MAX_SCORE // np.maximum(capacity, 1)
    total: Numbers = shares[:, 0] + shares[:, 1]
    if capacity.all():
        return total // 2
    resources: Numbers = np.count_nonzero(capacity, axis=1)
    return total // np.maximum(resources, 1)


# NodeResourcesBalancedAllocation: prefer nodes where the pod balances the use of cpu and memory.
#
# Source: ``noderesources/balanced_allocation.go``. Since 1.36, the change of balance scores: 75 means no change.


def node_resources_balanced_allocation(request: ScoringRequest) -> Numbers | None:
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
    if request.snapshot.scheduler.version.has(VersionRule.BALANCE_BY_CHANGE):
        scores = MAX_SCORE // 2 + (MAX_SCORE // 2 + after - before) // 2
    return scores


def _balance(requested: Numbers, capacity: Numbers) -> Numbers:
    """Return 100 minus the standard deviation of the utilizations in percent; 100 if a node lacks a resource."""
    utilization: npt.NDArray[np.float64] = np.minimum(requested / np.where(capacity, capacity, 1), 1.0)
    deviation = np.abs((utilization[..., 0] - utilization[..., 1]) / 2)
    if not capacity.all():
        deviation[:, (capacity == 0).any(axis=1)] = 0.0
    return ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)


# ImageLocality: prefer nodes that already have the pod's images (``imagelocality/image_locality.go``).

_MEGABYTE: Final = 1024 * 1024
_MIN_THRESHOLD: Final = 23 * _MEGABYTE  #: total bytes up to which the score is 0
_MAX_IMAGE_THRESHOLD: Final = 1000 * _MEGABYTE  #: bytes per counted image from which the score is MAX_SCORE


def image_locality(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no node has any of the images.

    The size of an image is scaled by the share of nodes that have it.
    """
    images = request.snapshot.index(Images).sync()
    spec = request.pod.spec
    version = request.snapshot.scheduler.version
    names = [container.image for container in (*spec.init_containers, *spec.containers)]
    counted = len(names)
    if version.has(VersionRule.IMAGE_VOLUMES_SCORE):
        names += [volume.image.reference for volume in spec.volumes if volume.image is not None]
    if version.has(VersionRule.IMAGE_VOLUMES_COUNT):
        counted = len(names)
    sum_scores: Numbers | None = None
    for name in names:
        if (weights := images.weights(normalized_image_name(name))) is not None:
            scaled = weights.take(request.rows)
            sum_scores = scaled if sum_scores is None else sum_scores + scaled
    if sum_scores is None:
        return None
    max_threshold = _MAX_IMAGE_THRESHOLD * counted
    clipped = np.clip(sum_scores, _MIN_THRESHOLD, max_threshold)
    scores: Numbers = MAX_SCORE * (clipped - _MIN_THRESHOLD) // (max_threshold - _MIN_THRESHOLD)
    return scores


def normalized_image_name(image: str) -> str:
    """Return the image name with its tag, as nodes report it (``normalizedImageName``)."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


# VolumeBinding: prefer nodes whose volumes or storage pools have more room than the pod's unbound claims need.
#
# Source: ``volumebinding/volume_binding.go`` and ``scorer.go``. Scores since 1.37.

#: The default shape: unused storage has the highest score (``SetDefaults_VolumeBindingArgs``).
DEFAULT_SHAPE: Final[Shape] = ((0, MAX_SCORE), (100, 0))

#: Requested and available bytes, by storage class (``classResourceMap``).
_Usage: TypeAlias = dict[str, tuple[int, int]]


def volume_binding(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no claim of the pod waits for a volume."""
    snapshot = request.snapshot
    claims = snapshot.index(PodClaimsIndex).of(request.pod)
    if not snapshot.scheduler.version.has(VersionRule.CAPACITY_SCORES) or not (claims.to_match or claims.to_provision):
        return None
    shape = snapshot.scheduler.profile(request.pod.spec.scheduler_name).volume_shape or DEFAULT_SHAPE
    unbound = (*claims.to_match, *claims.to_provision)
    free = {claim.metadata.name: free_storage(claim, snapshot, request.rows) for claim in unbound}
    scores = np.zeros(len(request.rows), np.int64)
    for position, row in enumerate(request.rows.tolist()):
        usage, unmatched = _static(claims.to_match, snapshot, row)
        if not usage:
            pools = ((claim, free[claim.metadata.name]) for claim in (*claims.to_provision, *unmatched))
            usage = _dynamic((claim, int(pool[position])) for claim, pool in pools if pool is not None)
        scores[position] = _score(usage, shape)
    return scores


def _static(
    claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot, row: int
) -> tuple[_Usage, list[PersistentVolumeClaim]]:
    """Return the use of the existing volumes that the claims are bound to on *row*, and the claims without a volume."""
    usage: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    unmatched = []
    for volumes, requests in snapshot.index(UnboundVolumes).requests(claims):
        names = volumes.chosen(tuple(requests.values()), row)
        for position, name in zip(requests, names, strict=True):
            volume = find_volume(snapshot, name) if name is not None else None
            if volume is None:
                unmatched.append(claims[position])
                continue
            requested, available = usage[volume.spec.storage_class_name]
            size = requested_size(claims[position]).units
            usage[volume.spec.storage_class_name] = requested + size, available + storage_capacity(volume).units
    return usage, unmatched


def _dynamic(claims: Iterable[tuple[PersistentVolumeClaim, int]]) -> _Usage:
    """Return the use of the storage pools from which the volumes of *claims* are provisioned, with their free bytes."""
    usage: _Usage = {}
    for claim, available in claims:
        name = storage_class_name(claim)
        usage[name] = usage.get(name, (0, 0))[0] + requested_size(claim).units, available
    return usage


def _score(usage: _Usage, shape: Shape) -> int:
    """Return the mean score of the storage classes, rounded (``buildScorerFunction``)."""
    if not usage:
        return 0
    total = sum(
        broken_line(shape, 100 if available == 0 or requested > available else requested * 100 // available)
        for requested, available in usage.values()
    )
    return int(total / len(usage) + 0.5)
