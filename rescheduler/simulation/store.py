"""The objects of the simulated cluster, with revisions, watches and indexes. They are JSON values that never change:
each write stores a new value.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgspec

from rescheduler.simulation.engine import Engine

Json: TypeAlias = dict[str, Any]

#: Changes of a resource that are kept for watches; older resource versions have expired (410).
_KEPT: Final = 5000


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind that the API server serves."""

    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    has_status: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


_STORAGE, _APPS = "storage.k8s.io", "apps"

KINDS: Final = {
    each.plural: each
    for each in (
        ServedKind("namespaces", "Namespace", namespaced=False),
        ServedKind("nodes", "Node", namespaced=False),
        ServedKind("pods", "Pod"),
        ServedKind("events", "Event", has_status=False),
        ServedKind("configmaps", "ConfigMap", has_status=False),
        ServedKind("persistentvolumes", "PersistentVolume", namespaced=False),
        ServedKind("persistentvolumeclaims", "PersistentVolumeClaim"),
        ServedKind("resourcequotas", "ResourceQuota"),
        ServedKind("limitranges", "LimitRange", has_status=False),
        ServedKind("replicationcontrollers", "ReplicationController"),
        ServedKind("replicasets", "ReplicaSet", _APPS),
        ServedKind("deployments", "Deployment", _APPS),
        ServedKind("statefulsets", "StatefulSet", _APPS),
        ServedKind("daemonsets", "DaemonSet", _APPS),
        ServedKind("controllerrevisions", "ControllerRevision", _APPS, has_status=False),
        ServedKind("jobs", "Job", "batch"),
        ServedKind("cronjobs", "CronJob", "batch"),
        ServedKind("poddisruptionbudgets", "PodDisruptionBudget", "policy"),
        ServedKind("priorityclasses", "PriorityClass", "scheduling.k8s.io", namespaced=False, has_status=False),
        ServedKind("runtimeclasses", "RuntimeClass", "node.k8s.io", namespaced=False, has_status=False),
        ServedKind("storageclasses", "StorageClass", _STORAGE, namespaced=False, has_status=False),
        ServedKind("csinodes", "CSINode", _STORAGE, namespaced=False, has_status=False),
        ServedKind("csidrivers", "CSIDriver", _STORAGE, namespaced=False, has_status=False),
        ServedKind("csistoragecapacities", "CSIStorageCapacity", _STORAGE, has_status=False),
        ServedKind("volumeattachments", "VolumeAttachment", _STORAGE, namespaced=False),
        ServedKind("leases", "Lease", "coordination.k8s.io", has_status=False),
    )
}
PLURALS: Final[Mapping[str, str]] = {each.kind: each.plural for each in KINDS.values()}


