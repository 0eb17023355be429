"""The scheduler: its queue, and the plugins of :mod:`predicates`. Source: ``kubernetes/pkg/scheduler``."""

import heapq
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import numpy as np

from predicates.filters import Filters
from predicates.objects import Pod
from predicates.scheduler import DEFAULT_NAME, Scheduler
from predicates.snapshot import PLACEHOLDER, Snapshot
from predicates.wire import KINDS as WIRE_KINDS
from predicates.wire import Decoder, Interner, WireError
from rescheduler.planning.placement.forecast import SimulatedScheduler
from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.eviction import matches, with_target
from rescheduler.simulation.reconciling import record, with_condition
from rescheduler.simulation.store import KINDS, Json, StoredChange, StoredObject, key_of

#: Seconds of a backoff, at first and at most (``podInitialBackoffSeconds``, ``podMaxBackoffSeconds``).
_FIRST_BACKOFF, _LONGEST_BACKOFF = 1.0, 10.0
#: Seconds after which an unschedulable pod is tried again without any change of the cluster.
_FLUSH_SECONDS: Final = 300.0
#: Seconds that the scheduler needs for one pod, and until a volume of a new claim is provisioned.
_CYCLE_SECONDS, _PROVISION_SECONDS = 0.003, 4.0


class SimulatedScheduling:
    """The scheduler of the cluster. It schedules one pod at a time, by priority and age."""

    def __init__(self, server: ApiServer, rules: Scheduler) -> None:
        self._server = server
        self._store = server.store
        self._engine = server.store.engine
        self._decoder = Decoder(Interner())
        self.snapshot = Snapshot(rules)
        self._filters = Filters(self.snapshot)
        self._rng = np.random.default_rng(self._engine.random("scheduler").getrandbits(64))
        self._active: dict[str, None] = {}  # keys of pods
        self._queue: list[tuple[int, str, str]] = []  # a heap of the ranks of active pods, and of some that were active
        self._backing_off: dict[str, float] = {}  # by key: until when
        self._unschedulable: dict[str, float] = {}  # by key: since when
        self._attempts: dict[str, int] = {}  # by UID
        self._nominated: dict[str, str] = {}  # by key: the node
        self._scheduled = False  # a cycle is in the queue of events
        self._chooser: tuple[int, SimulatedScheduler] | None = None
        self.paused = False  #: the scheduler does not run
        for plural, served in KINDS.items():
            if served.kind in WIRE_KINDS:
                self._store.listen(plural, self._follow(served.kind, plural))
        self._engine.every(_FLUSH_SECONDS / 5, self._flush)

    def _follow(self, kind: str, plural: str) -> Callable[[StoredChange], None]:
        def changed(change: StoredChange) -> None:
            if change.type == "DELETED":
                self.snapshot.delete(kind, key_of(change.after.object))
            else:
                try:
                    self.snapshot.upsert(kind, self._decoder.decode(kind, _as_scheduled(change.after)))
                except WireError:
                    return
            if plural == "pods":
                self._pod_changed(change)
            elif plural in ("nodes", "persistentvolumes", "persistentvolumeclaims", "csinodes", "namespaces"):
                self._retry()

        return changed

    # The queue

    def _pod_changed(self, change: StoredChange) -> None:
        pod, key = change.after.object, key_of(change.after.object)
        if change.type == "DELETED":
            for queue in (self._active, self._backing_off, self._unschedulable, self._nominated):
                queue.pop(key, None)
            self._attempts.pop(pod["metadata"]["uid"], None)
        if pod["spec"].get("nodeName"):
            self._nominated.pop(key, None)
            if change.type == "DELETED" or pod["status"].get("phase") in ("Succeeded", "Failed"):
                self._retry()
        elif change.type == "ADDED" and self._is_ours(pod):
            self._enqueue(key)

    def _is_ours(self, pod: Json) -> bool:
        name = pod["spec"].get("schedulerName") or DEFAULT_NAME
        names = {profile.name for profile in self.snapshot.scheduler.profiles}
        return name in names and not pod["spec"].get("schedulingGates")

    def _enqueue(self, key: str) -> None:
        if key not in self._active and (pod := self._store.get("pods", key)) is not None:
            self._active[key] = None
            created = pod["metadata"]["creationTimestamp"]
            heapq.heappush(self._queue, (-pod["spec"].get("priority", 0), created, key))
        self._next_cycle()

    def _next_cycle(self) -> None:
        if not self._scheduled and self._active and not self.paused:
            self._scheduled = True
            self._engine.after(_CYCLE_SECONDS, self._cycle)

    def _retry(self) -> None:
        """Try the unschedulable pods again, because the cluster has changed."""
        for key in list(self._unschedulable):
            del self._unschedulable[key]
            self._back_off(key)

    def _flush(self) -> None:
        now = self._engine.now
        for key in [key for key, since in self._unschedulable.items() if now - since >= _FLUSH_SECONDS]:
            del self._unschedulable[key]
            self._back_off(key)

    def _back_off(self, key: str) -> None:
        pod = self._store.get("pods", key)
        if pod is None:
            return
        attempts = self._attempts.get(pod["metadata"]["uid"], 1)
        seconds = min(_FIRST_BACKOFF * 2.0 ** (attempts - 1), _LONGEST_BACKOFF)
        until = self._backing_off[key] = self._engine.now + seconds

        def end() -> None:
            if self._backing_off.get(key) == until:
                del self._backing_off[key]
                self._enqueue(key)

        self._engine.at(until, end)

    def pause(self, *, paused: bool) -> None:
        """Stop or continue scheduling."""
        self.paused = paused
        self._next_cycle()

    def _cycle(self) -> None:
        self._scheduled = False
        while self._active and not self.paused:
            *_, key = heapq.heappop(self._queue)
            if key not in self._active:
                continue
            del self._active[key]
            pod = self._store.get("pods", key)
            if pod is not None and not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                self._schedule(key, pod)
            break
        self._next_cycle()

    # One pod

    def _schedule(self, key: str, item: Json) -> None:
        uid = item["metadata"]["uid"]
        self._attempts[uid] = self._attempts.get(uid, 0) + 1
        pod = self.snapshot.pods.get(key)
        if pod is None:
            return
        row = self._choose(pod)
        node = None if row is None else self.snapshot.nodes.nodes[row]
        if node is None:
            self._fail(key, item, pod)
        elif unbound := self._unbound_claims(item):
            self._provision(key, unbound, node.name)
        else:
            self._bind(key, item, node.name)

    def _choose(self, pod: Pod) -> int | None:
        version = self.snapshot.node_versions
        if self._chooser is None or self._chooser[0] != version:
            order = np.flatnonzero(self.snapshot.nodes.alive)
            self._chooser = version, SimulatedScheduler(self.snapshot, self._filters, order, self._rng)
        if not self.snapshot.nodes.alive.any():
            return None
        others = [
            (nominated, row)
            for key, name in self._nominated.items()
            if key != pod.key
            and (nominated := self.snapshot.pods.get(key)) is not None
            and (nominated.cls.spec.priority or 0) >= (pod.cls.spec.priority or 0)
            and (row := self.snapshot.nodes.row.get(name)) is not None
        ]
        if not others:
            return self._chooser[1].choose(pod)
        with self.snapshot.trial() as trial:
            for nominated, row in others:
                trial.place(nominated.cls, row)
            return self._chooser[1].choose(pod)

    def _bind(self, key: str, item: Json, node: str) -> None:
        now = self._engine.timestamp
        conditions = with_condition(item, now, "PodScheduled", "True")
        change = {"spec": {"nodeName": node}, "status": {"conditions": conditions, "nominatedNodeName": None}}
        self._store.patch("pods", key, change)

    def _fail(self, key: str, item: Json, pod: Pod) -> None:
        self._unschedulable[key] = self._engine.now
        nodes = len(self.snapshot.nodes)
        message = f"0/{nodes} nodes are available."
        conditions = with_condition(item, self._engine.timestamp, "PodScheduled", "False", "Unschedulable", message)
        change: Json = {"status": {"conditions": conditions}}
        if (node := self._preempt(item, pod)) is not None:
            self._nominated[key] = node
            change["status"]["nominatedNodeName"] = node
        self._store.patch("pods", key, change)

    # Claims

    def _unbound_claims(self, item: Json) -> list[Json]:
        found = []
        for volume in item["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            claim = (
                self._store.get("persistentvolumeclaims", f"{item['metadata']['namespace']}/{name}") if name else None
            )
            if claim is not None and not claim["spec"].get("volumeName"):
                found.append(claim)
        return found

    def _provision(self, key: str, claims: list[Json], node: str) -> None:
        """Create volumes for *claims* in the zone of *node*, then try the pod again."""
        zone = ((self._store.get("nodes", node) or {"metadata": {}})["metadata"].get("labels") or {}).get(_ZONE)

        def provisioned() -> None:
            for claim in claims:
                self._create_volume(claim, zone)
            self._enqueue(key)

        self._engine.after(_PROVISION_SECONDS, provisioned)

    def _create_volume(self, claim: Json, zone: str | None) -> None:
        meta, name = claim["metadata"], f"pvc-{claim['metadata']['uid']}"
        if self._store.get("persistentvolumeclaims", key_of(claim)) is None or self._store.get(
            "persistentvolumes", name
        ):
            return
        storage = self._store.get("storageclasses", claim["spec"].get("storageClassName", "")) or {}
        spec: Json = {
            "accessModes": claim["spec"].get("accessModes"),
            "storageClassName": claim["spec"].get("storageClassName"),
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": meta["namespace"], "name": meta["name"]},
            "csi": {"driver": storage.get("provisioner", "simulated"), "volumeHandle": name},
        }
        if zone is not None:
            term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": [zone]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        self._store.create(
            "persistentvolumes", {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Bound"}}
        )
        change = {"spec": {"volumeName": name}, "status": {"phase": "Bound"}}
        self._store.patch("persistentvolumeclaims", key_of(claim), change)

    # Preemption

    def _preempt(self, item: Json, pod: Pod) -> str | None:
        """Delete pods of lower priority where that makes room for *pod*. Return the node, or None.

        Source: ``framework/preemption/preemption.go``.
        """
        priority = pod.cls.spec.priority or 0
        if item["spec"].get("preemptionPolicy") == "Never":
            return None
        if (nominated := self._nominated.get(pod.key)) is not None:
            leaving = self.snapshot.pods_on[nominated].values()
            if any(each.deletion_timestamp and (each.cls.spec.priority or 0) < priority for each in leaving):
                return nominated
        found = []
        for name, row in self.snapshot.nodes.row.items():
            lower = [each for each in self.snapshot.pods_on[name].values() if (each.cls.spec.priority or 0) < priority]
            if lower and (victims := self._victims(pod, row, lower)) is not None:
                found.append((self._cost(victims), name, victims))
        if not found:
            return None
        _, node, victims = min(found, key=lambda each: each[:2])
        for victim in victims:
            self._delete_for(item, victim, node)
        return node

    def _victims(self, pod: Pod, row: int, lower: list[Pod]) -> list[Pod] | None:
        """Return the pods of *lower* that must go so that *pod* fits on *row*, or None if it does not fit."""
        with self.snapshot.trial() as trial:
            trial.evict(*lower)
            if not self._filters.feasible(pod.cls)[row]:
                return None
            victims = []
            for each in sorted(
                lower, key=lambda one: (not self._violates(one), -(one.cls.spec.priority or 0), one.start_time or "")
            ):
                trial.restore(each)
                if not self._filters.feasible(pod.cls)[row]:
                    trial.evict(each)
                    victims.append(each)
            return victims

    def _violates(self, pod: Pod) -> bool:
        """Return whether a budget does not allow the eviction of *pod*."""
        item = self._store.get("pods", pod.key)
        budgets = self._store.all("poddisruptionbudgets")
        return item is not None and any(
            matches(each, item) and (each.get("status") or {}).get("disruptionsAllowed", 0) <= 0 for each in budgets
        )

    def _cost(self, victims: Iterable[Pod]) -> tuple[int, int, int, int]:
        pods = list(victims)
        priorities = [each.cls.spec.priority or 0 for each in pods]
        return sum(map(self._violates, pods)), max(priorities, default=0), sum(priorities), len(pods)

    def _delete_for(self, item: Json, victim: Pod, node: str) -> None:
        stored = self._store.get("pods", victim.key)
        if stored is None or stored["metadata"].get("deletionTimestamp"):
            return
        change = {"status": {"conditions": with_target(stored, "PreemptionByScheduler", self._store)}}
        stored = self._store.patch("pods", victim.key, change)
        about = {"kind": "Pod", "name": victim.name, "namespace": victim.namespace, "uid": victim.uid}
        by = {name: item["metadata"][name] for name in ("namespace", "name", "uid")}
        text = f"Preempted by pod {by['uid']} on node {node}"
        record(self._store, about, "Preempted", text, related={"kind": "Pod", **by})
        self._server.deletion.delete_pod(stored)


_ZONE: Final = "topology.kubernetes.io/zone"


def _as_scheduled(stored: StoredObject) -> bytes:
    """Return the object for the snapshot, which keeps placeholders apart: for the scheduler they are pods."""
    meta = stored.object["metadata"]
    if PLACEHOLDER not in (meta.get("labels") or {}):
        return stored.encoded
    labels = {name: value for name, value in meta["labels"].items() if name != PLACEHOLDER}
    return msgspec.json.encode({**stored.object, "metadata": {**meta, "labels": labels}})
