"""Which CSI volumes the placed pods attach to each node, counted by driver.

Source: ``nodevolumelimits/csi.go``. What a pod's volumes are follows from claims, volumes and classes, so it is
worked out anew when one of those changes; in between every placement keeps the counts right.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, cast

import numpy as np

from predicates.csi_translation import DRIVERS, UNMIGRATED, CSIVolume, TranslationError, inline_volume
from predicates.csi_translation import persistent_volume as csi_volume
from predicates.nodes import Numbers
from predicates.objects import Claim, PersistentVolumeClaim, PodClass, Volume, VolumeAttachment
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, class_name, find_claim, find_class, find_volume, no_such_claim, not_owned

NAMELESS: Final = "PersistentVolumeClaim had no name"

#: What a pod's volumes follow from, beside its own spec.
_RESOLVED: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


class Attached(NamedTuple):
    """The CSI volumes of one pod; where they cannot be told, ``error`` has the scheduler's text."""

    volumes: frozenset[CSIVolume]
    error: str | None = None


class VolumeError(NamedTuple):
    text: str
    fatal: bool = True  #: the scheduler fails, where it otherwise refuses


class Wanted(NamedTuple):
    """The CSI volumes of a pod that is made anew.

    Where they cannot be told, why: on nodes with a CSINode, and on those without, where no in-tree volume counts.
    """

    volumes: tuple[CSIVolume, ...] = ()
    error: VolumeError | None = None
    error_without_csi: VolumeError | None = None


