"""The CSI volumes of pods, resolved from claims, volumes and storage classes.

Source: ``nodevolumelimits/csi.go``. In-tree volumes count as CSI volumes only on nodes where their plugin is migrated.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from predicates.csi_translation import DRIVERS, UNMIGRATED, CSIVolume, TranslationError, inline_volume, plugin_of
from predicates.csi_translation import persistent_volume as csi_volume
from predicates.objects import Claim, PersistentVolumeClaim, PodClass, Volume
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

_NAMELESS: Final = "PersistentVolumeClaim had no name"


class AttachedVolumes(NamedTuple):
    """The CSI volumes of a placed pod. If they cannot be resolved, ``error`` is the scheduler's message."""

    volumes: frozenset[CSIVolume]
    error: str | None = None


class VolumeError(NamedTuple):
    """The reason why the volumes of a pod cannot be resolved."""

    text: str
    fatal: bool = True  #: the plugin fails with an error instead of rejecting the node


class RequestedVolumes(NamedTuple):
    """The CSI volumes of an incoming pod, or the reason why they cannot be resolved."""

    volumes: tuple[CSIVolume, ...] = ()
    error: VolumeError | None = None


def volumes_of_placed(pod: PodClass, snapshot: Snapshot, migrated: Collection[str]) -> AttachedVolumes:
    """Return the volumes of a bound pod, on a node where the in-tree plugins *migrated* are migrated.

    Claims that do not exist are ignored.
    """
    volumes: set[CSIVolume] = set()
    for claim, volume in _volumes_with_claims(pod):
        if claim is None:
            try:
                csi = inline_volume(volume) if plugin_of(volume) in migrated else None
            except TranslationError as error:
                return AttachedVolumes(frozenset(volumes), _untranslatable(volume, error))
        else:
            if not claim.name:
                return AttachedVolumes(frozenset(volumes), _NAMELESS)
            pvc = find_claim(snapshot, pod.namespace, claim.name)
            if pvc is not None and claim.ephemeral and not _is_owner(pod, claim, pvc, snapshot):
                return AttachedVolumes(frozenset(volumes), not_owned(pod.namespace, claim))
            csi = _volume_of_claim(pvc, snapshot, migrated) if pvc is not None else None
        if csi is not None:
            volumes.add(csi)
    return AttachedVolumes(frozenset(volumes))


def volumes_of_incoming(pod: PodClass, snapshot: Snapshot, migrated: Collection[str]) -> RequestedVolumes:
    """Return the volumes of an unbound pod, on nodes where the in-tree plugins *migrated* are migrated.

    Claims that do not exist are an error.
    """
    volumes: dict[CSIVolume, None] = {}
    for claim, volume in _volumes_with_claims(pod):
        if claim is None:
            try:
                csi = inline_volume(volume) if plugin_of(volume) in migrated else None
            except TranslationError as error:
                return RequestedVolumes((), VolumeError(_untranslatable(volume, error)))
        else:
            pvc = find_claim(snapshot, pod.namespace, claim.name)
            if (claim_error := _claim_error(pod.namespace, claim, pvc)) is not None:
                return RequestedVolumes((), claim_error)
            csi = _volume_of_claim(pvc, snapshot, migrated) if pvc is not None else None
        if csi is not None:
            volumes[csi] = None
    return RequestedVolumes(tuple(volumes))


def _claim_error(namespace: str, claim: Claim, pvc: PersistentVolumeClaim | None) -> VolumeError | None:
    """Return the error if an incoming pod's claim cannot be resolved. A new pod never owns an existing claim."""
    if not claim.name:
        return VolumeError(_NAMELESS)
    if pvc is None:
        return VolumeError(f"looking up PVC {namespace}/{claim.name}: {claim_not_found(claim.name)}", fatal=False)
    return VolumeError(not_owned(namespace, claim)) if claim.ephemeral else None


def _volumes_with_claims(pod: PodClass) -> Iterator[tuple[Claim | None, Volume]]:
    """Yield the pod's volumes in order, each with the claim that it refers to, or None."""
    claims = iter(pod.claims)
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            yield next(claims), volume
        else:
            yield None, volume


def _volume_of_claim(claim: PersistentVolumeClaim, snapshot: Snapshot, migrated: Collection[str]) -> CSIVolume | None:
    """Return the CSI volume that is bound to the claim or is to be provisioned for it, or None."""
    volume = find_volume(snapshot, claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is None:
        return _volume_to_provision(claim, snapshot, migrated)
    if volume.spec.csi is None and plugin_of(volume.spec) not in migrated:
        return None
    try:
        translated = csi_volume(volume)
    except TranslationError:
        return None
    return translated if translated is not None and translated.driver and translated.handle else None


def _untranslatable(volume: Volume, error: TranslationError) -> str:
    """Return the scheduler's message for an inline volume that cannot be translated."""
    return f"converting volume({volume.name}) from inline to csi: {error}"


def _volume_to_provision(
    claim: PersistentVolumeClaim, snapshot: Snapshot, migrated: Collection[str]
) -> CSIVolume | None:
    storage_class = find_storage_class(snapshot, storage_class_name(claim))
    if storage_class is None or storage_class.provisioner in ("", *UNMIGRATED):
        return None
    if storage_class.provisioner in DRIVERS and storage_class.provisioner not in migrated:
        return None
    # A unique handle: no real handle contains a null byte.
    handle = f"\0{claim_key(claim.metadata.namespace, claim.metadata.name)}"
    return CSIVolume(DRIVERS.get(storage_class.provisioner, storage_class.provisioner), handle)


def _is_owner(pod: PodClass, claim: Claim, pvc: PersistentVolumeClaim, snapshot: Snapshot) -> bool:
    placed = snapshot.pods.get(claim_key(pod.namespace, claim.pod))
    controller = next((owner for owner in pvc.metadata.owner_references if owner.controller), None)
    return placed is None or (controller is not None and controller.uid == placed.uid)
