"""Kubelets, which start and end pods, and the controllers of nodes: what happens to a node whose machine is gone."""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rescheduler.simulation.api import NODE_LEASES, ApiServer
from rescheduler.simulation.eviction import is_ready
from rescheduler.simulation.more_workloads import tolerates
from rescheduler.simulation.reconciling import finished, with_condition
from rescheduler.simulation.requests import Target
from rescheduler.simulation.store import Json, StoredChange, controller_of, key_of

#: Seconds without a heartbeat until a node counts as not Ready (``--node-monitor-grace-period``).
_GRACE_SECONDS: Final = 50.0
#: Seconds from then on until the cloud controller has deleted the Node of a machine that is gone.
_CLOUD_SECONDS: Final = 15.0
#: Seconds until the pods of a node that is gone are removed (``podgc``).
_ORPHAN_SECONDS: Final = 20.0
#: Seconds between two heartbeats of a kubelet.
_HEARTBEAT_SECONDS: Final = 10.0

_UNREACHABLE: Final = "node.kubernetes.io/unreachable"


@dataclass(frozen=True, slots=True)
class PodTimes:
    """How long pods take, in seconds, by distributions."""

    start: Callable[[random.Random], float] = lambda source: 2.0 + source.lognormvariate(1.6, 0.6)
    end: Callable[[random.Random], float] = lambda source: 0.5 + source.lognormvariate(0.7, 0.9)
    job: Callable[[random.Random], float] = lambda source: 30.0 + source.expovariate(1 / 600.0)
    flaps_per_pod_day: float = 0.0  #: how often a pod is not Ready for some seconds
    refused: float = 0.0  #: the share of pods that a kubelet rejects


