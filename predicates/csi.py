"""The CSI volumes of pods, and the translation of in-tree volumes to them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from predicates.objects import (
    Claim,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PodClass,
    Requirement,
    Volume,
)
from predicates.snapshot import Snapshot
from predicates.storage import (
    claim_key,
    claim_not_found,
    claim_of,
    find_storage_class,
    find_volume,
    not_owned,
    storage_class_name,
)

# Translation of in-tree volumes to CSI volumes, for nodes where the in-tree plugin is migrated to a CSI driver.
#
# Source: ``k8s.io/csi-translation-lib``. The migrated plugins are listed in ``nodevolumelimits/utils.go`` and
# ``volumebinding/binder.go``. The scheduler never translates Azure File and vSphere volumes, although the library can.

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
BETA_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION: Final = "failure-domain.beta.kubernetes.io/region"
#: Separates the zones in the zone label of a volume that is available in several zones.
ZONES_DELIMITER: Final = "__"

EBS: Final = "kubernetes.io/aws-ebs"
GCE_PD: Final = "kubernetes.io/gce-pd"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
PORTWORX: Final = "kubernetes.io/portworx-volume"

#: The CSI drivers of the in-tree plugins that are migrated on every node with a CSINode.
DRIVERS: Final[Mapping[str, str]] = {
    EBS: "ebs.csi.aws.com",
    GCE_PD: "pd.csi.storage.gke.io",
    AZURE_DISK: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
#: In-tree plugins with a CSI driver that the scheduler does not treat as migrated.
UNMIGRATED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})

#: The zone label of each driver, which replaces the generic zone label. Azure and Portworx keep the generic one.
_TOPOLOGY_KEYS: Final = {
    EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_EBS_URL: Final = re.compile(r"aws://[^/?#]*(/[^?#]*)?")
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_GCE_ZONE_PARTS: Final = 3


class TranslationError(ValueError):
    """The volume cannot be translated; the message is the scheduler's error."""


class CSIVolume(NamedTuple):
    """The driver and the handle that identify a CSI volume."""

    driver: str
    handle: str


def plugin_of(source: Volume | PersistentVolumeSpec) -> str | None:
    """Return the in-tree plugin of *source*, or None if it is not in :data:`DRIVERS`."""
    for plugin, plugin_source in (
        (EBS, source.aws_elastic_block_store),
        (GCE_PD, source.gce_persistent_disk),
        (AZURE_DISK, source.azure_disk),
        (CINDER, source.cinder),
        (PORTWORX, source.portworx_volume),
    ):
        if plugin_source is not None:
            return plugin
    return None


def inline_volume(volume: Volume) -> CSIVolume | None:
    """Translate an inline volume of a pod. Return None if its plugin is not migrated. Raises TranslationError."""
    if (plugin := plugin_of(volume)) is None:
        return None
    if volume.gce_persistent_disk is not None:
        return CSIVolume(DRIVERS[plugin], _gce_handle("zones", "UNSPECIFIED", volume.gce_persistent_disk.pd_name))
    return CSIVolume(DRIVERS[plugin], _handle(volume))


def persistent_volume(volume: PersistentVolume) -> CSIVolume | None:
    """Return the CSI volume of a CSI or migrated in-tree *volume*, or None for other types. Raises TranslationError."""
    spec = volume.spec
    if spec.csi is not None:
        return CSIVolume(spec.csi.driver, spec.csi.volume_handle)
    if (plugin := plugin_of(spec)) is None:
        return None
    if spec.gce_persistent_disk is not None:
        zones = (volume.metadata.labels.get(BETA_ZONE) or volume.metadata.labels.get(ZONE, "")).split(ZONES_DELIMITER)
        location = ("regions", _gce_region(zones)) if len(zones) > 1 else ("zones", zones[0] or "UNSPECIFIED")
        return CSIVolume(DRIVERS[plugin], _gce_handle(*location, spec.gce_persistent_disk.pd_name))
    return CSIVolume(DRIVERS[plugin], _handle(spec))


def csi_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """Return the node affinity of a migrated in-tree volume, with the driver's own zone label."""
    affinity = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    plugin = plugin_of(volume.spec)
    if plugin not in _TOPOLOGY_KEYS:
        return affinity
    driver_key, labels = _TOPOLOGY_KEYS[plugin], volume.metadata.labels
    zone, region = _topology_labels(affinity, labels)
    if _has_values(affinity, zone):
        affinity = _with_key_renamed(affinity, zone, driver_key)
    elif zones := sorted({part.strip() for part in labels.get(zone, "").split(ZONES_DELIMITER)} - {""}):
        affinity = _with_requirement(affinity, Requirement(key=driver_key, operator="In", values=tuple(zones)))
    if region == BETA_REGION and _has_values(affinity, region):
        affinity = _with_key_renamed(affinity, region, REGION)
    return affinity


