"""Volumes that the placements of a trial may already have claimed.

The scheduler chooses the smallest matching volume, and an arbitrary one among those of equal size. So the volume of a
placement is not known, only the group it belongs to. A claim can rely on a volume only if more volumes are accessible
than may be taken.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from predicates.indexes.pod_claims import PodClaimsIndex
from predicates.indexes.unbound_volumes import ClassVolumes, UnboundVolumes
from predicates.indexes.volume_matching import ClaimRequest
from predicates.nodes import ALL, Flags, Numbers
from predicates.objects import PersistentVolumeClaim
from predicates.provisioning import provisioning_codes
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, storage_class_name

#: The unbound claims of a pod that the trial has placed, and its row.
AssumedPod: TypeAlias = tuple[tuple[PersistentVolumeClaim, ...], int]


def assumed_conflicts(claims: Sequence[PersistentVolumeClaim], snapshot: Snapshot) -> Flags:
    """Return the rows on which the *claims* of one pod (in this order) may not get their volumes."""
    assumed = _assumed_pods(snapshot)
    rejected = _excluded_by_shared_claims(claims, assumed, len(snapshot.nodes))
    rivals = [(rival, row) for rival_claims, row in assumed for rival in rival_claims]
    for volumes, requests in snapshot.index(UnboundVolumes).requests(claims):
        taken = {position: _taken(volumes, claims[position], request, rivals) for position, request in requests.items()}
        # A claim that loses its volume can take one that was left for another claim of the pod.
        contested = np.logical_or.reduce([numbers > 0 for numbers in taken.values()])
        for earlier_claims, (position, request) in enumerate(requests.items()):
            uncertain = contested & (volumes.candidate_counts(request) <= taken[position] + earlier_claims)
            if uncertain.any() and not request.pre_bound:
                rejected |= uncertain & (provisioning_codes(claims[position], snapshot, ALL) != 0)
    return rejected


def _excluded_by_shared_claims(
    claims: Sequence[PersistentVolumeClaim], assumed: Sequence[AssumedPod], rows: int
) -> Flags:
    """Return the rows that are excluded because a placed pod shares a claim: all except the row of that pod."""
    excluded: Flags = np.zeros(rows, np.bool_)
    keys = set(map(_key, claims))
    for other_claims, row in assumed:
        if any(_key(claim) in keys for claim in other_claims):
            elsewhere = np.ones(rows, np.bool_)
            elsewhere[row] = False
            excluded |= elsewhere
    return excluded


def _assumed_pods(snapshot: Snapshot) -> list[AssumedPod]:
    """Return the unbound claims and the rows of the pods that the trial has placed."""
    index = snapshot.index(PodClaimsIndex)
    placed = ((index.of(pod), row) for (pod, row), count in snapshot.assumed_claims.items() if count > 0)
    return [(claims.to_match, row) for claims, row in placed if claims.to_match]


def _taken(
    volumes: ClassVolumes,
    claim: PersistentVolumeClaim,
    request: ClaimRequest,
    rivals: Sequence[tuple[PersistentVolumeClaim, int]],
) -> Numbers:
    """Return, by row, how many of the accessible volumes that match *claim* the *rivals* may have taken."""
    groups = volumes.groups(request)
    taken: Numbers = np.zeros(len(volumes.candidate_counts(request)), np.int64)
    for rival, row in rivals:
        if storage_class_name(rival) == storage_class_name(claim) and _key(rival) != _key(claim):
            shared = volumes.groups(volumes.request(rival)).keys() & groups.keys()
            taken += volumes.rows_with_access(shared & volumes.groups_accessible_from(row))
    return taken


def _key(claim: PersistentVolumeClaim) -> str:
    return claim_key(claim.metadata.namespace, claim.metadata.name)
