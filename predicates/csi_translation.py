"""Translation of in-tree volumes to CSI volumes, for nodes where the in-tree plugin is migrated to a CSI driver.

Source: ``k8s.io/csi-translation-lib``. The migrated plugins are listed in ``nodevolumelimits/utils.go`` and
``volumebinding/binder.go``. The scheduler never translates Azure File and vSphere volumes, although the library can.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from msgspec.structs import replace

from predicates.objects import (
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeSpec,
    Requirement,
    Volume,
)

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
