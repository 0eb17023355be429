"""The cluster of the demo: five on-demand nodes with all kinds of pods, eight spot nodes with room.

The on-demand nodes are machines of a cloudpool.
"""

from typing import Any, Final

from deploy.local.manifests import (
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
from deploy.local.plane import ControlPlane
from deploy.local.stages import COMPLETE_AFTER, NEVER

SPOT_NODES: Final = 8
ON_DEMAND_NODES: Final = 5
HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"


#: The pool of the on-demand nodes on-demand-1 …, with the PreferNoSchedule taint that the README asks for.
POOL: Final[Json] = {
    "name": "on-demand",
    "labels": {ON_DEMAND: "true"},
    "taints": [{"key": ON_DEMAND, "value": "true", "effect": "PreferNoSchedule"}],
}


def workloads() -> list[Json]:
    """Three nodes that can be emptied, one with a bare pod and a budget of none, one with a pod bound to it."""
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


PODS: Final = 6 + 3 + 3 + 3 + 2 + 1 + 2 + 1  #: beside the DaemonSet's


def prefers(number: int) -> Json:
    """An affinity that starts pods on the on-demand node of that number, and lets them go elsewhere."""
    here = {"key": HOST, "operator": "In", "values": [f"on-demand-{number}"]}
    term = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}


def apart(app: str) -> Json:
    """No two pods of *app* on one node."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def begin(plane: ControlPlane) -> None:
    """Fill the cluster, with everything on on-demand nodes, as after a shortage of spot; then open spot."""
    plane.wait_for(lambda: len(usable(plane)) == ON_DEMAND_NODES, "the machines to join")
    for number in range(ON_DEMAND_NODES):
        labels = {ZONE: ZONES[number % len(ZONES)]}
        plane.api.patch(f"/api/v1/nodes/on-demand-{number + 1}", {"metadata": {"labels": labels}})
    plane.apply(spot(f"spot-{number + 1}", labels={ZONE: ZONES[number % len(ZONES)]}) for number in range(SPOT_NODES))
    plane.wait_for(lambda: len(usable(plane)) == ON_DEMAND_NODES + SPOT_NODES, "Ready nodes")
    _cordon_spot(plane, unschedulable=True)
    plane.apply(workloads())
    plane.wait_for(lambda: len(running(plane)) == PODS, "all pods running on on-demand nodes")
    _cordon_spot(plane, unschedulable=None)
    plane.wait_for(lambda: len(usable(plane)) == ON_DEMAND_NODES + SPOT_NODES, "open spot nodes")


def running(plane: ControlPlane) -> dict[str, str]:
    """Pods that are Ready → their nodes; those of DaemonSets belong to their nodes and are left out."""
    return {name(one): one["spec"]["nodeName"] for one in movable(plane) if _is(one, "Ready")}


def movable(plane: ControlPlane) -> list[Json]:
    """All pods but those of DaemonSets."""
    found = plane.api.items("/api/v1/pods")
    return [one for one in found if _owner(one) != "DaemonSet"]


def name(one: Json) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"


def workload(one: Json) -> str:
    """What the pod belongs to, by its label."""
    return str(one["metadata"]["labels"]["app"])


def _owner(one: Json) -> str:
    owners: list[dict[str, Any]] = one["metadata"].get("ownerReferences", [])
    return next((str(owner["kind"]) for owner in owners if owner.get("controller")), "")


def _is(one: Json, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in one["status"].get("conditions", ()))


def usable(plane: ControlPlane) -> list[Json]:
    """Ready nodes whose hard taints are gone; the taint of a new node goes a moment after it is Ready."""
    return [
        node
        for node in plane.api.items("/api/v1/nodes")
        if _is(node, "Ready") and all(taint["effect"] == "PreferNoSchedule" for taint in node["spec"].get("taints", ()))
    ]


def _cordon_spot(plane: ControlPlane, *, unschedulable: bool | None) -> None:
    for node in plane.api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/spot-worker"):
        plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})
