"""A node is removed only when each of its pods has a placement, and the scheduler then binds the pods accordingly."""

from functools import partial
from pathlib import Path

import pytest

from devcluster import manifests
from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import ProxyWorld

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


def requires(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


#: The pods of the victim, largest first: CPU request and placement constraints.
PODS: dict[str, tuple[int, Json]] = {
    "large": (700, {}),
    "intolerant": (90, {"tolerations": [{"key": "dedicated", "effect": "NoSchedule", "operator": "Exists"}]}),
    "selector": (80, {"nodeSelector": {"disk": "ssd"}}),
    "in": (70, {"affinity": affinity([requires("zone", "In", "a", "b")])}),
    "not-in": (60, {"affinity": affinity([requires("old", "NotIn", "yes")])}),
    "exists": (50, {"affinity": affinity([requires("net", "Exists")])}),
    "does-not-exist": (40, {"affinity": affinity([requires("broken", "DoesNotExist")])}),
    "greater": (30, {"affinity": affinity([requires("gpus", "Gt", "2"), requires("zone", "Exists")])}),
    "less": (20, {"affinity": affinity([requires("age", "Lt", "5")])}),
    "either": (10, {"affinity": affinity([requires("zone", "In", "nowhere")], [requires("last", "Exists")])}),
}
FITTING = {"disk": "ssd", "zone": "a", "net": "1", "gpus": "4", "age": "3", "last": "1"}
#: The initial labels of the other nodes.
UNFIT_LABELS = {"disk": "hdd", "zone": "c", "old": "yes", "broken": "1", "gpus": "2", "age": "five"}
NO_CPU, TAINTED = "2 Insufficient cpu", "2 node(s) had untolerated taint(s)"
NO_MATCH = "2 node(s) didn't match Pod's node affinity/selector"
#: By the largest pod without a placement and the reason: the change that resolves it.
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


def prepare(env: ProxyWorld) -> None:
    """Put all pods on od-1. Labels and taints of the other nodes fit no pod, and none has room for the largest pod."""
    api = env.plane.api
    api.patch("/api/v1/nodes/od-1", {"metadata": {"labels": FITTING}})
    env.cordon("od-2", "od-3")
    pods = {name: {"tolerations": TOLERATIONS, **spec} for name, (_, spec) in PODS.items()}
    env.plane.apply([manifests.deployment(name, 1, cpu=f"{PODS[name][0]}m", **spec) for name, spec in pods.items()])
    env.plane.wait_for(lambda: list(env.pods().values()) == ["od-1"] * len(PODS), "the pods")
    env.cordon("od-2", "od-3", off=False)
    for node in ("od-2", "od-3"):
        fill(env.plane, node)
        api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": UNFIT_LABELS}, "spec": {"taints": TAINTS}})


def test_an_empty_node_is_kept_if_no_other_node_is_usable(cluster: ControlPlane, tmp_path: Path) -> None:
    """The other nodes are cordoned, not Ready, without conditions, or control plane nodes; then one is uncordoned."""
    control_plane = "node-role.kubernetes.io/control-plane"

    def surround(env: ProxyWorld) -> None:
        silent = manifests.node("silent", ready=False)
        silent["status"].pop("conditions")
        master = manifests.node("master", labels={control_plane: ""})
        cluster.apply([manifests.node("broken", ready=False), silent, master])
        env.cordon("od-2")

    with scene(cluster, tmp_path, 2, before=surround) as env:
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}
        for path, message in (("/pool/terminate", "terminate machine"), ("/pool/detach", "detach machine")):
            response = env.post(path, body)
            assert (response.status_code, response.json()) == (
                500,
                {
                    "message": f"failed to {message}",
                    "detail": "node od-1: no other node that is Ready and schedulable remains",
                },
            )
        env.cordon("od-2", off=False)
        cluster.wait_for(lambda: env.post("/pool/terminate", body).content == b"", "the drain")
        assert (env.running(), env.desired) == (["od-2"], 1)


def fill(plane: ControlPlane, node: str) -> None:
    everything = [{"operator": "Exists"}]
    name, cpu = f"filler-{node}", "3400m"
    plane.apply([manifests.pod(name, namespace="kube-system", cpu=cpu, nodeName=node, tolerations=everything)])


def test_obstacles_are_reported_one_by_one_until_none_is_left(cluster: ControlPlane, tmp_path: Path) -> None:
    with scene(cluster, tmp_path, 3, before=prepare) as env:
        body = {"machineId": env.id("od-1"), "decrementDesiredSize": True}

        def reported(pod: str, why: str) -> bool:
            """Return whether the response reports that; it may still be based on the state before the last change."""
            response = env.post("/pool/terminate", body)
            detail: str = response.json()["detail"]
            assert (response.status_code, env.tainted()) == (500, [])
            return detail.startswith(f"node od-1: pod default/{pod}-") and detail.endswith(
                f" nodes are available: {why}"
            )

        cluster.wait_for(lambda: reported("large", NO_CPU), "large")
        cluster.api.delete("/api/v1/namespaces/kube-system/pods/filler-od-2", gracePeriodSeconds=0)
        for (pod, why), change in MENDED.items():
            cluster.wait_for(partial(reported, pod, why), pod)
            cluster.api.patch("/api/v1/nodes/od-2", change)
        cluster.wait_for(lambda: env.post("/pool/terminate", body).content == b"", "the drain")
        assert (env.running(), env.desired, env.nodes()) == (["od-2", "od-3"], 2, ["od-2", "od-3"])
        cluster.wait_for(lambda: list(env.pods().values()) == ["od-2"] * len(PODS), "the pods to move")
