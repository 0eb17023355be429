"""What controllers of the simulated cluster share: a queue of keys, pods by template, and conditions."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.requests import RequestRefused
from rescheduler.simulation.store import KINDS, Json, Store, StoredChange, controller_of, key_of

#: Seconds from a change until a controller has acted on it, at least and on average.
_LEAST_DELAY, _MEAN_DELAY = 0.01, 0.04

_LONGEST_RETRY: Final = 300.0


class Reconciler:
    """A controller: keys of objects are queued, and :meth:`reconcile` is called for each."""

    plural = ""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.store: Store = server.store
        self.engine = server.store.engine
        self._random = self.engine.random(f"controller of {self.plural}")
        self._queued: set[str] = set()
        self._failures: dict[str, int] = {}
        self.store.listen(self.plural, lambda change: self.enqueue(key_of(change.after.object)))

    def enqueue(self, key: str, seconds: float = 0.0) -> None:
        """Reconcile the object *key* soon, or after *seconds*."""
        if seconds > 0:
            self.engine.after(seconds, lambda: self.enqueue(key))
        elif key not in self._queued:
            self._queued.add(key)
            delay = _LEAST_DELAY + self._random.expovariate(1 / _MEAN_DELAY)
            self.engine.after(delay, lambda: self._work(key))

    def follow(self, plural: str) -> None:
        """Reconcile the owner of an object of *plural* when the object changes."""
        kind = KINDS[self.plural].kind

        def changed(change: StoredChange) -> None:
            owner = controller_of(change.after.object)
            if owner is not None and owner["kind"] == kind:
                self.enqueue(f"{change.after.object['metadata']['namespace']}/{owner['name']}")

        self.store.listen(plural, changed)

    def enqueue_all(self) -> None:
        for key in list(self.store.tables[self.plural]):
            self.enqueue(key)

    def _work(self, key: str) -> None:
        self._queued.discard(key)
        item = self.store.get(self.plural, key)
        if item is None:
            self._failures.pop(key, None)
            return
        try:
            self.reconcile(item)
        except RequestRefused:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.enqueue(key, min(0.5 * 2.0 ** min(failures, 12), _LONGEST_RETRY))
        else:
            self._failures.pop(key, None)

    def reconcile(self, item: Json) -> None:
        raise NotImplementedError

    def set_status(self, item: Json, **fields: Any) -> None:
        """Write the fields of the status that differ."""
        self.store.patch(self.plural, key_of(item), {"status": fields})

    def record(self, item: Json, reason: str, message: str) -> None:
        """Create a warning Event about *item*."""
        meta, served = item["metadata"], KINDS[self.plural]
        about = {"kind": served.kind, "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]}
        record(self.store, about, reason, message)


def record(store: Store, about: Json, reason: str, message: str, **more: Any) -> None:
    """Create an Event of the API about the object *about*."""
    namespace, now = about.get("namespace") or "default", store.engine.timestamp
    meta = {"namespace": namespace, "name": f"{about['name']}.{store.revision:x}"}
    times = {"firstTimestamp": now, "lastTimestamp": now, "count": 1}
    store.create(
        "events", {"metadata": meta, "involvedObject": about, "reason": reason, "message": message, **times, **more}
    )


def active(pods: Iterable[Json]) -> list[Json]:
    """Return the pods that have not finished and are not being deleted."""
    return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not finished(pod)]


def finished(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def own_pods(store: Store, owner: Json) -> list[Json]:
    """Return the pods whose controller is *owner*."""
    uid = owner["metadata"]["uid"]
    found = (pod for pod in store.owned_by(uid) if (controller_of(pod) or {}).get("uid") == uid)
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


def reference(owner: Json, api_version: str, kind: str) -> Json:
    meta = owner["metadata"]
    return {"apiVersion": api_version, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def pod_of(owner: Json, plural: str, template: Json, name: str, labels: Json | None = None) -> Json:
    """Return a new pod from *template* with *owner* as its controller."""
    meta, served = template.get("metadata") or {}, KINDS[plural]
    return {
        "metadata": {
            "name": name,
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **(labels or {})},
            "annotations": dict(meta.get("annotations") or {}),
            "ownerReferences": [reference(owner, served.api_version, served.kind)],
        },
        "spec": template["spec"],
    }


def digest(value: Any) -> str:
    """Return a short hash of a JSON value, as in the names of ReplicaSets."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:10]


def share(text: object, total: int, *, up: bool) -> int:
    """Return an amount or a percentage of *total*, rounded *up* or down."""
    if isinstance(text, str) and text.endswith("%"):
        part = int(text[:-1]) * total
        return -(-part // 100) if up else part // 100
    return int(str(text))


def with_condition(
    item: Json, now: str, kind: str, status: str | None, reason: str = "", message: str = ""
) -> list[Json]:
    """Return the conditions of *item* with one of *kind*, or without it if *status* is None."""
    present = item.get("status", {}).get("conditions") or ()
    others = [each for each in present if each["type"] != kind]
    before = next((each for each in present if each["type"] == kind), None)
    if status is None:
        return others
    same = before is not None and before["status"] == status
    since = before["lastTransitionTime"] if same and before is not None and "lastTransitionTime" in before else now
    ours = {"type": kind, "status": status, "lastTransitionTime": since}
    if reason:
        ours |= {"reason": reason, "message": message}
    return [*others, ours]