def _handle(source: Volume | PersistentVolumeSpec) -> str:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        if source.azure_disk.kind is not None and source.azure_disk.kind.lower() != "managed":
            raise TranslationError(f"kind({source.azure_disk.kind}) is not supported in csi migration")
        return source.azure_disk.disk_uri
    disk = source.cinder or source.portworx_volume
    return disk.volume_id if disk is not None else ""


def _ebs_handle(volume_id: str) -> str:
    """Return the ID of an EBS volume without its URL: ``vol-1`` for ``aws://zone/vol-1``."""
    if not volume_id.startswith("aws://"):
        return volume_id
    url = _EBS_URL.match(volume_id)
    path = unquote((url[1] if url else None) or "").strip("/")
    if not _EBS_VOLUME.fullmatch(path):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
        )
    return path


def _gce_handle(kind: str, location: str, name: str) -> str:
    return f"projects/UNSPECIFIED/{kind}/{location}/disks/{name}"


def _gce_region(zones: Sequence[str]) -> str:
    regions = set()
    for zone in zones:
        parts = zone.split("-")
        if len(parts) != _GCE_ZONE_PARTS:
            raise TranslationError(
                "failed to get region from zones: zone in unexpected format, "
                f"expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            )
        regions.add("-".join(parts[:2]))
    if len(regions) != 1:
        region_set = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{region_set}]"
        )
    return regions.pop()


def _topology_labels(affinity: NodeSelector | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the zone and region labels that the volume uses, GA or beta; affinity takes precedence over labels."""
    keys = {expression.key for expression in _expressions(affinity)}
    for used in (keys, labels):
        if ZONE in used:
            return ZONE, REGION
        if BETA_ZONE in used:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _terms(affinity: NodeSelector | None) -> tuple[NodeSelectorTerm, ...]:
    return affinity.node_selector_terms if affinity is not None else ()


def _expressions(affinity: NodeSelector | None) -> Iterable[Requirement]:
    return (expression for term in _terms(affinity) for expression in term.match_expressions)


def _has_values(affinity: NodeSelector | None, key: str) -> bool:
    return any(expression.key == key and expression.values for expression in _expressions(affinity))


def _with_key_renamed(affinity: NodeSelector | None, old: str, new: str) -> NodeSelector:
    def rename(expression: Requirement) -> Requirement:
        return replace(expression, key=new) if expression.key == old else expression

    terms = (replace(term, match_expressions=tuple(map(rename, term.match_expressions))) for term in _terms(affinity))
    return NodeSelector(node_selector_terms=tuple(terms))


def _with_requirement(affinity: NodeSelector | None, added: Requirement) -> NodeSelector:
    terms = _terms(affinity) or (NodeSelectorTerm(),)
    return NodeSelector(
        node_selector_terms=tuple(replace(term, match_expressions=(*term.match_expressions, added)) for term in terms)
    )


# The CSI volumes of pods, resolved from claims, volumes and storage classes.
#
# Source: ``nodevolumelimits/csi.go``. In-tree volumes count as CSI volumes only on nodes where their plugin is
# migrated.

_NAMELESS: Final = "PersistentVolumeClaim had no name"


class AttachedVolumes(NamedTuple):
    """The CSI volumes of a placed pod. If they cannot be resolved, ``error`` is the scheduler's message."""

    volumes: frozenset[CSIVolume]
    error: str | None = None


class UnresolvedVolumes(NamedTuple):
    """The reason why the volumes of a pod cannot be resolved."""

    text: str
    fatal: bool = True  #: the plugin fails with an error instead of rejecting the node


class RequestedVolumes(NamedTuple):
    """The CSI volumes of an incoming pod, or the reason why they cannot be resolved."""

    volumes: tuple[CSIVolume, ...] = ()
    error: UnresolvedVolumes | None = None


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
            pvc = claim_of(snapshot, pod.namespace, claim)
            if pvc is not None and claim.ephemeral and not (claim.renewed or _is_owner(pod, claim, pvc, snapshot)):
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
                return RequestedVolumes((), UnresolvedVolumes(_untranslatable(volume, error)))
        else:
            pvc = claim_of(snapshot, pod.namespace, claim)
            if (claim_error := _claim_error(pod.namespace, claim, pvc)) is not None:
                return RequestedVolumes((), claim_error)
            csi = _volume_of_claim(pvc, snapshot, migrated) if pvc is not None else None
        if csi is not None:
            volumes[csi] = None
    return RequestedVolumes(tuple(volumes))


def _claim_error(namespace: str, claim: Claim, pvc: PersistentVolumeClaim | None) -> UnresolvedVolumes | None:
    """Return the error if an incoming pod's claim cannot be resolved. A new pod never owns an existing claim."""
    if not claim.name:
        return UnresolvedVolumes(_NAMELESS)
    if pvc is None:
        return UnresolvedVolumes(f"looking up PVC {namespace}/{claim.name}: {claim_not_found(claim.name)}", fatal=False)
    return UnresolvedVolumes(not_owned(namespace, claim)) if claim.ephemeral and not claim.renewed else None


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
        translated = persistent_volume(volume)
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
    controller = pvc.metadata.controller
    return placed is None or (controller is not None and controller.uid == placed.uid)
