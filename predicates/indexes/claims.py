"""The claims and inline disks of pods: bound, waiting for a volume, or a reason to reject the pod.

Source: ``PreFilter`` of ``volumebinding/volume_binding.go``, ``GetPodVolumeClaims`` of ``binder.go``.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from predicates.csi import TranslationError, csi_affinity, persistent_volume, plugin_of
from predicates.objects import Claim, NodeSelector, PersistentVolume, PersistentVolumeClaim, PodClass, Volume
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import (
    EVERY_NODE,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_not_found,
    claim_of,
    find_storage_class,
    find_volume,
    fully_bound,
    ignoring_fields,
    not_owned,
    own_claims,
    requested_size,
    storage_class_name,
    volume_affinity,
)

UNBOUND_IMMEDIATE: Final = "pod has unbound immediate PersistentVolumeClaims"


class BoundVolume(NamedTuple):
    """A bound volume. On nodes where ``plugin`` is migrated to CSI, the last two fields apply instead of ``nodes``."""

    nodes: NodeSelector | None
    plugin: str | None = None
    csi_nodes: NodeSelector | None = EVERY_NODE
    csi_error: str | None = None


class PodClaims(NamedTuple):
    """The claims of a pod class, grouped by their state."""

    rejection: str | None = None  #: why PreFilter rejects the pod
    bound: tuple[BoundVolume | None, ...] = ()  #: None if the volume does not exist
    to_provision: tuple[PersistentVolumeClaim, ...] = ()  #: unbound, with a selected node
    to_match: tuple[PersistentVolumeClaim, ...] = ()  #: unbound, without a selected node; smallest first


class PodClaimsIndex:
    """The claims of each pod class, cached until an object other than nodes and pods changes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epoch = -1
        self._cache: dict[PodClass, PodClaims] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore placed pods: they do not affect this index."""

    def of(self, pod: PodClass) -> PodClaims:
        """Return the claims of the class."""
        if self._epoch != self._snapshot.epoch:
            self._epoch, self._cache = self._snapshot.epoch, {}
        if (claims := self._cache.get(pod)) is None:
            claims = self._cache[pod] = _look_up(pod, self._snapshot)
        return claims


def _look_up(pod: PodClass, snapshot: Snapshot) -> PodClaims:
    claims = []
    for reference in pod.claims:
        claim = claim_of(snapshot, pod.namespace, reference)
        if (error := _claim_error(pod.namespace, reference, claim)) is not None:
            return PodClaims(error)
        assert claim is not None, "_claim_error reports missing claims"
        claims.append(claim)
    modes = [None if fully_bound(claim) else _binding_mode(claim, snapshot) for claim in claims]
    if invalid := next((mode for mode in modes if mode is not None and mode.error), None):
        return PodClaims(invalid.error)
    if any(mode is not None and not mode.delayed for mode in modes):
        return PodClaims(UNBOUND_IMMEDIATE)
    bound = [claim for claim, mode in zip(claims, modes, strict=True) if mode is None]
    unbound = [claim for claim, mode in zip(claims, modes, strict=True) if mode is not None]
    return PodClaims(
        None,
        tuple(_bound_volume(find_volume(snapshot, claim.spec.volume_name)) for claim in bound),
        tuple(claim for claim in unbound if selected_node(claim) is not None),
        tuple(sorted((claim for claim in unbound if selected_node(claim) is None), key=requested_size)),
    )


def selected_node(claim: PersistentVolumeClaim) -> str | None:
    """Return the node that the scheduler selected for provisioning the claim's volume, or None."""
    return claim.metadata.annotations.get(SELECTED_NODE)


def _claim_error(namespace: str, reference: Claim, claim: PersistentVolumeClaim | None) -> str | None:
    if claim is None:
        if reference.ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{reference.name}"'
        return claim_not_found(reference.name)
    if claim.status.phase == "Lost":
        volume = claim.spec.volume_name
        return f'persistentvolumeclaim "{reference.name}" bound to non-existent persistentvolume "{volume}"'
    if claim.metadata.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{reference.name}" is being deleted'
    # A newly created pod never owns an existing claim.
    return not_owned(namespace, reference) if reference.ephemeral and not reference.renewed else None


class _BindingMode(NamedTuple):
    delayed: bool  #: waits for its first consumer
    error: str = ""


def _binding_mode(claim: PersistentVolumeClaim, snapshot: Snapshot) -> _BindingMode:
    """Return the binding mode of an unbound claim. A claim that names a volume is bound by the volume controller."""
    name = storage_class_name(claim)
    storage_class = find_storage_class(snapshot, name) if name else None
    if storage_class is None:
        return _BindingMode(delayed=False)
    if storage_class.volume_binding_mode is None:
        error = f'running PreFilter plugin "VolumeBinding": VolumeBindingMode not set for StorageClass "{name}"'
        return _BindingMode(delayed=False, error=error)
    waits = storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
    return _BindingMode(delayed=waits and not claim.spec.volume_name)


def _bound_volume(volume: PersistentVolume | None) -> BoundVolume | None:
    if volume is None:
        return None
    plugin = plugin_of(volume.spec)
    if plugin is None:
        return BoundVolume(volume_affinity(volume))
    try:
        persistent_volume(volume)
    except TranslationError as error:
        return BoundVolume(volume_affinity(volume), plugin, csi_error=f"could not translate pv: {error}")
    return BoundVolume(volume_affinity(volume), plugin, ignoring_fields(csi_affinity(volume)))


# Inline disks and claims that the placed pods use.

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
