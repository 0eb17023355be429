"""The CSI volumes attached to each node, counted by driver.

Source: ``nodevolumelimits/csi.go``. A pod's volumes are resolved from claims, volumes and storage classes, so the
index is rebuilt when one of those changes. Placements update the counts.
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
from predicates.storage import (
    claim_key,
    claim_not_found,
    find_claim,
    find_storage_class,
    find_volume,
    not_owned,
    storage_class_name,
)

NAMELESS: Final = "PersistentVolumeClaim had no name"

#: The kinds from which the volumes of a pod are resolved, in addition to its spec.
_RESOLVED: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")


class AttachedVolumes(NamedTuple):
    """The CSI volumes of a placed pod. If they cannot be resolved, ``error`` is the scheduler's message."""

    volumes: frozenset[CSIVolume]
    error: str | None = None


class VolumeError(NamedTuple):
    """Why the volumes of a pod cannot be resolved."""

    text: str
    fatal: bool = True  #: the plugin fails with an error instead of rejecting the node


class RequestedVolumes(NamedTuple):
    """The CSI volumes of an incoming pod.

    If they cannot be resolved, the errors differ between nodes with and without a CSINode: in-tree volumes are
    ignored on nodes without one.
    """

    volumes: tuple[CSIVolume, ...] = ()
    error: VolumeError | None = None
    error_without_csi: VolumeError | None = None


class Attachments:
    """CSI volumes by row. Call :meth:`sync` before reading."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._built_from: tuple[int, ...] = ()
        self._read_up_to = (-1, 0)
        self._rows = 0
        self._attached: dict[PodClass, AttachedVolumes] = {}
        self._requested: dict[PodClass, RequestedVolumes] = {}
        self._from_attachments: dict[int, frozenset[CSIVolume]] = {}  #: by row, from VolumeAttachments
        self._by_node: dict[str, list[VolumeAttachment]] = {}
        self._by_node_version = -1
        self.counts: dict[str, Numbers] = {}  #: by driver: number of volumes on each row
        self.users: dict[CSIVolume, dict[int, int]] = {}  #: by volume and row: number of pods that use it
        self.unresolved: dict[int, Counter[str]] = {}  #: by row: errors of pods whose volumes cannot be resolved

    def watch(self, pod: PodClass) -> Watchers | None:
        return Watchers(partial(self._shift, pod)) if pod.claims or pod.disks else None

    def _shift(self, pod: PodClass, row: int, by: int) -> None:
        if row >= self._rows:
            self._built_from = ()  # The index is rebuilt by the next sync.
            return
        attached = self._volumes_of(pod)
        for volume in attached.volumes:
            self._use(volume, row, by)
        if attached.error is not None:
            errors = self.unresolved.setdefault(row, Counter())
            errors[attached.error] += by
            if not errors[attached.error]:
                del errors[attached.error]
            if not errors:
                del self.unresolved[row]

    def sync(self) -> "Attachments":
        """Update the counts and return the index.

        Costs O(changed nodes), or O(all pods with volumes) if claims, volumes or storage classes have changed.
        """
        snapshot = self._snapshot
        versions = (snapshot.versions[kind] for kind in _RESOLVED)
        built_from = (*versions, snapshot.generation, len(snapshot.nodes))
        (epoch, read), self._read_up_to = self._read_up_to, (snapshot.epoch, len(snapshot.node_changes))
        if built_from != self._built_from:
            self._built_from = built_from
            self._rebuild()
        elif epoch != snapshot.epoch:
            for row in [*self._from_attachments, *snapshot.nodes.row.values()]:
                self._read_attachments(row)
        elif read != len(snapshot.node_changes):
            for row in set(snapshot.node_changes[read:]):
                self._read_attachments(row)
        return self

    def requested(self, pod: PodClass) -> RequestedVolumes:
        """Return the volumes of an incoming pod of the class."""
        if (volumes := self._requested.get(pod)) is None:
            volumes = self._requested[pod] = volumes_of_incoming(pod, self._snapshot)
        return volumes

    def _rebuild(self) -> None:
        snapshot = self._snapshot
        self._rows = len(snapshot.nodes)
        self._attached, self._requested, self._from_attachments = {}, {}, {}
        self.counts, self.users, self.unresolved = {}, {}, {}
        for pod in snapshot.classes():
            if (watchers := self.watch(pod)) is not None:
                snapshot.replay_placements(watchers, pod)
        for row in snapshot.nodes.row.values():
            self._read_attachments(row)

    def _read_attachments(self, row: int) -> None:
        """Update the volumes of *row* from the VolumeAttachments of its node."""
        before = self._from_attachments.pop(row, frozenset())
        after = frozenset(self._attached_to(self._snapshot.nodes.names[row]))
        if after:
            self._from_attachments[row] = after
        for volume in before ^ after:
            if row not in self.users.get(volume, ()):
                self._count(volume.driver, row, 1 if volume in after else -1)

    def _attached_to(self, node: str) -> Iterator[CSIVolume]:
        """Yield the attached volumes. Only volumes with a CSI source count, as upstream."""
        if self._by_node_version != self._snapshot.versions["VolumeAttachment"]:
            self._by_node_version, self._by_node = self._snapshot.versions["VolumeAttachment"], {}
            for attachment in cast("dict[str, VolumeAttachment]", self._snapshot.of("VolumeAttachment")).values():
                self._by_node.setdefault(attachment.spec.node_name, []).append(attachment)
        for attachment in self._by_node.get(node, ()):
            name = attachment.spec.source.persistent_volume_name
            volume = find_volume(self._snapshot, name) if attachment.spec.attacher and name is not None else None
            if volume is not None and volume.spec.csi is not None:
                yield CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle)

    def _use(self, volume: CSIVolume, row: int, by: int) -> None:
        rows = self.users.setdefault(volume, {})
        before = rows.get(row, 0)
        after = rows[row] = before + by
        if not after:
            del rows[row]
            if not rows:
                del self.users[volume]
        if (before == 0 or after == 0) and volume not in self._from_attachments.get(row, ()):
            self._count(volume.driver, row, 1 if before == 0 else -1)

    def _count(self, driver: str, row: int, by: int) -> None:
        if (column := self.counts.get(driver)) is None:
            column = self.counts[driver] = np.zeros(self._rows, np.int64)
        column[row] += by

    def _volumes_of(self, pod: PodClass) -> AttachedVolumes:
        if (volumes := self._attached.get(pod)) is None:
            volumes = self._attached[pod] = volumes_of_placed(pod, self._snapshot)
        return volumes


def volumes_of_placed(pod: PodClass, snapshot: Snapshot) -> AttachedVolumes:
    """Return the volumes of a bound pod. Claims that do not exist are ignored."""
    volumes: set[CSIVolume] = set()
    for claim, volume in volumes_with_claims(pod):
        if claim is None:
            try:
                csi = inline_volume(volume)
            except TranslationError as error:
                return AttachedVolumes(frozenset(volumes), untranslatable(volume, error))
        else:
            if not claim.name:
                return AttachedVolumes(frozenset(volumes), NAMELESS)
            pvc = find_claim(snapshot, pod.namespace, claim.name)
            if pvc is not None and claim.ephemeral and not _is_owner(pod, claim, pvc, snapshot):
                return AttachedVolumes(frozenset(volumes), not_owned(pod.namespace, claim))
            csi = volume_of_claim(pvc, snapshot) if pvc is not None else None
        if csi is not None:
            volumes.add(csi)
    return AttachedVolumes(frozenset(volumes))


def volumes_of_incoming(pod: PodClass, snapshot: Snapshot) -> RequestedVolumes:
    """Return the volumes of an unbound pod. Claims that do not exist are an error."""
    volumes: dict[CSIVolume, None] = {}
    inline_error: VolumeError | None = None
    for claim, volume in volumes_with_claims(pod):
        if claim is None:
            try:
                csi = inline_volume(volume)
            except TranslationError as error:
                inline_error = inline_error or VolumeError(untranslatable(volume, error))
                continue
        else:
            pvc = find_claim(snapshot, pod.namespace, claim.name)
            if (claim_error := _claim_error(pod.namespace, claim, pvc)) is not None:
                return RequestedVolumes((), inline_error or claim_error, claim_error)
            csi = volume_of_claim(pvc, snapshot) if pvc is not None else None
        if csi is not None:
            volumes[csi] = None
    return RequestedVolumes(tuple(volumes), inline_error)


def _claim_error(namespace: str, claim: Claim, pvc: PersistentVolumeClaim | None) -> VolumeError | None:
    """Return why the volume of an incoming pod's claim cannot be resolved. A new pod never owns an existing claim."""
    if not claim.name:
        return VolumeError(NAMELESS)
    if pvc is None:
        return VolumeError(f"looking up PVC {namespace}/{claim.name}: {claim_not_found(claim.name)}", fatal=False)
    return VolumeError(not_owned(namespace, claim)) if claim.ephemeral else None


