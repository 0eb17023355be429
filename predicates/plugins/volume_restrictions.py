"""VolumeRestrictions: disks that two pods of a node cannot share, and claims that only one pod may use.

Source: ``volumerestrictions/volume_restrictions.go``. A ReadWriteOncePod claim in use anywhere keeps its next pod
from every node, so an answer holds until any pod moves.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.indexes.volumes import PodDisks, disks_of
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, find_claim, no_such_claim, rejected

DISK_CONFLICT: Final = "node(s) had no available disk"
CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_REASONS: Final = {1: DISK_CONFLICT, 2: CLAIM_IN_USE}


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims or pod.disks else None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    used = snapshot.index(PodDisks)
    exclusive = []
    for claim in pod.claims:
        if claim.ephemeral:
            continue
        found = find_claim(snapshot, pod.namespace, claim.name)
        if found is None:
            return rejected(no_such_claim(claim.name), snapshot, rows)
        if "ReadWriteOncePod" in found.spec.access_modes:
            exclusive.append(claim_key(pod.namespace, claim.name))
    taken = [] if not pod.disks else list(_conflicts(pod, used))
    in_use = any(key in used.claims for key in exclusive)
    if not taken and not in_use:
        return None
    codes = np.full(len(snapshot.nodes), 2 if in_use else 0)
    codes[taken] = 1
    return Rejections(codes[rows], lambda code: (_REASONS[code],))


def _conflicts(pod: PodClass, used: PodDisks) -> Iterator[int]:
    for disk in disks_of(pod):
        yield from used.conflicts(disk)


PLUGIN: Final = Plugin("VolumeRestrictions", Scope.CLUSTER, _pre_filter, _filter)
