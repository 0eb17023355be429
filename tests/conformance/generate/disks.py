"""Volumes, claims, storage classes and drivers for the storage families."""

from typing import Any

from tests.conformance.generate.quantities import whole
from tests.conformance.generate.world import HOSTNAME, REGION, ZONE, ZONES, ClusterBuilder, Json

GIGA = 2**30
MODES = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
NO_PROVISIONER = "kubernetes.io/no-provisioner"
EBS, GCE, AZURE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/azure-disk"
CINDER, PORTWORX = "kubernetes.io/cinder", "kubernetes.io/portworx-volume"
#: In-tree plugins by the CSI driver that they are migrated to.
MIGRATED = {
    EBS: "ebs.csi.aws.com",
    GCE: "pd.csi.storage.gke.io",
    AZURE: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
IN_TREE = tuple(MIGRATED)
CSI = "csi.example.com"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
#: The zone labels of the drivers to which in-tree plugins are migrated.
DRIVER_ZONES = (
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.cinder.csi.openstack.org/zone",
)
_BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


#: The minimum difference between volume sizes, in bytes; larger than the rounding of any quantity format.
_STEP = 16 * 2**20


def add_class(world: ClusterBuilder, name: str, provisioner: str, mode: str | None, **fields: Any) -> Json:
    obj = world.add(
        "StorageClass", name, version="storage.k8s.io/v1", provisioner=provisioner, reclaimPolicy="Delete", **fields
    )
    if mode is not None:
        obj["volumeBindingMode"] = mode
    return obj


def add_volume(world: ClusterBuilder, source: Json, storage_class: str = "", size: int = GIGA, **spec: Any) -> Json:
    """Add a volume of unique size, because the scheduler chooses arbitrarily between equal sizes."""
    name = world.name("pv")
    return world.add(
        "PersistentVolume",
        name,
        spec={
            "accessModes": sorted(world.some(MODES, 1, 3)),
            "capacity": {"storage": whole(world, size + world.serial * _STEP)},
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": storage_class,
            "volumeMode": "Filesystem",
            **source,
            **spec,
        },
        status={"phase": "Available"},
    )


def add_claim(world: ClusterBuilder, namespace: str, name: str, storage_class: str | None, size: int = GIGA) -> Json:
    claim = world.add(
        "PersistentVolumeClaim",
        name,
        namespace,
        spec={
            "accessModes": ["ReadWriteOncePod" if world.chance(0.04) else world.pick(MODES[:3])],
            "resources": {"requests": {"storage": whole(world, size)}},
            "volumeMode": "Filesystem",
        },
        status={"phase": "Pending"},
    )
    if storage_class is not None:
        claim["spec"]["storageClassName"] = storage_class
    return claim


def bind(claim: Json, volume: Json) -> None:
    """Bind a claim to a volume, as the volume controller does."""
    claim["spec"]["volumeName"] = volume["metadata"]["name"]
    claim["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
    claim["status"] = {"phase": "Bound"}
    meta = claim["metadata"]
    volume["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "name": meta["name"],
        "namespace": meta["namespace"],
        "uid": meta["uid"],
    }
    volume["status"] = {"phase": "Bound"}


def csi_source(world: ClusterBuilder, driver: str = CSI, handles: int = 10**6) -> Json:
    return {"csi": {"driver": driver, "volumeHandle": f"vol-{world.rng.randint(1, handles)}"}}


def in_tree_source(world: ClusterBuilder, plugin: str) -> Json:
    """Return an in-tree source of a migrated plugin, with its ID in any of the existing formats."""
    number = world.rng.randint(1, 6)
    if plugin == EBS:
        forms = (f"vol-{number}", f"aws://a/vol-{number}", f"aws:///vol-{number}")
        return {"awsElasticBlockStore": {"volumeID": world.pick(forms)}}
    if plugin == GCE:
        return {"gcePersistentDisk": {"pdName": f"disk-{number}"}}
    if plugin == CINDER:
        return {"cinder": {"volumeID": f"cinder-{number}"}}
    if plugin == PORTWORX:
        return {"portworxVolume": {"volumeID": f"px-{number}"}}
    uri = f"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d{number}"
    return {"azureDisk": {"diskName": f"d{number}", "diskURI": uri, "kind": "Managed", "cachingMode": "ReadWrite"}}


def node_affinity(world: ClusterBuilder) -> Json:
    terms = []
    for _ in range(world.pick((1, 1, 1, 2))):
        expressions = []
        if world.chance(0.7):
            key = world.pick((ZONE, ZONE, ZONE, _BETA_ZONE, *DRIVER_ZONES))
            expressions.append({"key": key, "operator": "In", "values": sorted(world.some(ZONES, 1, 2))})
        if world.chance(0.35):
            expressions.append({"key": HOSTNAME, "operator": "In", "values": world.some(world.node_names(), 1, 3)})
        if world.chance(0.1):
            expressions.append({"key": REGION, "operator": world.pick(("Exists", "DoesNotExist"))})
        term: Json = {"matchExpressions": expressions}
        if world.chance(0.04):
            fields = {"key": "metadata.name", "operator": "In", "values": [world.pick(world.node_names())]}
            term["matchFields"] = [fields]
        terms.append(term)
    if world.chance(0.03):
        return world.pick(({}, {"required": None}, {"required": {"nodeSelectorTerms": []}}))
    return {"required": {"nodeSelectorTerms": terms}}


def topology_labels(world: ClusterBuilder) -> Json:
    """Return zone and region labels of a volume: GA or beta, with one or more zones, rarely an unknown zone."""
    beta = "failure-domain.beta.kubernetes.io"
    labels: Json = {}
    zone = world.pick((*ZONES, *ZONES, "a__b", "b__c__a", "z", "", "a__"))
    labels[world.pick((ZONE, f"{beta}/zone"))] = zone
    if world.chance(0.4):
        labels[world.pick((REGION, f"{beta}/region"))] = world.pick(("r1", "r1", "r2", "r1__r2"))
    return labels


def csi_nodes(world: ClusterBuilder, drivers: tuple[str, ...], migrated: tuple[str, ...] = ()) -> None:
    """Add a CSINode for most nodes, most of them with limits, some with migrated in-tree plugins."""
    for name in world.node_names():
        if world.chance(0.15):
            continue
        obj = world.add("CSINode", name, version="storage.k8s.io/v1", spec={"drivers": []})
        for driver in world.some(drivers, 1):
            entry: Json = {"name": driver, "nodeID": name, "topologyKeys": [ZONE]}
            if world.chance(0.8):
                entry["allocatable"] = {"count": world.rng.randint(0, 4)}
            elif world.chance(0.3):
                entry["allocatable"] = {}
            obj["spec"]["drivers"].append(entry)
        if migrated and world.chance(0.8):
            marked = ",".join(world.some(migrated, 0))
            obj["metadata"]["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": marked}


def claims_in(world: ClusterBuilder, namespace: str) -> list[str]:
    return [
        obj["metadata"]["name"]
        for obj in world.objects
        if obj["kind"] == "PersistentVolumeClaim" and obj["metadata"]["namespace"] == namespace
    ]


def mount_claims(world: ClusterBuilder, pod: Json, most: int = 2) -> None:
    """Mount claims of the pod's namespace; rarely one that does not exist."""
    names = claims_in(world, pod["metadata"]["namespace"]) or ["no-such-claim"]
    for name in world.some(names, 1, most):
        mounted = "no-such-claim" if world.chance(0.02) else name
        for _ in range(2 if world.chance(0.03) else 1):
            add_pod_volume(world, pod, {"persistentVolumeClaim": {"claimName": mounted}})


def add_pod_volume(world: ClusterBuilder, pod: Json, source: Json) -> None:
    volumes = pod["spec"].setdefault("volumes", [])
    volumes.append({"name": f"v{len(volumes)}", **source})