@dataclass(slots=True)
class StoredObject:
    """An object at one revision."""

    object: Json
    revision: int
    _encoded: bytes = b""

    @property
    def encoded(self) -> bytes:
        if not self._encoded:
            self._encoded = msgspec.json.encode(self.object)
        return self._encoded


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A change of one object. *after* of a deletion is its last state, with the revision of the deletion."""

    type: str
    before: Json | None
    after: StoredObject


def key_of(item: Json) -> str:
    """Return ``namespace/name``, or ``name``."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def merged(target: Any, patch: Any) -> Any:
    """Return *target* after the merge patch (RFC 7386). Both stay as they are."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def controller_of(item: Json) -> Json | None:
    """Return the reference to the controller of *item*, or None."""
    for owner in item["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return cast("Json", owner)
    return None


class NotStored(Exception):
    """There is no such object."""


class Store:
    """All objects. Writes notify listeners at once, in the order of registration."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.revision = 1
        self.tables: defaultdict[str, dict[str, StoredObject]] = defaultdict(dict)  #: by plural and key
        self.pods_on: defaultdict[str, dict[str, None]] = defaultdict(dict)  #: keys of pods by node, "" if unbound
        self.owned: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)  #: plural and key by owner UID
        self._history: defaultdict[str, deque[StoredChange]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self._listeners: defaultdict[str, list[Callable[[StoredChange], object]]] = defaultdict(list)
        self._all: list[Callable[[str, StoredChange], object]] = []
        self._uids = engine.random("uids")

    # Reads

    def get(self, plural: str, key: str) -> Json | None:
        stored = self.tables[plural].get(key)
        return None if stored is None else stored.object

    def same(self, plural: str, key: str, uid: str) -> Json | None:
        """Return the object unless it is gone, or another one has its name."""
        found = self.get(plural, key)
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def all(self, plural: str) -> Iterator[Json]:
        """Yield the objects, which may be written meanwhile."""
        for stored in list(self.tables[plural].values()):
            yield stored.object

    def pods_of(self, node: str) -> Iterator[Json]:
        """Yield the pods that are bound to *node*; those of "" are not bound."""
        for key in list(self.pods_on[node]):
            yield self.tables["pods"][key].object

    def owned_by(self, uid: str, plural: str = "pods") -> Iterator[Json]:
        """Yield the objects of *plural* that name *uid* as an owner."""
        for kind, key in list(self.owned[uid]):
            if kind == plural:
                yield self.tables[plural][key].object

    def since(self, plural: str, revision: int) -> list[StoredChange] | None:
        """Return the changes after *revision*, or None if they are not kept any more."""
        history = self._history[plural]
        if len(history) == _KEPT and history[0].after.revision > revision + 1:
            return None
        found = []
        for change in reversed(history):
            if change.after.revision <= revision:
                break
            found.append(change)
        return found[::-1]

    def listen(self, plural: str, listener: Callable[[StoredChange], object]) -> None:
        self._listeners[plural].append(listener)

    def ignore(self, plural: str, listener: Callable[[StoredChange], object]) -> None:
        """End :meth:`listen`."""
        if listener in self._listeners[plural]:
            self._listeners[plural].remove(listener)

    def listen_to_all(self, listener: Callable[[str, StoredChange], object]) -> None:
        self._all.append(listener)

    # Writes

    def new_uid(self) -> str:
        text = f"{self._uids.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def create(self, plural: str, item: Json) -> Json:
        """Add *item*, which must not exist, with a UID and the time if it has none. Return it as stored."""
        served = KINDS.get(plural)
        meta = {"uid": self.new_uid(), "creationTimestamp": self.engine.timestamp, **item["metadata"]}
        head = {"apiVersion": served.api_version, "kind": served.kind} if served is not None else {}
        if plural in _WITH_GENERATION:
            meta.setdefault("generation", 1)
        return self._put("ADDED", plural, None, {**head, **item, "metadata": meta})

    def patch(self, plural: str, key: str, change: Json) -> Json:
        """Store the object with the merge patch *change*, which must not rename it. Nothing happens if it is equal.

        Raises Missing.
        """
        before = self.get(plural, key)
        if before is None:
            raise NotStored(f"{plural} {key}")
        return self.replace(plural, before, merged(before, change))

    def replace(self, plural: str, before: Json, after: Json) -> Json:
        """Store *after* in place of *before*."""
        if after == before:
            return before
        if plural in _WITH_GENERATION and after.get("spec") != before.get("spec"):
            generation = before["metadata"].get("generation", 0) + 1
            after = merged(after, {"metadata": {"generation": generation}})
        return self._put("MODIFIED", plural, before, after)

    def delete(self, plural: str, key: str) -> None:
        """Remove an object, if it exists."""
        if (stored := self.tables[plural].get(key)) is not None:
            self._put("DELETED", plural, stored.object, stored.object)

    def _put(self, verb: str, plural: str, before: Json | None, item: Json) -> Json:
        self.revision += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.revision)}}
        stored, key = StoredObject(item, self.revision), key_of(item)
        if verb == "DELETED":
            del self.tables[plural][key]
        else:
            self.tables[plural][key] = stored
        self._index(plural, key, before, None if verb == "DELETED" else item)
        change = StoredChange(verb, before, stored)
        self._history[plural].append(change)
        for listener in tuple(self._listeners[plural]):
            listener(change)
        for listener_of_all in self._all:
            listener_of_all(plural, change)
        return item

    def _index(self, plural: str, key: str, before: Json | None, after: Json | None) -> None:
        if plural == "pods":
            old, new = (None if item is None else item["spec"].get("nodeName", "") for item in (before, after))
            if old != new:
                if old is not None:
                    self.pods_on[old].pop(key, None)
                if new is not None:
                    self.pods_on[new][key] = None
        for uid in _owner_uids(before):
            self.owned[uid].pop((plural, key), None)
        for uid in _owner_uids(after):
            self.owned[uid][plural, key] = None


_WITH_GENERATION: Final = frozenset(
    {"deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "poddisruptionbudgets"}
)


def _owner_uids(item: Json | None) -> Iterable[str]:
    if item is None:
        return ()
    return [owner["uid"] for owner in item["metadata"].get("ownerReferences") or ()]
