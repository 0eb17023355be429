"""Tests of what can be bought: what NodePools, MachineSets and groups of Cluster Autoscaler create, and how many."""

from typing import Any, Final

import pytest

from rescheduler.errors import UsageError
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.placement.added_nodes import MOST_BOUGHT
from rescheduler.planning.policy import Policy
from rescheduler.planning.room.additions import Additions
from rescheduler.planning.room.purchases import offered
from rescheduler.planning.what_if.added_spot import AddSpot, add_spot
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, SPOT, ZONE, Manifest, node, pod, snapshot
from tests.planning.room.test_purchases import OF_CLUSTER_API, OF_OPENSHIFT, TYPE, machine_set
from tests.planning.test_node_pools import capacity, pool

ARCH: Final = "kubernetes.io/arch"
LABELS: Final = {SPOT: ""}
OD: Final = node("od", ON_DEMAND, labels={TYPE: "od", ARCH: "amd64"}, zone="a")
ARM: Final = node("arm", ON_DEMAND, labels={TYPE: "arm", ARCH: "arm64"}, cpu="8", zone="b")
#: A spot node of the NodePool.
MEMBER: Final = node("member", labels={TYPE: "od", ARCH: "amd64", "karpenter.sh/nodepool": "spot"}, zone="a")
WITH_GPUS: Final = {**MEMBER, "status": {**MEMBER["status"], "capacity": {"cpu": "4", "example.com/gpu": "2"}}}
#: Any type in any zone, if nothing that creates spot nodes is known.
ANY: Final = {f"add-spot 1 type={kind},zone={zone}": MOST_BOUGHT for kind in ("od", "arm") for zone in "ab"}


def spot_pool(*requirements: Manifest, name: str = "spot", **spec: Any) -> Manifest:
    return pool(name, capacity("spot"), *requirements, labels=spec.pop("labels", LABELS), **spec)


def needs(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator, "values": list(values)}


def created(*kinds: str, group: str = "spot", most: int = MOST_BOUGHT) -> dict[str, int]:
    pairs = (each.split("/") for each in kinds)
    return {f"add-spot 1 type={kind},zone={zone},group={group}": most for kind, zone in pairs}


EVERY: Final = created("od/a", "od/b", "arm/a", "arm/b")

POOLS: Final[dict[str, tuple[list[Manifest], dict[str, int]]]] = {
    "every type in every zone": ([spot_pool()], EVERY),
    "both capacity types": ([pool("spot", capacity("spot", "on-demand"), labels=LABELS)], EVERY),
    "nothing is said about the capacity type: spot comes first": ([pool("spot", labels=LABELS)], EVERY),
    "only on-demand nodes": ([pool("spot", capacity("on-demand"), labels=LABELS)], ANY),
    "a fixed number of nodes": ([spot_pool(replicas=3)], ANY),
    "its nodes have no label of spot nodes": ([spot_pool(labels={})], ANY),
    "a type is excluded": ([spot_pool(needs(TYPE, "NotIn", "arm"))], created("od/a", "od/b")),
    "a type is listed": ([spot_pool(needs(TYPE, "In", "arm", "huge"))], created("arm/a", "arm/b")),
    "another architecture": ([spot_pool(needs(ARCH, "In", "arm64"))], created("arm/a", "arm/b")),
    "a label that its nodes must not have": ([spot_pool(needs(ARCH, "DoesNotExist"))], {}),
    "one zone": ([spot_pool(needs(ZONE, "In", "b"))], created("od/b", "arm/b")),
    "a zone without nodes": ([spot_pool(needs(ZONE, "In", "c"))], created("od/c", "arm/c")),
    "a property that no node shows": ([spot_pool(needs("karpenter.k8s.aws/instance-cpu", "Gt", "3"))], {}),
    "no type of known size": ([spot_pool(needs(TYPE, "In", "huge"))], {}),
    "a label of its own": ([spot_pool(needs("team", "In", "x"))], EVERY),
    "its limit is nearly used": ([MEMBER, spot_pool(limits={"cpu": "10"})], created("od/a", "od/b", most=1)),
    "its limit is used": ([MEMBER, spot_pool(limits={"cpu": "4"})], {}),
    "a limit on what new nodes do not have is exceeded": ([WITH_GPUS, spot_pool(limits={"example.com/gpu": "1"})], {}),
    "a limit on nodes": ([MEMBER, spot_pool(limits={"nodes": "3"})], dict.fromkeys(EVERY, 2)),
    "a limit that cannot be read": ([spot_pool(limits={"cpu": "many"})], {}),
    "the weight decides which of two creates the same": (
        [spot_pool(), spot_pool(name="first", weight=10)],
        created("od/a", "od/b", "arm/a", "arm/b", group="first"),
    ),
    "the one of higher weight is full": ([spot_pool(), spot_pool(name="first", weight=10, limits={"cpu": "1"})], EVERY),
    "an operator that Karpenter does not have": (
        [spot_pool(needs("size", "Foo", "1"), labels=LABELS | {"size": "3"})],
        {},
    ),
    "another has taints": (
        [spot_pool(), spot_pool(name="first", weight=10, taints=[{"key": "gpu", "effect": "NoSchedule"}])],
        EVERY | created("od/a", "od/b", "arm/a", "arm/b", group="first"),
    ),
}


