"""The cluster of the demo: five on-demand nodes with many kinds of pods, and eight empty spot nodes.

The on-demand nodes are machines of a cloudpool.
"""

from typing import Any, Final

from devcluster.manifests import (
    ON_DEMAND,
    ZONES,
    Json,
    daemonset,
    deployment,
    job,
    pdb,
    pod,
    spot,
    statefulset,
)
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER

SPOT_NODES: Final = 8
ON_DEMAND_NODES: Final = 5
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


#: The pool of the nodes on-demand-1 …, with the PreferNoSchedule taint that the README recommends.
POOL: Final[Json] = {
    "name": "on-demand",
    "labels": {ON_DEMAND: "true"},
    "taints": [{"key": ON_DEMAND, "value": "true", "effect": "PreferNoSchedule"}],
}


def workloads() -> list[Json]:
    """Return workloads for three drainable nodes, one blocked by a bare pod and a budget, and one by a pinned pod."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "api"}},
    }
    pinned = prefers(5)["nodeAffinity"] | {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": ON_DEMAND, "operator": "Exists"}]}]
        }
    }
    return [
        daemonset("agent", cpu="50m"),
        deployment("web", 6, affinity=prefers(1)),
        pdb("web", max_unavailable=2),
        deployment("api", 3, topologySpreadConstraints=[spread]),
        statefulset("db", 3, affinity=prefers(2)),
        pdb("db", max_unavailable=1),
        deployment("cache", 3, affinity=apart("cache")),
        job("report", 2, affinity=prefers(3), annotations={COMPLETE_AFTER: NEVER}),
        pod("debug", affinity=prefers(4)),
        deployment("ledger", 2, affinity=prefers(4)),
        pdb("ledger", max_unavailable=0),
        deployment("licensed", 1, affinity={"nodeAffinity": pinned}),
    ]


PODS: Final = 6 + 3 + 3 + 3 + 2 + 1 + 2 + 1  #: all pods of the workloads except those of the DaemonSet


def prefers(number: int) -> Json:
    """Return an affinity that prefers the on-demand node with that number."""
    here = {"key": HOST, "operator": "In", "values": [f"on-demand-{number}"]}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def apart(app: str) -> Json:
    """Return an anti-affinity that allows one pod of *app* per node."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def begin(plane: ControlPlane) -> None:
    """Create the workloads on on-demand nodes, as during a shortage of spot nodes, then uncordon the spot nodes."""
    plane.wait_for(lambda: len(usable(plane)) == ON_DEMAND_NODES, "the machines to join")
    for number in range(ON_DEMAND_NODES):
        labels = {ZONE: ZONES[number % len(ZONES)]}
        plane.api.patch(f"/api/v1/nodes/on-demand-{number + 1}", {"metadata": {"labels": labels}})
    plane.apply(spot(f"spot-{number + 1}", labels={ZONE: ZONES[number % len(ZONES)]}) for number in range(SPOT_NODES))
    occupy(plane, ON_DEMAND_NODES + SPOT_NODES)


def occupy(plane: ControlPlane, nodes: int) -> None:
    """Create the workloads on the on-demand nodes, as during a shortage of spot nodes; the cluster has *nodes*."""
    plane.wait_for(lambda: len(usable(plane)) == nodes, "Ready nodes")
    _cordon_spot(plane, unschedulable=True)
    plane.apply(workloads())
    plane.wait_for(lambda: len(running(plane)) == PODS, "all pods running on on-demand nodes")
    _cordon_spot(plane, unschedulable=None)
    plane.wait_for(lambda: len(usable(plane)) == nodes, "schedulable spot nodes")


def running(plane: ControlPlane) -> dict[str, str]:
    """Return the node of each Ready pod by pod name, without pods of DaemonSets."""
    return {name(pod): pod["spec"]["nodeName"] for pod in movable(plane) if _is(pod, "Ready")}


def movable(plane: ControlPlane) -> list[Json]:
    """Return all pods except those of DaemonSets."""
    pods = plane.api.items("/api/v1/pods")
    return [pod for pod in pods if _owner(pod) != "DaemonSet"]


def name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def workload(pod: Json) -> str:
    """Return the name of the pod's workload, from its label."""
    return str(pod["metadata"]["labels"]["app"])


def _owner(pod: Json) -> str:
    owners: list[dict[str, Any]] = pod["metadata"].get("ownerReferences", [])
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def _is(pod: Json, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in pod["status"].get("conditions", ()))


def usable(plane: ControlPlane) -> list[Json]:
    """Return Ready nodes without hard taints; the taint of a new node is removed after it becomes Ready."""
    return [
        node
        for node in plane.api.items("/api/v1/nodes")
        if _is(node, "Ready") and all(taint["effect"] == "PreferNoSchedule" for taint in node["spec"].get("taints", ()))
    ]


def _cordon_spot(plane: ControlPlane, *, unschedulable: bool | None) -> None:
    for node in plane.api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/spot-worker"):
        plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})
