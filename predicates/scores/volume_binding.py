"""VolumeBinding: prefer nodes whose volumes or storage pools have more room than the pod's unbound claims need.

Source: ``volumebinding/volume_binding.go`` and ``scorer.go``. Scores since 1.37.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np

from predicates.indexes.pod_claims import PodClaimsIndex
from predicates.indexes.unbound_volumes import UnboundVolumes
from predicates.nodes import Numbers
from predicates.objects import PersistentVolumeClaim
from predicates.provisioning import free_storage
from predicates.scores.frame import MAX_SCORE, ScoringRequest, Shape, broken_line
from predicates.snapshot import Snapshot
from predicates.storage import capacity, find_volume, requested_size, storage_class_name
from predicates.versions import Rule

#: The default shape: unused storage has the highest score (``SetDefaults_VolumeBindingArgs``).
DEFAULT_SHAPE: Final[Shape] = ((0, MAX_SCORE), (100, 0))

#: Requested and available bytes, by storage class (``classResourceMap``).
_Usage: TypeAlias = dict[str, tuple[int, int]]


def score(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no claim of the pod waits for a volume."""
    snapshot = request.snapshot
    claims = snapshot.index(PodClaimsIndex).of(request.pod)
    if not snapshot.scheduler.version.has(Rule.CAPACITY_SCORES) or not (claims.to_match or claims.to_provision):
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
            usage[volume.spec.storage_class_name] = requested + size, available + capacity(volume).units
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
