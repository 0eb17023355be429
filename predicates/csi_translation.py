"""What the scheduler takes an in-tree volume for, on nodes where its plugin is migrated to a CSI driver.

Source: ``k8s.io/csi-translation-lib``; which plugins are migrated: ``nodevolumelimits/utils.go`` and
``volumebinding/binder.go``. Azure File and vSphere can be translated, yet the scheduler never does.
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
#: Between the zones in the label of a volume that is in several.
ZONES_DELIMITER: Final = "__"

EBS: Final = "kubernetes.io/aws-ebs"
GCE_PD: Final = "kubernetes.io/gce-pd"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
PORTWORX: Final = "kubernetes.io/portworx-volume"

#: In-tree plugins that count as migrated wherever a node has a CSINode, and the drivers that took their place.
DRIVERS: Final[Mapping[str, str]] = {
    EBS: "ebs.csi.aws.com",
    GCE_PD: "pd.csi.storage.gke.io",
    AZURE_DISK: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
#: In-tree plugins that a CSI driver exists for and that the scheduler leaves alone.
UNMIGRATED: Final = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})

#: The label that the driver puts on nodes where the plugin used the zone. Azure and Portworx keep what is there.
_TOPOLOGY_KEYS: Final = {
    EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_EBS_URL: Final = re.compile(r"aws://[^/?#]*(/[^?#]*)?")
_EBS_VOLUME: Final = re.compile(r"vol-[^/]*")
_GCE_ZONE_PARTS: Final = 3


class TranslationError(ValueError):
    """The volume cannot be translated; the message is the scheduler's."""


class CSIVolume(NamedTuple):
    """A volume as a CSI driver knows it; two that are equal are one volume."""

    driver: str
    handle: str


def plugin_of(source: Volume | PersistentVolumeSpec) -> str | None:
    """The name of the in-tree plugin that serves *source*, None where it is none of :data:`DRIVERS`."""
    for plugin, served in (
        (EBS, source.aws_elastic_block_store),
        (GCE_PD, source.gce_persistent_disk),
        (AZURE_DISK, source.azure_disk),
        (CINDER, source.cinder),
        (PORTWORX, source.portworx_volume),
    ):
        if served is not None:
            return plugin
    return None


def inline_volume(volume: Volume) -> CSIVolume | None:
    """A disk that a pod names itself; None where nothing takes it for a CSI volume. Raises TranslationError."""
    if (plugin := plugin_of(volume)) is None:
        return None
    if volume.gce_persistent_disk is not None:
        return CSIVolume(DRIVERS[plugin], _gce_handle("zones", "UNSPECIFIED", volume.gce_persistent_disk.pd_name))
    return CSIVolume(DRIVERS[plugin], _handle(volume))


def persistent_volume(volume: PersistentVolume) -> CSIVolume | None:
    """The volume as its driver knows it, in-tree ones translated; None for all others. Raises TranslationError."""
    spec = volume.spec
    if spec.csi is not None:
        return CSIVolume(spec.csi.driver, spec.csi.volume_handle)
    if (plugin := plugin_of(spec)) is None:
        return None
    if spec.gce_persistent_disk is not None:
        zones = (volume.metadata.labels.get(BETA_ZONE) or volume.metadata.labels.get(ZONE, "")).split(ZONES_DELIMITER)
        place = ("regions", _gce_region(zones)) if len(zones) > 1 else ("zones", zones[0] or "UNSPECIFIED")
        return CSIVolume(DRIVERS[plugin], _gce_handle(*place, spec.gce_persistent_disk.pd_name))
    return CSIVolume(DRIVERS[plugin], _handle(spec))


def csi_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """Which nodes reach a migrated in-tree volume: its zone under the driver's own label."""
    wanted = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    plugin = plugin_of(volume.spec)
    if plugin not in _TOPOLOGY_KEYS:
        return wanted
    driver_key, labels = _TOPOLOGY_KEYS[plugin], volume.metadata.labels
    zone, region = _topology_labels(wanted, labels)
    if _values(wanted, zone):
        wanted = _renamed(wanted, zone, driver_key)
    elif zones := sorted({part.strip() for part in labels.get(zone, "").split(ZONES_DELIMITER)} - {""}):
        wanted = _narrowed(wanted, Requirement(key=driver_key, operator="In", values=tuple(zones)))
    if region == BETA_REGION and _values(wanted, region):
        wanted = _renamed(wanted, region, REGION)
    return wanted


def _handle(source: Volume | PersistentVolumeSpec) -> str:
    if source.aws_elastic_block_store is not None:
        return _ebs_handle(source.aws_elastic_block_store.volume_id)
    if source.azure_disk is not None:
        if source.azure_disk.kind is not None and source.azure_disk.kind.lower() != "managed":
            raise TranslationError(f"kind({source.azure_disk.kind}) is not supported in csi migration")
        return source.azure_disk.disk_uri
    of = source.cinder or source.portworx_volume
    return of.volume_id if of is not None else ""


def _ebs_handle(volume_id: str) -> str:
    """``aws://zone/vol-1`` means ``vol-1``."""
    if not volume_id.startswith("aws://"):
        return volume_id
    url = _EBS_URL.match(volume_id)
    path = unquote((url[1] if url else None) or "").strip("/")
    if not _EBS_VOLUME.fullmatch(path):
        raise TranslationError(
            f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
        )
    return path


def _gce_handle(kind: str, place: str, name: str) -> str:
    return f"projects/UNSPECIFIED/{kind}/{place}/disks/{name}"


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
        shown = " ".join(f"{region}:{{}}" for region in sorted(regions))
        raise TranslationError(
            f"failed to get region from zones: multiple or no regions gotten from zones, got: map[{shown}]"
        )
    return regions.pop()


def _topology_labels(wanted: NodeSelector | None, labels: Mapping[str, str]) -> tuple[str, str]:
    """Zone and region as this volume calls them: GA or beta; what its affinity says goes before its labels."""
    keys = {one.key for one in _expressions(wanted)}
    for known in (keys, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _terms(wanted: NodeSelector | None) -> tuple[NodeSelectorTerm, ...]:
    return wanted.node_selector_terms if wanted is not None else ()


def _expressions(wanted: NodeSelector | None) -> Iterable[Requirement]:
    return (one for term in _terms(wanted) for one in term.match_expressions)


def _values(wanted: NodeSelector | None, key: str) -> bool:
    return any(one.key == key and one.values for one in _expressions(wanted))


def _renamed(wanted: NodeSelector | None, old: str, new: str) -> NodeSelector:
    def term(one: NodeSelectorTerm) -> NodeSelectorTerm:
        return replace(
            one, match_expressions=tuple(replace(e, key=new) if e.key == old else e for e in one.match_expressions)
        )

    return NodeSelector(node_selector_terms=tuple(map(term, _terms(wanted))))


def _narrowed(wanted: NodeSelector | None, also: Requirement) -> NodeSelector:
    terms = _terms(wanted) or (NodeSelectorTerm(),)
    return NodeSelector(
        node_selector_terms=tuple(replace(one, match_expressions=(*one.match_expressions, also)) for one in terms)
    )