def found(*objects: Manifest) -> dict[str, int]:
    additions = Additions(snapshot([OD, ARM, *objects]), Policy(), CIRCUMSTANCES)
    return {str(offer.change): offer.most for offer in offered(additions, PriceList())}


@pytest.mark.parametrize(("objects", "expected"), POOLS.values(), ids=POOLS)
def test_what_node_pools_create(objects: list[Manifest], expected: dict[str, int]) -> None:
    assert found(*objects) == expected


#: A MachineSet of spot nodes at size 1.
MACHINES: Final = OF_CLUSTER_API | {
    "capacity.cluster-autoscaler.kubernetes.io/labels": f"{SPOT}=",
    "capacity.cluster-autoscaler.kubernetes.io/taints": "gpu=yes:NoSchedule",
    "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
}
MAXIMUM: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"


def machines(kind: str = "MachineSet", replicas: int = 1, **meta: Any) -> Manifest:
    manifest = machine_set(MACHINES | {MAXIMUM: "3"})
    metadata = {**manifest["metadata"], **meta}
    return {**manifest, "kind": kind, "metadata": metadata, "spec": {**manifest["spec"], "replicas": replicas}}


OF_SET: Final = {"add-spot 1 type=m6,zone=a,group=machines/spot-a": 2}
OWNED: Final = [{"kind": "MachineDeployment", "name": "spot", "uid": "1", "controller": True}]
WORKER: Final = node("worker", labels={TYPE: "m6"}, zone="a")
GROUPS: Final = {
    "kind": "AutoscalerGroups",
    "groups": [{"name": "eks-spot-7ec7d2a6-9e4b-4d5c-8d8f-111111111111", "target": 1, "minimum": 0, "maximum": 4}],
}


GROUP: Final = "autoscaling.k8s.io/nodegroup"
TWO_GROUPS: Final = {
    "kind": "AutoscalerGroups",
    "groups": [{"name": "one", "target": 1, "maximum": 1}, {"name": "two", "target": 1, "maximum": 10}],
}


def with_notes(manifest: Manifest, **fields: dict[str, str]) -> Manifest:
    """Return *manifest* with further labels or annotations."""
    meta = manifest["metadata"]
    return {**manifest, "metadata": meta | {key: {**meta.get(key, {}), **value} for key, value in fields.items()}}