class Kubelets:
    """The kubelets of all nodes."""

    def __init__(self, server: ApiServer, times: PodTimes) -> None:
        self._server = server
        self._store = server.store
        self._engine = server.store.engine
        self._times = times
        self._random = self._engine.random("kubelets")
        self.dead: dict[str, float] = {}  #: UIDs of nodes whose kubelets do not run, and since when
        self._gone: set[str] = set()  # UIDs of nodes whose machines are gone
        #: Returns seconds until a pod is Ready, or None for the distribution.
        self.start_seconds: Callable[[Json], float | None] = lambda _: None
        server.virtual = self._heartbeat
        self._store.listen("pods", self._pod_changed)
        if times.flaps_per_pod_day:
            self._engine.every(60.0, self._flap)

    # Pods

    def _pod_changed(self, change: StoredChange) -> None:
        pod, before = change.after.object, change.before
        if change.type == "DELETED" or not pod["spec"].get("nodeName"):
            return
        uid = pod["metadata"]["uid"]
        if before is None or not before["spec"].get("nodeName"):
            if pod.get("status", {}).get("phase", "Pending") == "Pending":
                self._admit(pod)
            elif before is None:
                return
        deleting = pod["metadata"].get("deletionGracePeriodSeconds")
        if deleting is not None and (
            before is None or before["metadata"].get("deletionGracePeriodSeconds") != deleting
        ):
            seconds = min(self._times.end(self._random), max(float(deleting), 0.1))
            self._engine.after(seconds, lambda: self._end(key_of(pod), uid))

    def _admit(self, pod: Json) -> None:
        key, uid = key_of(pod), pod["metadata"]["uid"]
        if self._times.refused and self._random.random() < self._times.refused:
            self._engine.after(0.5, lambda: self._fail(key, uid, "OutOfcpu"))
            return
        given = self.start_seconds(pod)
        seconds = self._times.start(self._random) if given is None else given
        if seconds != float("inf"):
            self._engine.after(seconds, lambda: self._start(key, uid))

    def current(self, key: str, uid: str) -> Json | None:
        """Return the pod if it still exists and its kubelet runs."""
        if (pod := self._store.same("pods", key, uid)) is None:
            return None
        node = self._store.get("nodes", pod["spec"].get("nodeName", ""))
        return None if node is None or node["metadata"]["uid"] in self.dead else pod

    def _start(self, key: str, uid: str) -> None:
        pod = self.current(key, uid)
        if pod is None or pod["metadata"].get("deletionTimestamp") or finished(pod):
            return
        now = self._engine.timestamp
        self._store.patch("pods", key, {"status": {"startTime": now, **_running(pod, now, restarts=0)}})
        owner = controller_of(pod)
        if owner is not None and owner["kind"] == "Job":
            self._engine.after(self._times.job(self._random), lambda: self._finish(key, uid))

    def _finish(self, key: str, uid: str) -> None:
        pod = self.current(key, uid)
        if pod is not None and not finished(pod):
            conditions = with_condition(pod, self._engine.timestamp, "Ready", "False", "PodCompleted", "")
            self._store.patch("pods", key, {"status": {"phase": "Succeeded", "conditions": conditions}})

    def _fail(self, key: str, uid: str, reason: str) -> None:
        pod = self.current(key, uid)
        if pod is not None:
            conditions = with_condition(pod, self._engine.timestamp, "Ready", "False", reason, "")
            status = {"phase": "Failed", "reason": reason, "conditions": conditions}
            self._store.patch("pods", key, {"status": status})

    def _end(self, key: str, uid: str) -> None:
        if self.current(key, uid) is not None:
            self._store.delete("pods", key)

    def _flap(self) -> None:
        """Let some pods be not Ready for a while."""
        share = self._times.flaps_per_pod_day / (24 * 60)
        for key in list(self._store.tables["pods"]):
            if self._random.random() < share:
                pod = self._store.get("pods", key)
                if pod is not None and is_ready(pod):
                    self.set_ready(pod, ready=False)
                    uid = pod["metadata"]["uid"]
                    self._engine.after(self._random.uniform(3, 30), partial(self._recover, key, uid))

    def _recover(self, key: str, uid: str) -> None:
        pod = self.current(key, uid)
        if pod is not None and not is_ready(pod) and pod["status"].get("phase") == "Running":
            self.set_ready(pod, ready=True)

    def set_ready(self, pod: Json, *, ready: bool) -> None:
        now = self._engine.timestamp
        conditions = with_condition(pod, now, "Ready", str(ready), "" if ready else "ContainersNotReady", "")
        self._store.patch("pods", key_of(pod), {"status": {"conditions": conditions}})

    # Nodes

    def _heartbeat(self, target: Target) -> Json | None:
        """Return the Lease of a kubelet, whose renewals are not stored."""
        if target.plural != "leases" or target.namespace != NODE_LEASES:
            return None
        node = self._store.get("nodes", target.name)
        if node is None:
            return None
        uid, now = node["metadata"]["uid"], self._engine.now
        alive = self.dead.get(uid, now)
        renewed = alive - alive % _HEARTBEAT_SECONDS
        at = self._engine.time.timestamp() - (now - renewed)
        text = f"{dt.datetime.fromtimestamp(at, dt.UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": target.name, "leaseDurationSeconds": 40, "renewTime": text}
        meta = {"name": target.name, "namespace": target.namespace, "uid": f"lease-{uid}", "resourceVersion": "1"}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}

    def stop(self, name: str, *, delete: bool = True) -> None:
        """End the kubelet of node *name*, with its pods. With *delete*, its machine is gone and so will be the Node."""
        node = self._store.get("nodes", name)
        if node is None:
            return
        uid = node["metadata"]["uid"]
        if uid not in self.dead:
            self.dead[uid] = self._engine.now
            self._engine.after(_GRACE_SECONDS, lambda: self._unreachable(name, uid))
        if delete and uid not in self._gone:
            self._gone.add(uid)
            self._engine.after(_GRACE_SECONDS + _CLOUD_SECONDS, lambda: self.delete_node(name, uid))

    def revive(self, name: str) -> None:
        """Let the kubelet of node *name* run again."""
        node = self._store.get("nodes", name)
        uid = "" if node is None else node["metadata"]["uid"]
        if node is None or uid in self._gone or self.dead.pop(uid, None) is None:
            return
        taints = [each for each in node["spec"].get("taints") or () if each.get("key") != _UNREACHABLE]
        self._set_node(node, "True", "KubeletReady", taints)
        for pod in self._store.pods_of(name):
            key, uid = key_of(pod), pod["metadata"]["uid"]
            if pod["metadata"].get("deletionTimestamp"):
                self._engine.after(self._times.end(self._random), partial(self._end, key, uid))
            elif pod["status"].get("phase", "Pending") == "Pending":
                self._admit(pod)
            elif pod["status"]["phase"] == "Running" and not is_ready(pod):
                self.set_ready(pod, ready=True)

    def _unreachable(self, name: str, uid: str) -> None:
        node = self._store.same("nodes", name, uid)
        if node is None or uid not in self.dead:
            return
        now = self._engine.timestamp
        added = [{"key": _UNREACHABLE, "effect": effect, "timeAdded": now} for effect in ("NoSchedule", "NoExecute")]
        self._set_node(node, "Unknown", "NodeStatusUnknown", [*(node["spec"].get("taints") or ()), *added])
        for pod in self._store.pods_of(name):
            if is_ready(pod):
                self.set_ready(pod, ready=False)
            self._evict_by_taint(pod, added[1])

    def _set_node(self, node: Json, ready: str, reason: str, taints: list[Json]) -> None:
        conditions = with_condition(node, self._engine.timestamp, "Ready", ready, reason, "")
        change = {"status": {"conditions": conditions}, "spec": {"taints": taints or None}}
        self._store.patch("nodes", node["metadata"]["name"], change)

    def _evict_by_taint(self, pod: Json, taint: Json) -> None:
        """Delete *pod* when its tolerations of *taint* end (``tainteviction``)."""
        matching = [each for each in pod["spec"].get("tolerations") or () if tolerates(each, taint)]
        limits = [each["tolerationSeconds"] for each in matching if "tolerationSeconds" in each]
        if matching and not limits:
            return
        key, uid, node = key_of(pod), pod["metadata"]["uid"], pod["spec"]["nodeName"]

        def evict() -> None:
            current, of_node = self._store.same("pods", key, uid), self._store.get("nodes", node)
            tainted = any(
                each.get("key") == taint["key"] for each in ((of_node or {}).get("spec") or {}).get("taints") or ()
            )
            if current is not None and tainted:
                self._server.deletion.delete_pod(current)

        self._engine.after(min(limits, default=0.0), evict)

    def delete_node(self, name: str, uid: str) -> None:
        """Delete the Node, as the cloud controller does when its machine is gone."""
        if self._store.same("nodes", name, uid) is not None:
            self._store.delete("nodes", name)


class PodCollector:
    """Removes the pods of nodes that are gone (``podgc``)."""

    def __init__(self, server: ApiServer) -> None:
        self._store = server.store
        self._store.listen("nodes", self._node_changed)

    def _node_changed(self, change: StoredChange) -> None:
        if change.type == "DELETED":
            name = change.after.object["metadata"]["name"]
            self._store.engine.after(_ORPHAN_SECONDS, lambda: self._collect(name))
            self._store.delete("csinodes", name)

    def _collect(self, node: str) -> None:
        if self._store.get("nodes", node) is None:
            for pod in list(self._store.pods_of(node)):
                self._store.delete("pods", key_of(pod))


def _running(pod: Json, now: str, restarts: int) -> Json:
    """Return the status of a pod that runs and is Ready."""
    conditions = [each for each in pod.get("status", {}).get("conditions") or () if each["type"] not in _STARTED]
    conditions += [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in _STARTED]
    state = {"running": {"startedAt": now}}
    statuses = [
        {"name": each["name"], "ready": True, "started": True, "restartCount": restarts, "state": state}
        for each in pod["spec"]["containers"]
    ]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}


_STARTED: Final = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