def volumes_with_claims(pod: PodClass) -> Iterator[tuple[Claim | None, Volume]]:
    """Yield the pod's volumes in order, each with the claim it refers to, or None."""
    claims = iter(pod.claims)
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield next(claims), volume
        else:
            yield None, volume


def volume_of_claim(claim: PersistentVolumeClaim, snapshot: Snapshot) -> CSIVolume | None:
    """Return the volume that is attached for the claim: its volume, or the one that is to be provisioned."""
    volume = find_volume(snapshot, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_provision(claim, snapshot)
    try:
        translated = csi_volume(volume)
    except TranslationError:
        return None
    return translated if translated is not None and translated.driver and translated.handle else None


def untranslatable(volume: Volume, error: TranslationError) -> str:
    """Return the scheduler's message for an inline volume that cannot be translated."""
    return f"converting volume({volume.name}) from inline to csi: {error}"


def _volume_to_provision(claim: PersistentVolumeClaim, snapshot: Snapshot) -> CSIVolume | None:
    storage_class = find_storage_class(snapshot, storage_class_name(claim))
    if storage_class is None or storage_class.provisioner in ("", *UNMIGRATED):
        return None
    # A unique handle: no real handle contains a null byte.
    handle = f"\0{claim_key(claim.metadata.namespace, claim.metadata.name)}"
    return CSIVolume(DRIVERS.get(storage_class.provisioner, storage_class.provisioner), handle)


def _is_owner(pod: PodClass, claim: Claim, pvc: PersistentVolumeClaim, snapshot: Snapshot) -> bool:
    placed = snapshot.pods.get(claim_key(pod.namespace, claim.pod))
    controller = next((owner for owner in pvc.metadata.owner_references if owner.controller), None)
    return placed is None or (controller is not None and controller.uid == placed.uid)
