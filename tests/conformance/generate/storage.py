"""Families about volumes: conflicts, limits per node, binding, zones."""

from tests.conformance.generate.disks import (
    BETA_CLASS,
    CSI,
    DRIVER_ZONES,
    GIGA,
    IN_TREE,
    MIGRATED,
    NO_PROVISIONER,
    add_claim,
    add_class,
    add_pod_volume,
    add_volume,
    bind,
    claims_in,
    csi_nodes,
    csi_source,
    in_tree_source,
    mount_claims,
    node_affinity,
    topology_labels,
)
from tests.conformance.generate.world import ZONE, ZONES, ClusterBuilder, Family, Json


def _shared_disks(world: ClusterBuilder, pod: Json) -> None:
    for _ in range(world.rng.randint(1, 2)):
        add_pod_volume(world, pod, _disk(world))
    if world.chance(0.3):
        mount_claims(world, pod)


def _disk(world: ClusterBuilder) -> Json:
    number = world.rng.randint(1, 4)
    kind = world.pick(("gcePersistentDisk", "awsElasticBlockStore", "rbd", "iscsi", "emptyDir"))
    sources: dict[str, Json] = {
        "gcePersistentDisk": {"pdName": f"disk-{number}"},
        "awsElasticBlockStore": {"volumeID": f"vol-{number}"},
        "rbd": {
            "monitors": world.some(("m1", "m2", "m3"), 1, 2),
            "image": f"image-{world.rng.randint(1, 2)}",
            "pool": world.pick(("rbd", "rbd", "fast")),
        },
        "iscsi": {
            "targetPortal": "10.0.0.1:3260",
            "iqn": f"iqn.2001-04.com.example:{number}",
            "lun": world.rng.randint(0, 1),
        },
        "emptyDir": {},
    }
    source = sources[kind]
    if kind != "emptyDir" and world.chance(0.55):
        source["readOnly"] = world.chance(0.85)
    return {kind: source}


def _exclusive_claims(world: ClusterBuilder) -> None:
    for namespace in world.namespaces:
        for i in range(world.rng.randint(1, 4)):
            claim = add_claim(world, namespace, f"only-{i}", "")
            claim["spec"]["accessModes"] = world.pick(
                (["ReadWriteOncePod"], ["ReadWriteOncePod"], ["ReadWriteOnce"], [])
            )
            bind(claim, add_volume(world, csi_source(world)))


def _limits(world: ClusterBuilder) -> None:
    add_class(world, "wffc", CSI, "WaitForFirstConsumer")
    for plugin in IN_TREE:
        add_class(world, plugin.rpartition("/")[2], plugin, "WaitForFirstConsumer")
    add_class(world, "other", "csi.not-installed.example.com", "WaitForFirstConsumer")
    csi_nodes(world, (CSI, *MIGRATED.values()), IN_TREE)
    for namespace in world.namespaces:
        for i in range(world.rng.randint(3, 10)):
            classes = ("wffc", "wffc", *(plugin.rpartition("/")[2] for plugin in IN_TREE), "other", "gone", "")
            claim = add_claim(world, namespace, f"data-{i}", world.pick(classes))
            if world.chance(0.7):
                source = (
                    csi_source(world, handles=30) if world.chance(0.6) else in_tree_source(world, world.pick(IN_TREE))
                )
                bind(claim, add_volume(world, source))
            elif world.chance(0.1):
                claim["spec"]["volumeName"] = "pv-gone"
    for _ in range(world.rng.randint(0, 4)):
        _attachment(world)
    for driver in world.some((CSI, *MIGRATED.values(), "csi.not-installed.example.com"), 0, 3):
        required = world.add("CSIDriver", driver, version="storage.k8s.io/v1", spec={"attachRequired": True})
        if world.chance(0.8):
            required["spec"]["preventPodSchedulingIfMissing"] = world.chance(0.8)


def _attachment(world: ClusterBuilder) -> None:
    volumes = [obj["metadata"]["name"] for obj in world.objects if obj["kind"] == "PersistentVolume"]
    world.add(
        "VolumeAttachment",
        world.name("attachment"),
        version="storage.k8s.io/v1",
        spec={
            "attacher": CSI,
            "nodeName": world.pick(world.node_names()),
            "source": {"persistentVolumeName": world.pick([*volumes, "pv-gone"])},
        },
        status={"attached": True},
    )


def _many_disks(world: ClusterBuilder, pod: Json) -> None:
    if world.chance(0.85):
        mount_claims(world, pod, 3)
    if world.chance(0.3):
        add_pod_volume(world, pod, in_tree_source(world, world.pick(IN_TREE)))
    if world.chance(0.15):
        add_pod_volume(world, pod, world.pick(_UNCOUNTED))
    if world.chance(0.1):
        add_pod_volume(world, pod, _ephemeral("wffc"))