class Attachments:
    """CSI volumes by node. Current once :meth:`sync` was called."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._made_of: tuple[int, ...] = ()
        self._seen = (-1, 0)
        self._rows = 0
        self._attached: dict[PodClass, Attached] = {}
        self._wanted: dict[PodClass, Wanted] = {}
        self._of_objects: dict[int, frozenset[CSIVolume]] = {}  #: of VolumeAttachments, by row
        self._by_node: dict[str, list[VolumeAttachment]] = {}
        self._by_node_version = -1
        self.counts: dict[str, Numbers] = {}  #: by driver: how many volumes each row has
        self.pods: dict[CSIVolume, dict[int, int]] = {}  #: by row: how many pods use the volume there
        self.spoiled: dict[int, Counter[str]] = {}  #: by row: pods there whose volumes cannot be told, and why

    def watch(self, pod: PodClass) -> Watchers | None:
        return Watchers(partial(self._shift, pod)) if pod.claims or pod.disks else None

    def _shift(self, pod: PodClass, row: int, by: int) -> None:
        if row >= self._rows:
            self._made_of = ()  # Everything is counted anew when somebody asks.
            return
        attached = self._of(pod)
        for volume in attached.volumes:
            self._use(volume, row, by)
        if attached.error is not None:
            errors = self.spoiled.setdefault(row, Counter())
            errors[attached.error] += by
            if not errors[attached.error]:
                del errors[attached.error]
            if not errors:
                del self.spoiled[row]

    def sync(self) -> "Attachments":
        """Bring the counts up to date; itself. Costs O(changed nodes), all pods with volumes after other changes."""
        snapshot = self._snapshot
        versions = (snapshot.versions[kind] for kind in _RESOLVED)
        made_of = (*versions, snapshot.generation, len(snapshot.nodes))
        (epoch, facts), self._seen = self._seen, (snapshot.epoch, len(snapshot.node_changes))
        if made_of != self._made_of:
            self._made_of = made_of
            self._rebuild()
        elif epoch != snapshot.epoch:
            for row in [*self._of_objects, *snapshot.nodes.row.values()]:
                self._read_objects(row)
        elif facts != len(snapshot.node_changes):
            for row in set(snapshot.node_changes[facts:]):
                self._read_objects(row)
        return self

    def wanted(self, pod: PodClass) -> Wanted:
        """What a pod of the class would attach, made anew."""
        if (found := self._wanted.get(pod)) is None:
            found = self._wanted[pod] = wanted_by_new(pod, self._snapshot)
        return found

    def _rebuild(self) -> None:
        snapshot = self._snapshot
        self._rows = len(snapshot.nodes)
        self._attached, self._wanted, self._of_objects = {}, {}, {}
        self.counts, self.pods, self.spoiled = {}, {}, {}
        for pod in snapshot.classes():
            if (watchers := self.watch(pod)) is not None:
                snapshot.replay_placements(watchers, pod)
        for row in snapshot.nodes.row.values():
            self._read_objects(row)

    def _read_objects(self, row: int) -> None:
        """Take over what VolumeAttachments say of the node that stands on *row*."""
        before = self._of_objects.pop(row, frozenset())
        after = frozenset(self._attached_to(self._snapshot.nodes.names[row]))
        if after:
            self._of_objects[row] = after
        for volume in before ^ after:
            if row not in self.pods.get(volume, ()):
                self._count(volume.driver, row, 1 if volume in after else -1)

    def _attached_to(self, node: str) -> Iterator[CSIVolume]:
        """Only what was born as a CSI volume counts."""
        if self._by_node_version != self._snapshot.versions["VolumeAttachment"]:
            self._by_node_version, self._by_node = self._snapshot.versions["VolumeAttachment"], {}
            for one in cast("dict[str, VolumeAttachment]", self._snapshot.of("VolumeAttachment")).values():
                self._by_node.setdefault(one.spec.node_name, []).append(one)
        for one in self._by_node.get(node, ()):
            name = one.spec.source.persistent_volume_name
            volume = find_volume(self._snapshot, name) if one.spec.attacher and name is not None else None
            if volume is not None and volume.spec.csi is not None:
                yield CSIVolume(one.spec.attacher, volume.spec.csi.volume_handle)

    def _use(self, volume: CSIVolume, row: int, by: int) -> None:
        rows = self.pods.setdefault(volume, {})
        before = rows.get(row, 0)
        after = rows[row] = before + by
        if not after:
            del rows[row]
            if not rows:
                del self.pods[volume]
        if (before == 0 or after == 0) and volume not in self._of_objects.get(row, ()):
            self._count(volume.driver, row, 1 if before == 0 else -1)

    def _count(self, driver: str, row: int, by: int) -> None:
        if (column := self.counts.get(driver)) is None:
            column = self.counts[driver] = np.zeros(self._rows, np.int64)
        column[row] += by

    def _of(self, pod: PodClass) -> Attached:
        if (found := self._attached.get(pod)) is None:
            found = self._attached[pod] = attached_by_placed(pod, self._snapshot)
        return found


def attached_by_placed(pod: PodClass, snapshot: Snapshot) -> Attached:
    """The volumes of a pod that has a node; claims that are not there count for nothing."""
    volumes: set[CSIVolume] = set()
    for claim, volume in mounted(pod):
        if claim is None:
            try:
                found = inline_volume(volume)
            except TranslationError as error:
                return Attached(frozenset(volumes), untranslatable(volume, error))
        else:
            if not claim.name:
                return Attached(frozenset(volumes), NAMELESS)
            of = find_claim(snapshot, pod.namespace, claim.name)
            if of is not None and claim.ephemeral and not _is_owner(pod, claim, of, snapshot):
                return Attached(frozenset(volumes), not_owned(pod.namespace, claim))
            found = volume_of_claim(of, snapshot) if of is not None else None
        if found is not None:
            volumes.add(found)
    return Attached(frozenset(volumes))


def wanted_by_new(pod: PodClass, snapshot: Snapshot) -> Wanted:
    """The volumes of a pod that has no node yet; its claims must be there."""
    volumes: dict[CSIVolume, None] = {}
    with_csi: VolumeError | None = None
    for claim, volume in mounted(pod):
        if claim is None:
            try:
                found = inline_volume(volume)
            except TranslationError as error:
                with_csi = with_csi or VolumeError(untranslatable(volume, error))
                continue
        else:
            of = find_claim(snapshot, pod.namespace, claim.name)
            if (trouble := _trouble(pod.namespace, claim, of)) is not None:
                return Wanted((), with_csi or trouble, trouble)
            found = volume_of_claim(of, snapshot) if of is not None else None
        if found is not None:
            volumes[found] = None
    return Wanted(tuple(volumes), with_csi)


def _trouble(namespace: str, claim: Claim, found: PersistentVolumeClaim | None) -> VolumeError | None:
    """Why the claim of a pod that is made anew cannot be looked up; it never owns one that is there already."""
    if not claim.name:
        return VolumeError(NAMELESS)
    if found is None:
        return VolumeError(f"looking up PVC {namespace}/{claim.name}: {no_such_claim(claim.name)}", fatal=False)
    return VolumeError(not_owned(namespace, claim)) if claim.ephemeral else None


def mounted(pod: PodClass) -> Iterator[tuple[Claim | None, Volume]]:
    """The pod's volumes in their order, those that stand for a claim together with it."""
    claims = iter(pod.claims)
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield next(claims), volume
        else:
            yield None, volume


def volume_of_claim(claim: PersistentVolumeClaim, snapshot: Snapshot) -> CSIVolume | None:
    """What will be attached for the claim: its volume, or one that its class's driver is going to make."""
    volume = find_volume(snapshot, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_come(claim, snapshot)
    try:
        found = csi_volume(volume)
    except TranslationError:
        return None
    return found if found is not None and found.driver and found.handle else None


def untranslatable(volume: Volume, error: TranslationError) -> str:
    return f"converting volume({volume.name}) from inline to csi: {error}"


def _volume_to_come(claim: PersistentVolumeClaim, snapshot: Snapshot) -> CSIVolume | None:
    of = find_class(snapshot, class_name(claim))
    if of is None or not of.provisioner or of.provisioner in UNMIGRATED:
        return None
    # No volume has such a handle: a null byte cannot stand in one.
    handle = f"\0{claim_key(claim.metadata.namespace, claim.metadata.name)}"
    return CSIVolume(DRIVERS.get(of.provisioner, of.provisioner), handle)


def _is_owner(pod: PodClass, claim: Claim, found: PersistentVolumeClaim, snapshot: Snapshot) -> bool:
    placed = snapshot.pods.get(claim_key(pod.namespace, claim.pod))
    controller = next((one for one in found.metadata.owner_references if one.controller), None)
    return placed is None or (controller is not None and controller.uid == placed.uid)