OF_MACHINE: Final = "machine.openshift.io/machine"
SETS: Final[dict[str, tuple[list[Manifest], dict[str, int]]]] = {
    "a MachineSet without nodes": ([machines()], OF_SET),
    "a MachineDeployment": ([machines("MachineDeployment")], OF_SET),
    "a MachineSet of a MachineDeployment": ([machines(ownerReferences=OWNED)], ANY),
    "at its largest size": ([machines(replicas=3)], {}),
    "of nodes that are not spot nodes": ([machine_set(OF_OPENSHIFT)], ANY | {
        f"add-spot 1 type=m6,zone={zone}": MOST_BOUGHT for zone in "ab"
    }),
    "with a node of Cluster API": (
        [machines(), with_notes(WORKER, annotations={"cluster.x-k8s.io/owner-name": "spot-a"})],
        {"add-spot 1 like worker": 2},
    ),
    "with a node of OpenShift, at its largest size": (
        [machines(replicas=3), with_notes(WORKER, annotations={OF_MACHINE: "machines/spot-a-8xk2p"})],
        {},
    ),
    "with a node of its MachineDeployment": (
        [machines("MachineDeployment"), with_notes(WORKER, annotations={"cluster.x-k8s.io/owner-name": "spot-a-5df"})],
        {"add-spot 1 like worker": 2},
    ),
    "beside a node that nothing creates": ([machines(), WORKER], OF_SET | {"add-spot 1 like worker": MOST_BOUGHT}),
    "beside a full one whose name begins alike": (
        [
            machines(name="spot", replicas=3),
            machines(),
            with_notes(WORKER, annotations={"cluster.x-k8s.io/owner-name": "spot-a"}),
        ],
        {"add-spot 1 like worker": 2},
    ),
    "of another namespace": (
        [machines(replicas=3), with_notes(WORKER, annotations={OF_MACHINE: "y/spot-a-8xk2p"})],
        {"add-spot 1 like worker": MOST_BOUGHT},
    ),
    "a full group beside one with room of the same nodes": (
        [TWO_GROUPS, *(node(name, labels={TYPE: "m6", GROUP: name}, zone="a") for name in ("one", "two"))],
        {"add-spot 1 like two": 9},
    ),
    "a group of the cloud provider without nodes": (
        [{"kind": "AutoscalerGroups", "groups": [{"name": "new", "maximum": 2, "template": WORKER}]}],
        {"add-spot 1 type=m6,zone=a,group=new": 2},
    ),
    "a group of the cloud provider that is not of spot nodes": (
        [{"kind": "AutoscalerGroups", "groups": [{"name": "new", "maximum": 2, "template": OD}]}],
        ANY,
    ),
    "a group of Cluster Autoscaler": (
        [GROUPS, with_notes(WORKER, labels={"eks.amazonaws.com/nodegroup": "spot"})],
        {"add-spot 1 like worker": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "expected"), SETS.values(), ids=SETS)
def test_what_machine_sets_and_groups_create(objects: list[Manifest], expected: dict[str, int]) -> None:
    assert found(*objects) == expected


def test_new_nodes_are_as_the_node_pool_creates_them() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    requirements = needs("team", "In", "x"), needs(ARCH, "In", "arm64")
    agent = pod("agent-1", "member", owner="DaemonSet")
    cluster = snapshot([OD, ARM, MEMBER, agent, spot_pool(*requirements, taints=[taint])])
    [name] = add_spot(cluster, Policy(), AddSpot(1, type="arm", zone="a", group="spot"))
    new = cluster.nodes.nodes[cluster.nodes.row[name]]
    assert new is not None
    assert {TYPE: "arm", ARCH: "arm64", ZONE: "a", "team": "x", "karpenter.sh/nodepool": "spot"}.items() <= (
        new.metadata.labels.items()
    )
    assert [each.key for each in new.spec.taints] == ["team"]
    assert new.status.allocatable["cpu"] == "8"
    assert [*cluster.pods_on[name]] == [f"default/agent-1-{name}"]


DRIVER: Final = "topology.ebs.csi.aws.com/zone"
ZONE_ID: Final = "topology.k8s.aws/zone-id"


@pytest.mark.parametrize("zones", ["a", "ab"])
@pytest.mark.parametrize("group", ["spot", ""], ids=["of a NodePool", "of a type"])
def test_the_labels_of_volume_drivers_and_the_zone_id_follow_the_zone(zones: str, group: str) -> None:
    """The nodes of the NodePool are in *zones*, and a node of another type is in zone b."""
    ids = {"a": "use1-az4", "b": "use1-az6"}
    members = [
        with_notes(
            node(f"m-{zone}", labels=MEMBER["metadata"]["labels"], zone=zone), labels={DRIVER: zone, ZONE_ID: ids[zone]}
        )
        for zone in zones
    ]
    other = with_notes(ARM, labels={DRIVER: "b", ZONE_ID: ids["b"]})
    cluster = snapshot([other, *members, spot_pool()])
    [name] = add_spot(cluster, Policy(), AddSpot(1, type="od", zone="b", group=group))
    new = cluster.nodes.nodes[cluster.nodes.row[name]]
    assert new is not None
    assert [new.metadata.labels.get(key) for key in (ZONE, DRIVER, ZONE_ID)] == ["b", "b", ids["b"]]


def test_new_nodes_are_as_the_machine_set_creates_them() -> None:
    cluster = snapshot([OD, ARM, machines()])
    [name] = add_spot(cluster, Policy(), AddSpot(1, type="m6", zone="a", group="machines/spot-a"))
    new = cluster.nodes.nodes[cluster.nodes.row[name]]
    assert new is not None
    assert [(each.key, each.value, each.effect) for each in new.spec.taints] == [("gpu", "yes", "NoSchedule")]
    assert new.status.allocatable["nvidia.com/gpu"] == "2000m"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (AddSpot(1, type="od", zone="a", group="spots"), "no NodePool or MachineSet spots .* did you mean spot"),
        (AddSpot(1, type="arm", zone="a", group="spot"), "creates no such nodes: expected type=od,zone=a, type=od"),
    ],
)
def test_a_group_that_does_not_create_such_nodes_is_an_error(change: AddSpot, message: str) -> None:
    cluster = snapshot([OD, ARM, spot_pool(needs(TYPE, "In", "od"))])
    with pytest.raises(UsageError, match=message):
        add_spot(cluster, Policy(), change)


def test_groups_of_one_label_are_offered_by_their_sizes() -> None:
    """The templates of both groups have only the label of spot nodes."""
    templates = [node(name, cpu=cpu) for name, cpu in (("small", "2"), ("large", "32"))]
    for each in templates:
        each["metadata"]["labels"] = {SPOT: ""}
    named = [{"name": each["metadata"]["name"], "maximum": 5, "template": each} for each in templates]
    cluster = snapshot([OD, {"kind": "AutoscalerGroups", "groups": named}])
    found = offered(Additions(cluster, Policy(), CIRCUMSTANCES), PriceList())
    assert {offer.change.group for offer in found} == {"small", "large"}