#: Inline volumes that do not count for limits, including in-tree ones that can be migrated.
_UNCOUNTED: tuple[Json, ...] = (
    {"csi": {"driver": CSI, "readOnly": True}},
    {"azureFile": {"secretName": "s", "shareName": "share"}},
    {"vsphereVolume": {"volumePath": "[store] disk"}},
    {"nfs": {"server": "s", "path": "/"}},
)


def _ephemeral(storage_class: str) -> Json:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    return {"ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def _own_claims(world: ClusterBuilder, pod: Json) -> None:
    """Add claims of generic ephemeral volumes: owned by the pod, missing, or with a different owner."""
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" in volume and world.chance(0.8):
            meta = pod["metadata"]
            spec = volume["ephemeral"]["volumeClaimTemplate"]["spec"]
            claim = add_claim(world, meta["namespace"], f"{meta['name']}-{volume['name']}", spec["storageClassName"])
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            if world.chance(0.9):
                claim["metadata"]["ownerReferences"] = [owner]
            if world.chance(0.4):
                bind(claim, add_volume(world, csi_source(world)))


def _binding(world: ClusterBuilder) -> None:
    _classes(world)
    csi_nodes(world, (CSI,), IN_TREE)
    for node in world.nodes:
        for key in world.some(DRIVER_ZONES, 0, 2):
            node["metadata"]["labels"][key] = world.pick(ZONES)
    for _ in range(world.rng.randint(3, 12)):
        _static_volume(world)
    for namespace in world.namespaces:
        for i in range(world.rng.randint(3, 8)):
            _claim_in_some_state(world, namespace, f"claim-{i}")


def _classes(world: ClusterBuilder) -> None:
    add_class(world, "now", CSI, "Immediate")
    add_class(world, "wffc", CSI, "WaitForFirstConsumer")
    add_class(world, "local", NO_PROVISIONER, "WaitForFirstConsumer")
    add_class(
        world,
        "topo",
        CSI,
        "WaitForFirstConsumer",
        allowedTopologies=[_topology(world) for _ in range(world.pick((1, 1, 2)))],
    )
    if world.chance(0.3):
        add_class(world, "unset", CSI, None)
    if world.chance(0.4):
        driver = world.add("CSIDriver", CSI, version="storage.k8s.io/v1", spec={"attachRequired": True})
        driver["spec"]["storageCapacity"] = world.chance(0.7)
        for _ in range(world.rng.randint(0, 3)):
            _capacity(world)


def _topology(world: ClusterBuilder) -> Json:
    expressions = [{"key": ZONE, "values": sorted(world.some(("a", "b", "c"), 1, 2))}]
    if world.chance(0.2):
        expressions.append({"key": "disktype", "values": ["ssd"]})
    if world.chance(0.05):
        expressions = []
    return {"matchLabelExpressions": expressions}


def _capacity(world: ClusterBuilder) -> None:
    obj = world.add(
        "CSIStorageCapacity",
        world.name("capacity"),
        "kube-system",
        version="storage.k8s.io/v1",
        storageClassName=world.pick(("wffc", "topo", "now")),
        capacity=world.pick(("1Gi", "3Gi", "10Gi", "0")),
    )
    if world.chance(0.85):
        obj["nodeTopology"] = world.pick(({}, {"matchLabels": {ZONE: "a"}}, {"matchLabels": {ZONE: "b"}}))
    if world.chance(0.3):
        obj["maximumVolumeSize"] = world.pick(("512Mi", "2Gi"))


def _static_volume(world: ClusterBuilder) -> None:
    storage_class = world.pick(("local", "local", "wffc", "topo", ""))
    volume = add_volume(world, {"local": {"path": "/mnt/a"}}, storage_class, world.rng.randint(1, 4) * GIGA)
    if world.chance(0.8):
        volume["spec"]["nodeAffinity"] = node_affinity(world)
    if world.chance(0.3):
        volume["metadata"]["labels"] = {"tier": world.pick(("gold", "iron"))}
    if world.chance(0.15):
        volume["spec"]["volumeMode"] = "Block"
    if world.chance(0.15):
        volume["status"]["phase"] = world.pick(("Released", "Pending", "Failed"))
    if world.chance(0.08):
        volume["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    if world.chance(0.08):
        volume["spec"]["volumeAttributesClassName"] = "silver"
    if world.chance(0.1):
        volume["metadata"]["annotations"] = {BETA_CLASS: world.pick(("local", "wffc"))}


def _claim_in_some_state(world: ClusterBuilder, namespace: str, name: str) -> None:
    waiting = ("wffc", "wffc", "local", "local", "local", "topo", "topo")
    storage_class = world.pick(waiting if world.chance(0.9) else ("now", "unset", "gone", "", None))
    claim = add_claim(world, namespace, name, storage_class, world.rng.randint(1, 3) * GIGA)
    state = world.pick(("bound", "bound", "bound", "unbound", "unbound", "unbound", "unbound", "prebound", "odd"))
    if state == "bound":
        _bind_to_new_volume(world, claim)
    elif state == "prebound":
        _prebind(world, claim)
    elif state == "odd":
        _spoil(world, claim)
    else:
        _refine(world, claim)


def _bind_to_new_volume(world: ClusterBuilder, claim: Json) -> None:
    source = world.pick(
        (csi_source(world), in_tree_source(world, world.pick(IN_TREE)), {"nfs": {"server": "s", "path": "/"}})
    )
    volume = add_volume(world, source)
    if world.chance(0.7):
        volume["spec"]["nodeAffinity"] = node_affinity(world)
    if world.chance(0.3):
        volume["metadata"]["labels"] = topology_labels(world)
    bind(claim, volume)


def _prebind(world: ClusterBuilder, claim: Json) -> None:
    """Bind a claim or a volume in one direction only, as before the volume controller completes it."""
    meta = claim["metadata"]
    volume = add_volume(world, {"local": {"path": "/mnt/b"}}, world.pick(("local", "wffc")), 5 * GIGA)
    volume["spec"]["claimRef"] = {"name": meta["name"], "namespace": meta["namespace"]}
    if world.chance(0.6):
        volume["spec"]["claimRef"]["uid"] = world.pick((meta["uid"], meta["uid"], "another"))
    if world.chance(0.6):
        volume["spec"]["nodeAffinity"] = node_affinity(world)
    if world.chance(0.3):
        claim["spec"]["volumeName"] = volume["metadata"]["name"]


def _spoil(world: ClusterBuilder, claim: Json) -> None:
    defect = world.pick(("lost", "deleting", "volume gone", "not completed"))
    if defect == "lost":
        claim["spec"]["volumeName"] = "pv-gone"
        claim["status"] = {"phase": "Lost"}
    elif defect == "deleting":
        claim["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    else:
        bind(claim, add_volume(world, csi_source(world)))
        if defect == "volume gone":
            world.objects.pop()
        else:
            del claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"]


def _refine(world: ClusterBuilder, claim: Json) -> None:
    spec, meta = claim["spec"], claim["metadata"]
    if world.chance(0.2):
        spec["selector"] = world.pick(
            (
                {"matchLabels": {"tier": "gold"}},
                {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["iron"]}]},
                {},
            )
        )
    if world.chance(0.12):
        spec["volumeMode"] = world.pick(("Block", None))
    if world.chance(0.12):
        meta["annotations"] = {"volume.kubernetes.io/selected-node": world.pick([*world.node_names(), "gone"])}
    elif world.chance(0.06):
        meta["annotations"] = {BETA_CLASS: world.pick(("local", "wffc", "gone"))}
    if world.chance(0.06):
        spec["volumeAttributesClassName"] = world.pick(("silver", ""))
    if world.chance(0.05):
        spec["resources"] = {}


def _claims(world: ClusterBuilder, pod: Json) -> None:
    if world.chance(0.9):
        mount_claims(world, pod, world.pick((1, 2, 3)))
    if world.chance(0.08):
        add_pod_volume(world, pod, _ephemeral(world.pick(("wffc", "local", "topo", "now"))))


def _zoned(world: ClusterBuilder) -> None:
    beta = "failure-domain.beta.kubernetes.io"
    for node in world.nodes:
        labels = node["metadata"]["labels"]
        if world.chance(0.2) and ZONE in labels:
            labels[f"{beta}/zone"] = labels[ZONE] if world.chance(0.7) else world.pick(("a", "b"))
        if world.chance(0.1):
            labels.pop(ZONE, None)
    add_class(world, "now", CSI, "Immediate")
    add_class(world, "wffc", CSI, "WaitForFirstConsumer")
    for namespace in world.namespaces:
        for i in range(world.rng.randint(3, 7)):
            claim = add_claim(world, namespace, f"zoned-{i}", world.pick(("wffc", "wffc", "now", "", None, "gone")))
            if world.chance(0.85):
                volume = add_volume(world, csi_source(world))
                bind(claim, volume)
                if world.chance(0.9):
                    volume["metadata"]["labels"] = topology_labels(world)
                if world.chance(0.04):
                    world.objects.remove(volume)


def _zoned_claims(world: ClusterBuilder, pod: Json) -> None:
    if claims_in(world, pod["metadata"]["namespace"]):
        mount_claims(world, pod)


FAMILIES = (
    Family("VolumeRestrictions", _exclusive_claims, _shared_disks),
    Family("NodeVolumeLimits", _limits, _many_disks, _own_claims),
    Family("VolumeBinding", _binding, _claims, _own_claims),
    Family("VolumeZone", _zoned, _zoned_claims),
)
