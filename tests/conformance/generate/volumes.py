"""More families about volumes, each relevant to several plugins.

"migrated volumes": in-tree volumes under migration to CSI, with identities and topologies that cannot be translated.
"competing claims": pods with several claims for few static volumes, which differ only in what claims can select.
"broken storage": selectors and affinities that the API server would reject.
"""

from tests.conformance.generate.disks import (
    CSI,
    GIGA,
    NO_PROVISIONER,
    add_claim,
    add_class,
    add_pod_volume,
    add_volume,
    bind,
    claims_in,
    csi_nodes,
    csi_source,
)
from tests.conformance.generate.world import HOSTNAME, REGION, ZONE, ZONES, ClusterBuilder, Family, Json

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
DRIVERS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
_TOPOLOGIES = (
    "topology.ebs.csi.aws.com/zone",
    "topology.gke.io/zone",
    "topology.disk.csi.azure.com/zone",
    "topology.cinder.csi.openstack.org/zone",
)
_ZONE_LABELS = ("a", "b", "a__b", "eu-w1-a", "eu-w1-a__eu-w1-b", "eu-w1-a__us-w1-a", "a__", "", "__")


def _source(world: ClusterBuilder, plugin: str) -> Json:
    number = world.rng.randint(1, 4)
    volumes = (f"vol-{number}", f"aws://a/vol-{number}", f"aws:///vol-{number}/", f"aws://a/disk-{number}")
    disk: Json = {"diskName": f"d{number}", "diskURI": f"/disks/d{number}"}
    if kind := world.pick(("Managed", "managed", "Managed", "Shared", None)):
        disk["kind"] = kind
    sources: dict[str, Json] = {
        "aws-ebs": {"awsElasticBlockStore": {"volumeID": world.pick((*volumes[:3], *volumes))}},
        "gce-pd": {"gcePersistentDisk": {"pdName": f"disk-{number}", "readOnly": world.chance(0.5)}},
        "azure-disk": {"azureDisk": disk},
        "cinder": {"cinder": {"volumeID": f"cinder-{number}"}},
        "portworx-volume": {"portworxVolume": {"volumeID": f"px-{number}"}},
        "azure-file": {"azureFile": {"secretName": "s", "shareName": f"share-{number}"}},
        "vsphere-volume": {"vsphereVolume": {"volumePath": f"[store] {number}"}},
    }
    return sources[plugin.rpartition("/")[2]]


def _affinity(world: ClusterBuilder) -> Json:
    terms = []
    for _ in range(world.pick((0, 1, 1, 1, 2))):
        expressions = []
        if world.chance(0.8):
            key = world.pick((ZONE, BETA_ZONE, *_TOPOLOGIES))
            expressions.append({"key": key, "operator": "In", "values": world.some(ZONES, 1, 2)})
        if world.chance(0.2):
            expressions.append({"key": world.pick((ZONE, BETA_ZONE)), "operator": "Exists"})
        if world.chance(0.3):
            expressions.append({"key": world.pick((REGION, BETA_REGION)), "operator": "In", "values": ["r1"]})
        terms.append({"matchExpressions": expressions})
    return {"required": {"nodeSelectorTerms": terms}}


def _driver_labels(world: ClusterBuilder) -> None:
    """Add the labels that CSI drivers set on nodes, and those of old kubelets."""
    for node in world.nodes:
        labels = node["metadata"]["labels"]
        for key in (*_TOPOLOGIES, BETA_ZONE, BETA_REGION):
            if world.chance(0.7):
                labels[key] = "r1" if key == BETA_REGION else world.pick((labels.get(ZONE, "a"), *ZONES))


def _migrated(world: ClusterBuilder) -> None:
    _driver_labels(world)
    csi_nodes(world, (CSI, *DRIVERS.values()), tuple(DRIVERS))
    for plugin in DRIVERS:
        add_class(world, plugin.rpartition("/")[2], plugin, "WaitForFirstConsumer")
    for namespace in world.namespaces:
        for i in range(world.rng.randint(4, 10)):
            plugin = world.pick(tuple(DRIVERS))
            claim = add_claim(world, namespace, f"moved-{i}", plugin.rpartition("/")[2])
            if world.chance(0.85):
                volume = add_volume(world, _source(world, plugin))
                if world.chance(0.6):
                    volume["spec"]["nodeAffinity"] = _affinity(world)
                if world.chance(0.6):
                    volume["metadata"]["labels"] = {world.pick((ZONE, BETA_ZONE)): world.pick(_ZONE_LABELS)}
                bind(claim, volume)
    volumes = [obj["metadata"]["name"] for obj in world.objects if obj["kind"] == "PersistentVolume"]
    for _ in range(world.rng.randint(0, 6)):
        _attachment(world, world.pick((*volumes, "gone")) if volumes else "gone")


def _attachment(world: ClusterBuilder, volume: str) -> None:
    spec: Json = {"attacher": world.pick((CSI, *DRIVERS.values(), "")), "nodeName": world.pick(world.node_names())}
    spec["source"] = {"persistentVolumeName": volume} if world.chance(0.9) else {}
    world.add("VolumeAttachment", world.name("attachment"), version="storage.k8s.io/v1", spec=spec)


