"""Changing nodes: on-demand nodes are machines of a reference cloudpool, spot nodes can be interrupted at any time.

A simple autoscaler adds a node for unschedulable pods and removes idle nodes.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from devcluster import manifests
from devcluster.api import Json
from devcluster.cloudpool.errors import PoolError
from devcluster.cloudpool.pool import ReferencePool
from devcluster.errors import ApiError
from devcluster.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT
from rescheduler.clock import SystemClock

POOL: Final = "od"
INTERRUPTION: Final = "aws-node-termination-handler/spot-itn"
GUARD: Final = "guard"  #: Deployment whose pods must not be evicted
MOST_SPOT: Final = 9
LEAST_SPOT: Final = 3
MOST_ON_DEMAND: Final = 6
FEW_ON_DEMAND: Final = 4
IDLE_SECONDS: Final = 25.0
PENDING_SECONDS: Final = 4.0


@dataclass(slots=True)
class ChangingNodes:
    """The nodes. `step` acts as autoscaler and garbage collector; call it every few seconds."""

    plane: ControlPlane
    rng: Random
    pool: ReferencePool
    spot_count: int = 0
    pending_since: dict[str, float] = field(default_factory=dict)  #: start time by pod UID
    idle_since: dict[str, float] = field(default_factory=dict)  #: start time by node name
    relabeled: set[str] = field(default_factory=set)  #: machines of the pool that have the label of spot nodes

    def add_spot(self) -> str:
        if len(self.spot()) >= MOST_SPOT:
            return ""
        self.spot_count += 1
        self.plane.apply([manifests.spot(f"spot-{self.spot_count}", allocatable={"cpu": "3"})])
        return f"add spot node spot-{self.spot_count}"

    def add_on_demand(self) -> str:
        size = self.pool.size()
        if size["allocated"] >= MOST_ON_DEMAND:
            return ""
        self.pool.set_size(size["desiredSize"] + 1)
        return f"add an on-demand machine ({size['desiredSize'] + 1} wanted)"

    def spot(self) -> list[str]:
        return [name for name in self._names(manifests.SPOT) if name not in self.relabeled]

    def on_demand(self) -> list[str]:
        return self._names(manifests.ON_DEMAND)

    def relabel(self, name: str) -> None:
        """Give an on-demand node the label of spot nodes in place of its own."""
        self.relabeled.add(name)
        self._unless_gone("PATCH", name, {"metadata": {"labels": {manifests.ON_DEMAND: None, manifests.SPOT: "true"}}})

    def label_back(self, name: str) -> None:
        self._unless_gone("PATCH", name, {"metadata": {"labels": {manifests.ON_DEMAND: "true", manifests.SPOT: None}}})
        self.relabeled.discard(name)

    def notice(self, name: str) -> None:
        """Add the taint that announces an interruption."""
        taint = {"key": INTERRUPTION, "effect": "NoSchedule"}
        self._unless_gone("PATCH", name, {"spec": {"taints": [taint]}})

    def take_away(self, name: str) -> None:
        """Delete a spot node and its pods."""
        for pod in self.plane.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={name}"):
            self._delete_pod(pod)
        self.plane.api.delete(f"/api/v1/nodes/{name}")

    def push_back(self, count: int) -> str:
        """Delete some pods on spot while spot is cordoned, so that they return to on-demand nodes."""
        spot = set(self.spot())
        pods = [
            pod
            for pod in self.plane.api.items("/api/v1/pods")
            if pod["spec"].get("nodeName") in spot
            and "app" in pod["metadata"].get("labels", {})
            and pod["metadata"]["labels"]["app"] != GUARD
        ]
        if not pods:
            return ""
        self.cordon(closed=True)
        added = self.add_on_demand() if len(self.on_demand()) < FEW_ON_DEMAND else ""
        chosen = self.rng.sample(sorted(pods, key=lambda pod: pod["metadata"]["name"]), min(count, len(pods)))
        for pod in chosen:
            self._delete_pod(pod)
        return f"push {len(chosen)} pods back to on-demand nodes" + (f", {added}" if added else "")

    def drained(self) -> list[str]:
        """Return the nodes that are being drained."""
        return [
            node["metadata"]["name"]
            for node in self.plane.api.items("/api/v1/nodes")
            if any(taint["key"] == DRAIN_TAINT.key for taint in node["spec"].get("taints", ()))
        ]

    def cordon(self, *, closed: bool) -> None:
        for name in self.spot():
            self._unless_gone("PATCH", name, {"spec": {"unschedulable": True if closed else None}})

    def step(self) -> list[str]:
        """Add a node for unschedulable pods; remove idle nodes, and pods of deleted nodes."""
        now = SystemClock().monotonic()
        pods = self.plane.api.items("/api/v1/pods")
        nodes = {node["metadata"]["name"]: node for node in self.plane.api.items("/api/v1/nodes")}
        for pod in pods:
            if (name := pod["spec"].get("nodeName")) and name not in nodes:
                self._delete_pod(pod)
        return [done for done in (self._grow(pods, now), *self._shrink(pods, nodes, now)) if done]

    def _grow(self, pods: list[Json], now: float) -> str:
        waiting = {pod["metadata"]["uid"] for pod in pods if _unschedulable(pod)}
        self.pending_since = {uid: self.pending_since.get(uid, now) for uid in waiting}
        long = {uid for uid, since in self.pending_since.items() if now >= since + PENDING_SECONDS}
        if not long:
            return ""
        self.pending_since = dict.fromkeys(waiting, now)
        if all(pod["spec"].get("nodeSelector") for pod in pods if pod["metadata"]["uid"] in long):
            done = self.add_on_demand()
            return f"autoscaler: {done}" if done else ""
        first, second = self.add_spot, self.add_on_demand
        if self.rng.random() < 0.25:
            first, second = second, first
        done = first() or second()
        return f"autoscaler: {done}" if done else ""

    def _shrink(self, pods: list[Json], nodes: dict[str, Json], now: float) -> list[str]:
        busy = {pod["spec"].get("nodeName") for pod in pods}
        ours = {name for name, node in nodes.items() if _scaled(node)}
        idle = ours - busy
        self.idle_since = {name: self.idle_since.get(name, now) for name in idle}
        long = sorted(name for name, since in self.idle_since.items() if now >= since + IDLE_SECONDS)
        done = [self._free_guards(pods)]
        for name in long[:1]:
            del self.idle_since[name]
            if name.startswith(POOL):
                done.append(self._end_machine(name))
            elif len(self.spot()) > LEAST_SPOT:
                self.plane.api.delete(f"/api/v1/nodes/{name}")
                done.append(f"autoscaler: remove idle node {name}")
        return done

    def _free_guards(self, pods: list[Json]) -> str:
        """Delete a guard pod from time to time, as its owner would; otherwise guards block on-demand nodes forever."""
        guards = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == GUARD]
        here = [pod for pod in guards if pod["spec"].get("nodeName", "").startswith(POOL)]
        if not here or self.rng.random() > 0.02:
            return ""
        self._delete_pod(here[0])
        return "the owner of the guards moves one"

    def _end_machine(self, name: str) -> str:
        now = SystemClock().now()
        machine = next(
            (candidate for candidate in self.pool.machines() if candidate.name == name and candidate.allocated(now)),
            None,
        )
        if machine is None:
            return ""
        try:
            self.pool.terminate(machine.id(now), decrement=True)
        except PoolError as error:
            return f"autoscaler: the machine of {name} is not removed: {error}"
        return f"autoscaler: remove idle machine {name}"

    def _names(self, label: str) -> list[str]:
        nodes = self.plane.api.items("/api/v1/nodes", labelSelector=label)
        return sorted(node["metadata"]["name"] for node in nodes)

    def _delete_pod(self, pod: Json) -> None:
        meta = pod["metadata"]
        self.plane.api.delete(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", gracePeriodSeconds=0)

    def _unless_gone(self, method: str, name: str, change: Json) -> None:
        try:
            self.plane.api.request(method, f"/api/v1/nodes/{name}", change, "application/merge-patch+json")
        except ApiError as error:
            if error.status != 404:
                raise


def _unschedulable(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def _scaled(node: Json) -> bool:
    """Return whether the autoscaler may remove the node; it ignores nodes that are being drained."""
    labels, taints = node["metadata"]["labels"], node["spec"].get("taints", ())
    ours = manifests.SPOT in labels or manifests.ON_DEMAND in labels
    return ours and all(taint["effect"] == "PreferNoSchedule" for taint in taints)
