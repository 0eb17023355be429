"""Which disks the placed pods name, and which claims they use: kept right by every placement."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from predicates.objects import PodClass, Volume
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import own_claims

#: What tells one disk from another: its kind first. An RBD image has one for each monitor.
DiskKey: TypeAlias = tuple[str, ...]


class Disk(NamedTuple):
    key: DiskKey
    read_only: bool


class Uses:
    """How many placed pods use a disk on one node."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.readers = self.writers = 0


class PodDisks:
    """Disks by node and claims in the whole cluster, as the placed pods name them in their specs."""

    def __init__(self, _: Snapshot) -> None:
        self.claims: dict[str, int] = {}  #: how often each claim is mounted, by its key
        self.disks: dict[DiskKey, dict[int, Uses]] = {}  #: by row

    def watch(self, pod: PodClass) -> Watchers | None:
        claims, disks = tuple(own_claims(pod)), disks_of(pod)
        return Watchers(partial(self._shift, claims, disks)) if claims or disks else None

    def _shift(self, claims: tuple[str, ...], disks: tuple[Disk, ...], row: int, by: int) -> None:
        for claim in claims:
            if count := self.claims.get(claim, 0) + by:
                self.claims[claim] = count
            else:
                del self.claims[claim]
        for disk in disks:
            self._use(disk, row, by)

    def conflicts(self, disk: Disk) -> Iterator[int]:
        """The rows where another pod keeps one with this disk away: only readers get along."""
        for row, uses in self.disks.get(disk.key, {}).items():
            if uses.writers or not disk.read_only:
                yield row

    def _use(self, disk: Disk, row: int, by: int) -> None:
        rows = self.disks.setdefault(disk.key, {})
        uses = rows.setdefault(row, Uses())
        if disk.read_only:
            uses.readers += by
        else:
            uses.writers += by
        if not (uses.readers or uses.writers):
            del rows[row]
            if not rows:
                del self.disks[disk.key]


def disks_of(pod: PodClass) -> tuple[Disk, ...]:
    """The disks that only one pod of a node may have, or several that read."""
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
