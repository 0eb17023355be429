"""Deletions: graceful ones of pods, finalizers, and the garbage collection of objects whose owners are gone."""

import datetime as dt
from functools import partial
from typing import Any

from rescheduler.simulation.requests import Target, conflict
from rescheduler.simulation.store import KINDS, PLURALS, Json, Store, StoredChange, key_of

#: Seconds until the garbage collector has noticed that an owner is gone.
_COLLECTION_SECONDS = 0.5


class SimulatedDeletion:
    """Deletes objects of *store*."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._awaited: set[str] = set()  # UIDs of missing owners that the garbage collector will notice
        store.listen_to_all(self._changed)

    def delete(self, target: Target, item: Json, options: dict[str, Any]) -> Json:
        """Delete *item* as a request with DeleteOptions does. Raises Refused (409) if a precondition does not hold."""
        meta, wanted = item["metadata"], options.get("preconditions") or {}
        for name in ("uid", "resourceVersion"):
            if wanted.get(name) not in (None, meta.get(name)):
                raise conflict(
                    target,
                    f"Precondition failed: {name} in precondition: {wanted[name]}, {name} in object "
                    f"meta: {meta.get(name)}",
                )
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(meta["uid"])
        if target.plural == "pods":
            return self.delete_pod(item, options.get("gracePeriodSeconds"))
        return self._remove(target.plural, item)

    def delete_pod(self, pod: Json, grace: int | None = None) -> Json:
        """Delete *pod* gracefully: a kubelet removes it when its containers have ended."""
        meta, spec = pod["metadata"], pod["spec"]
        own = spec.get("terminationGracePeriodSeconds", 30)
        seconds = own if grace is None else grace
        finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if not spec.get("nodeName") or finished or seconds == 0:
            return self._remove("pods", pod)
        if (before := meta.get("deletionGracePeriodSeconds")) is not None and before <= seconds:
            return pod
        ends = self._store.engine.timestamp_in(seconds)
        if before is not None:  # the new period begins with the old one
            began = dt.datetime.fromisoformat(meta["deletionTimestamp"]) - dt.timedelta(seconds=before)
            ends = f"{began + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"
        change = {"deletionTimestamp": ends, "deletionGracePeriodSeconds": seconds}
        return self._store.patch("pods", key_of(pod), {"metadata": change})

    def _remove(self, plural: str, item: Json) -> Json:
        if not item["metadata"].get("finalizers"):
            self._store.delete(plural, key_of(item))
            return item
        if item["metadata"].get("deletionTimestamp"):
            return item
        return self._store.patch(
            plural, key_of(item), {"metadata": {"deletionTimestamp": self._store.engine.timestamp}}
        )

    def _orphan(self, uid: str) -> None:
        for plural, key in list(self._store.owned[uid]):
            item = self._store.get(plural, key)
            if item is not None:
                left = [owner for owner in item["metadata"]["ownerReferences"] if owner["uid"] != uid]
                self._store.patch(plural, key, {"metadata": {"ownerReferences": left or None}})

    def _changed(self, plural: str, change: StoredChange) -> None:
        item = change.after.object
        if change.type == "DELETED":
            uid = item["metadata"]["uid"]
            if self._store.owned.get(uid):
                self._collect_soon(uid)
        elif item["metadata"].get("deletionTimestamp") and plural != "pods" and not item["metadata"].get("finalizers"):
            self._store.delete(plural, key_of(item))
        elif change.type == "ADDED" and plural in ("pods", "replicasets", "jobs"):
            for owner in item["metadata"].get("ownerReferences") or ():
                if not self._exists(owner, item["metadata"].get("namespace", "")):
                    self._collect_soon(owner["uid"])

    def _exists(self, owner: Json, namespace: str) -> bool:
        plural = PLURALS.get(owner["kind"])
        if plural is None:
            return True  # custom resources are not collected here
        name = f"{namespace}/{owner['name']}" if KINDS[plural].namespaced else owner["name"]
        found = self._store.get(plural, name)
        return found is not None and found["metadata"]["uid"] == owner["uid"]

    def _collect_soon(self, uid: str) -> None:
        if uid not in self._awaited:
            self._awaited.add(uid)
            self._store.engine.after(_COLLECTION_SECONDS, partial(self._collect, uid))

    def _collect(self, uid: str) -> None:
        """Delete the objects whose only owner *uid* is gone."""
        self._awaited.discard(uid)
        for plural, key in list(self._store.owned[uid]):
            item = self._store.get(plural, key)
            if item is None:
                continue
            namespace = item["metadata"].get("namespace", "")
            if any(self._exists(owner, namespace) for owner in item["metadata"]["ownerReferences"]):
                continue
            if plural == "pods":
                if not item["metadata"].get("deletionTimestamp"):
                    self.delete_pod(item)
            else:
                self._remove(plural, item)
