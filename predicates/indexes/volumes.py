"""Inline disks and claims that the placed pods use."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from predicates.objects import PodClass, Volume
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import own_claims

#: Identifies a disk; its type comes first. An RBD image has one key for each monitor.
DiskKey: TypeAlias = tuple[str, ...]


class Disk(NamedTuple):
    """A pod's use of a disk."""

    key: DiskKey
    read_only: bool


class DiskUsers:
    """The number of placed pods on one node that use a disk."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.readers = self.writers = 0


class PodDisks:
    """Disks in use by node, and claims in use in the cluster, according to the specs of the placed pods."""

    def __init__(self, _: Snapshot) -> None:
        self.claims: dict[str, int] = {}  #: number of pods by claim key
        self.disks: dict[DiskKey, dict[int, DiskUsers]] = {}  #: users by disk and row

    def watch(self, pod: PodClass) -> Watchers | None:
        claims, disks = tuple(own_claims(pod)), disks_of(pod)
        return Watchers(partial(self._shift, claims, disks)) if claims or disks else None

    def _shift(self, claims: tuple[str, ...], disks: tuple[Disk, ...], row: int, delta: int) -> None:
        for claim in claims:
            if count := self.claims.get(claim, 0) + delta:
                self.claims[claim] = count
            else:
                del self.claims[claim]
        for disk in disks:
            self._use(disk, row, delta)

    def conflicts(self, disk: Disk) -> Iterator[int]:
        """Yield the rows where the disk is in use, unless all users including the new one are read-only."""
        for row, users in self.disks.get(disk.key, {}).items():
            if users.writers or not disk.read_only:
                yield row

    def _use(self, disk: Disk, row: int, delta: int) -> None:
        rows = self.disks.setdefault(disk.key, {})
        users = rows.setdefault(row, DiskUsers())
        if disk.read_only:
            users.readers += delta
        else:
            users.writers += delta
        if not (users.readers or users.writers):
            del rows[row]
            if not rows:
                del self.disks[disk.key]


def disks_of(pod: PodClass) -> tuple[Disk, ...]:
    """Return the inline disks of the class that pods on one node can share only if all are read-only."""
    return tuple(disk for volume in pod.disks for disk in _disks(volume))


def _disks(volume: Volume) -> Iterator[Disk]:
    if (gce := volume.gce_persistent_disk) is not None:
        yield Disk(("gce", gce.pd_name), gce.read_only)
    if (ebs := volume.aws_elastic_block_store) is not None:
        yield Disk(("ebs", ebs.volume_id), read_only=False)
    if (iscsi := volume.iscsi) is not None:
        yield Disk(("iscsi", iscsi.iqn), iscsi.read_only)
    if (rbd := volume.rbd) is not None:
        for monitor in sorted(set(rbd.monitors)):
            yield Disk(("rbd", rbd.pool, rbd.image, monitor), rbd.read_only)
