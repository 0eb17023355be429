"""VolumeRestrictions: disks that pods on a node cannot share, and claims that only one pod can use.

Source: ``volumerestrictions/volume_restrictions.go``. A ReadWriteOncePod claim that is in use on any node rejects all
nodes, so the scope is the cluster.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.indexes.volumes import PodDisks, disks_of
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, claim_not_found, find_claim, reject_all

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
        pvc = find_claim(snapshot, pod.namespace, claim.name)
        if pvc is None:
            return reject_all(claim_not_found(claim.name), snapshot, rows)
        if "ReadWriteOncePod" in pvc.spec.access_modes:
            exclusive.append(claim_key(pod.namespace, claim.name))
    conflicts = [] if not pod.disks else list(_conflicts(pod, used))
    in_use = any(key in used.claims for key in exclusive)
    if not conflicts and not in_use:
        return None
    codes = np.full(len(snapshot.nodes), 2 if in_use else 0)
    codes[conflicts] = 1
    return Rejections(codes[rows], lambda code: (_REASONS[code],))


def _conflicts(pod: PodClass, used: PodDisks) -> Iterator[int]:
    for disk in disks_of(pod):
        yield from used.conflicts(disk)


PLUGIN: Final = Plugin("VolumeRestrictions", Scope.CLUSTER, _pre_filter, _filter)