def _mount_migrated(world: ClusterBuilder, pod: Json) -> None:
    for name in world.some(claims_in(world, pod["metadata"]["namespace"]), 0, 3):
        add_pod_volume(world, pod, {"persistentVolumeClaim": {"claimName": name}})
    for _ in range(world.pick((0, 0, 1, 2))):
        add_pod_volume(world, pod, _source(world, world.pick(tuple(DRIVERS))))
    if world.chance(0.03):
        add_pod_volume(world, pod, {"persistentVolumeClaim": {"claimName": world.pick(("gone", ""))}})


def _competing(world: ClusterBuilder) -> None:
    driver = world.add("CSIDriver", CSI, version="storage.k8s.io/v1", spec={"storageCapacity": world.chance(0.5)})
    if world.chance(0.3):
        del driver["spec"]["storageCapacity"]
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": world.some(ZONES, 1, 2)}]}, {}]
    add_class(world, "disk", NO_PROVISIONER, "WaitForFirstConsumer")
    add_class(world, "made", CSI, "WaitForFirstConsumer", allowedTopologies=topologies[: world.rng.randint(0, 2)])
    for _ in range(world.rng.randint(0, 4)):
        selector = world.pick(
            ({"matchLabels": {ZONE: "a"}}, {"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["a"]}]})
        )
        world.add(
            "CSIStorageCapacity",
            world.name("room"),
            "kube-system",
            version="storage.k8s.io/v1",
            storageClassName=world.pick(("made", "made", "disk")),
            capacity=world.pick(("1Gi", "2Gi", "2147483647", "-1")),
            nodeTopology=selector,
        )
    for _ in range(world.rng.randint(4, 24)):
        _local_disk(world)
    for namespace in world.namespaces:
        for i in range(world.rng.randint(3, 9)):
            claim = add_claim(world, namespace, f"part-{i}", world.pick(("disk", "disk", "made")), _size(world))
            claim["spec"]["accessModes"] = ["ReadWriteOnce"]
            if world.chance(0.2):
                claim["spec"]["selector"] = {"matchLabels": {"tier": "gold"}}
            if world.chance(0.05):
                claim["metadata"].setdefault("annotations", {})["volume.kubernetes.io/selected-node"] = world.pick(
                    (*world.node_names(), "")
                )


def _size(world: ClusterBuilder) -> int:
    return world.rng.randint(1, 3) * GIGA


def _local_disk(world: ClusterBuilder) -> None:
    """Add a local volume of unique size, because the choice between equal sizes is not deterministic."""
    volume = add_volume(world, {"local": {"path": "/mnt/a"}}, world.pick(("disk", "disk", "made")), _size(world))
    volume["spec"]["accessModes"] = ["ReadWriteOnce"]
    key, values = world.pick(((HOSTNAME, world.node_names()), (HOSTNAME, world.node_names()), (ZONE, list(ZONES))))
    expression = {"key": key, "operator": "In", "values": world.some(values, 1, 2)}
    if world.chance(0.9):
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    if world.chance(0.4):
        volume["metadata"]["labels"] = {"tier": "gold"}


def _mount_several(world: ClusterBuilder, pod: Json) -> None:
    names = claims_in(world, pod["metadata"]["namespace"])
    for name in world.some(names, 1, world.rng.randint(1, 5)):
        for _ in range(2 if world.chance(0.05) else 1):
            add_pod_volume(world, pod, {"persistentVolumeClaim": {"claimName": name}})


def _broken(world: ClusterBuilder) -> None:
    add_class(
        world,
        "disk",
        world.pick((NO_PROVISIONER, CSI, "")),
        "WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": world.pick(([], ["a"], ["-"]))}]}],
    )
    world.add("CSIDriver", CSI, version="storage.k8s.io/v1", spec={"storageCapacity": True})
    world.add(
        "CSIStorageCapacity",
        "room",
        "kube-system",
        version="storage.k8s.io/v1",
        storageClassName="disk",
        capacity="9Gi",
        nodeTopology={"matchExpressions": [{"key": ZONE, "operator": world.pick(("Exists", "DoesNotExist"))}]},
    )
    for namespace in world.namespaces:
        for i in range(world.rng.randint(2, 6)):
            claim = add_claim(world, namespace, f"odd-{i}", "disk")
            volume = add_volume(world, csi_source(world), "disk")
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [_odd_term(world)]}}
            if world.chance(0.6):
                bind(claim, volume)
            elif world.chance(0.5):
                claim["spec"]["selector"] = {"matchExpressions": [_odd_expression(world)]}


def _odd_term(world: ClusterBuilder) -> Json:
    term: Json = {}
    if world.chance(0.6):
        term["matchExpressions"] = [_odd_expression(world) for _ in range(world.rng.randint(0, 2))]
    if world.chance(0.6):
        names = world.some(world.node_names(), 0, 2)
        operator = world.pick(("In", "NotIn", "Exists"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": names}]
    return term


def _odd_expression(world: ClusterBuilder) -> Json:
    operator = world.pick(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Is"))
    expression: Json = {"key": world.pick((ZONE, ZONE, HOSTNAME, "not a key")), "operator": operator}
    if values := world.pick((["a"], ["a", "b"], ["1"], [], ["-"])):
        expression["values"] = values
    return expression


FAMILIES = (
    Family("migrated volumes", _migrated, _mount_migrated),
    Family("competing claims", _competing, _mount_several),
    Family("broken storage", _broken, _mount_several),
)
