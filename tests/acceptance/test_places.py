"""A node goes only when each of its pods has a place, and then the scheduler gives them these places."""

from functools import partial
from pathlib import Path

import pytest

from deploy.local import manifests
from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

TOLERATIONS = [{"key": "dedicated", "operator": "Exists"}]
TAINTS = [
    {"key": "dedicated", "value": "x", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "x", "effect": "NoExecute"},
    {"key": "wish", "effect": "PreferNoSchedule"},
]


def affinity(*terms: list[Json]) -> Json:
    wanted = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": wanted}}


def asks(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


#: the pods of the victim, largest first: (cpu, what it asks of a node)
PODS: dict[str, tuple[int, Json]] = {
    "large": (700, {}),
    "intolerant": (90, {"tolerations": [{"key": "dedicated", "effect": "NoSchedule", "operator": "Exists"}]}),
    "selector": (80, {"nodeSelector": {"disk": "ssd"}}),
    "in": (70, {"affinity": affinity([asks("zone", "In", "a", "b")])}),
    "not-in": (60, {"affinity": affinity([asks("old", "NotIn", "yes")])}),
    "exists": (50, {"affinity": affinity([asks("net", "Exists")])}),
    "does-not-exist": (40, {"affinity": affinity([asks("broken", "DoesNotExist")])}),
    "greater": (30, {"affinity": affinity([asks("gpus", "Gt", "2"), asks("zone", "Exists")])}),
    "less": (20, {"affinity": affinity([asks("age", "Lt", "5")])}),
    "either": (10, {"affinity": affinity([asks("zone", "In", "nowhere")], [asks("last", "Exists")])}),
}
FITTING = {"disk": "ssd", "zone": "a", "net": "1", "gpus": "4", "age": "3", "last": "1"}
#: the labels of the other node at first
UNFIT = {"disk": "hdd", "zone": "c", "old": "yes", "broken": "1", "gpus": "2", "age": "five"}
NO_CPU, TAINTED = "2 Insufficient cpu", "2 node(s) had untolerated taint(s)"
NO_MATCH = "2 node(s) didn't match Pod's node affinity/selector"
#: the largest pod without a place, and why: what is changed then
MENDED: dict[tuple[str, str], Json] = {
    ("intolerant", TAINTED): {"spec": {"taints": [TAINTS[0], TAINTS[2]]}},
    ("selector", NO_MATCH): {"metadata": {"labels": {"disk": "ssd"}}},
    ("in", NO_MATCH): {"metadata": {"labels": {"zone": "b"}}},
    ("not-in", NO_MATCH): {"metadata": {"labels": {"old": "no"}}},
    ("exists", NO_MATCH): {"metadata": {"labels": {"net": ""}}},
    ("does-not-exist", NO_MATCH): {"metadata": {"labels": {"broken": None}}},
    ("greater", NO_MATCH): {"metadata": {"labels": {"gpus": "3"}}},
    ("less", NO_MATCH): {"metadata": {"labels": {"age": "4"}}},
    ("either", NO_MATCH): {"metadata": {"labels": {"last": "1"}}},
}


def prepare(made: World) -> None:
    """All pods on od-1; the others take none of them; both together have room enough, none has it for the largest."""
    api = made.plane.api
    api.patch("/api/v1/nodes/od-1", {"metadata": {"labels": FITTING}})
    made.cordon("od-2", "od-3")
    pods = {name: {"tolerations": TOLERATIONS, **spec} for name, (_, spec) in PODS.items()}
    made.plane.apply([manifests.deployment(name, 1, cpu=f"{PODS[name][0]}m", **spec) for name, spec in pods.items()])
    made.plane.wait_for(lambda: list(made.pods().values()) == ["od-1"] * len(PODS), "the pods")
    made.cordon("od-2", "od-3", off=False)
    for node in ("od-2", "od-3"):
        fill(made.plane, node)
        api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": UNFIT}, "spec": {"taints": TAINTS}})


def test_a_node_without_pods_stays_where_no_other_could_take_any(cluster: ControlPlane, tmp_path: Path) -> None:
    """The others are cordoned, not Ready, without any condition, and of the control plane; then one of them is not."""
    control_plane = "node-role.kubernetes.io/control-plane"

    def surround(made: World) -> None:
        silent = manifests.node("silent", ready=False)
        silent["status"].pop("conditions")
        master = manifests.node("master", labels={control_plane: ""})
        cluster.apply([manifests.node("broken", ready=False), silent, master])
        made.cordon("od-2")

    with scene(cluster, tmp_path, 2, before=surround) as made:
        body = {"machineId": made.id("od-1"), "decrementDesiredSize": True}
        for path, message in (("/pool/terminate", "terminate machine"), ("/pool/detach", "detach machine")):
            answer = made.post(path, body)
            assert (answer.status_code, answer.json()) == (
                500,
                {
                    "message": f"failed to {message}",
                    "detail": "node od-1: no other node that is Ready and schedulable remains",
                },
            )
        made.cordon("od-2", off=False)
        cluster.wait_for(lambda: made.post("/pool/terminate", body).content == b"", "the drain")
        assert (made.running(), made.desired) == (["od-2"], 1)


def fill(plane: ControlPlane, node: str) -> None:
    everything = [{"operator": "Exists"}]
    name, cpu = f"filler-{node}", "3400m"
    plane.apply([manifests.pod(name, namespace="kube-system", cpu=cpu, nodeName=node, tolerations=everything)])


def test_obstacles_are_told_one_by_one_until_there_is_none(cluster: ControlPlane, tmp_path: Path) -> None:
    with scene(cluster, tmp_path, 3, before=prepare) as made:
        body = {"machineId": made.id("od-1"), "decrementDesiredSize": True}

        def told(pod: str, why: str) -> bool:
            """Whether the answer is that; one from before the last change is passed over."""
            answer = made.post("/pool/terminate", body)
            detail: str = answer.json()["detail"]
            assert (answer.status_code, made.tainted()) == (500, [])
            return detail.startswith(f"node od-1: pod default/{pod}-") and detail.endswith(
                f" nodes are available: {why}"
            )

        cluster.wait_for(lambda: told("large", NO_CPU), "large")
        cluster.api.delete("/api/v1/namespaces/kube-system/pods/filler-od-2", gracePeriodSeconds=0)
        for (pod, why), change in MENDED.items():
            cluster.wait_for(partial(told, pod, why), pod)
            cluster.api.patch("/api/v1/nodes/od-2", change)
        cluster.wait_for(lambda: made.post("/pool/terminate", body).content == b"", "the drain")
        assert (made.running(), made.desired, made.nodes()) == (["od-2", "od-3"], 2, ["od-2", "od-3"])
        cluster.wait_for(lambda: list(made.pods().values()) == ["od-2"] * len(PODS), "the pods to move")
