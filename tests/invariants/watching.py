"""A plain client that lists and then watches all kinds that the invariants use, without the daemon's reflectors."""

import asyncio
import contextlib
import hashlib
import ssl
import threading
from dataclasses import dataclass
from typing import Final

import httpx2
import msgspec
from msgspec import Raw

from devcluster.plane import ControlPlane
from rescheduler import decoding
from rescheduler.clock import SystemClock
from tests.invariants.history import Revision
from tests.invariants.objects import SeenBudget, SeenNode, SeenObject, SeenPod, SeenWorkload

#: Delay after a broken connection.
RETRY_SECONDS: Final = 0.2

#: Requested duration of a watch, which is then continued by a new watch.
WATCH_SECONDS: Final = 300

_HTTP_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class WatchedKind:
    name: str
    path: str
    shape: type[SeenObject]


_WORKLOADS: Final = {
    "Deployment": "/apis/apps/v1/deployments",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "Job": "/apis/batch/v1/jobs",
}

KINDS: Final = (
    WatchedKind("Pod", "/api/v1/pods", SeenPod),
    WatchedKind("Node", "/api/v1/nodes", SeenNode),
    WatchedKind("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets", SeenBudget),
    *(WatchedKind(name, path, SeenWorkload) for name, path in _WORKLOADS.items()),
)


class _Frame(msgspec.Struct):
    type: str
    object: Raw


class _ListFields(msgspec.Struct, rename="camel"):
    resource_version: str


class _Page(msgspec.Struct):
    metadata: _ListFields
    items: list[Raw]


class _Compacted(Exception):
    """The API server has compacted the revision from which a watch should continue."""


class Watches:
    """Collects revisions of all KINDS from `start` to `stop`. `revisions` is thread-safe.

    Only Nodes with the label *nodes* are collected; "": all Nodes.
    """

    def __init__(self, plane: ControlPlane, nodes: str = "") -> None:
        self._plane, self._nodes, self._clock = plane, nodes, SystemClock()
        self._lock = threading.Lock()
        self._progress = threading.Condition(self._lock)
        self._revisions: list[Revision] = []
        self._last: dict[str, Revision] = {}  # last revisions of existing objects by UID
        self._synced: set[str] = set()
        self._versions: dict[str, str] = {}  # version from which the watch of a kind continues
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="watches", daemon=True)

    def start(self) -> None:
        """Start and wait until all kinds have been listed."""
        self._thread.start()
        with self._progress:
            self._progress.wait_for(lambda: len(self._synced) == len(KINDS) or not self._thread.is_alive())

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join()
        self._loop.close()

    def revisions(self) -> list[Revision]:
        """Return the revisions so far, in the order of the writes."""
        with self._lock:
            return sorted(self._revisions, key=lambda revision: revision.order)

    def settle(self, seconds: float) -> None:
        """Wait for the delivery of the last writes."""
        self._clock.wait(seconds, threading.Event())

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._follow_all())

    def _cancel(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _follow_all(self) -> None:
        async with httpx2.AsyncClient(
            base_url=self._plane.server,
            headers={"Authorization": f"Bearer {self._plane.token}"},
            verify=ssl.create_default_context(cafile=self._plane.ca),
            timeout=httpx2.Timeout(30, read=None),
            trust_env=False,
        ) as client:
            await asyncio.gather(*(self._follow(client, kind) for kind in KINDS))

    async def _follow(self, client: httpx2.AsyncClient, kind: WatchedKind) -> None:
        while True:
            try:
                if kind.name not in self._versions:
                    await self._list(client, kind)
                await self._watch(client, kind)
            except _Compacted:
                del self._versions[kind.name]
            except (httpx2.TransportError, msgspec.DecodeError):  # the response was truncated
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self, client: httpx2.AsyncClient, kind: WatchedKind) -> None:
        response = await client.get(kind.path, timeout=30)
        if not response.is_success:
            raise httpx2.TransportError(response.text)
        page = decoding.decode(response.content, _Page)
        objects = [_decoded(kind, raw) for raw in page.items]
        here = {item.metadata.uid for item in objects}
        version = page.metadata.resource_version
        with self._progress:
            for uid in [uid for uid, last in self._last.items() if _is_of(last, kind) and uid not in here]:
                self._note(self._last[uid].object, int(version), gone=True)
            for item in objects:
                self._note(item, int(item.metadata.resource_version), initial=kind.name not in self._synced)
            self._synced.add(kind.name)
            self._progress.notify_all()
        self._versions[kind.name] = version

    async def _watch(self, client: httpx2.AsyncClient, kind: WatchedKind) -> None:
        """Read until the watch ends; the next watch continues from there."""
        query = {
            "watch": "1",
            "resourceVersion": self._versions[kind.name],
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with client.stream("GET", kind.path, params=query) as response:
            if response.status_code == _HTTP_GONE:
                raise _Compacted
            if not response.is_success:
                raise httpx2.TransportError(str(response.status_code))
            async for line in response.aiter_lines():
                frame = decoding.decode(line, _Frame)
                if frame.type == "ERROR":
                    raise _Compacted
                item = _decoded(kind, frame.object)
                version = item.metadata.resource_version
                if frame.type != "BOOKMARK":
                    with self._lock:
                        self._note(item, int(version), gone=frame.type == "DELETED")
                self._versions[kind.name] = version

    def _note(self, item: SeenObject, number: int, *, gone: bool = False, initial: bool = False) -> None:
        """Add a revision, unless no used field has changed or the Node is not watched."""
        if isinstance(item, SeenNode) and self._nodes and not item.has(self._nodes):
            return
        uid, last = item.metadata.uid, self._last.get(item.metadata.uid)
        if last is not None and not gone and _unversioned(last.object) == _unversioned(item):
            return
        if last is not None and number <= last.number:
            return
        revision = Revision(number, self._clock.now(), item, gone, initial)
        self._revisions.append(revision)
        if gone:
            self._last.pop(uid, None)
        else:
            self._last[uid] = revision


def _decoded(kind: WatchedKind, raw: Raw) -> SeenObject:
    item: SeenObject = decoding.decode(bytes(raw), kind.shape)
    if not isinstance(item, SeenWorkload):
        return item
    template = msgspec.json.encode(item.spec.template, order="deterministic")
    spec = msgspec.structs.replace(item.spec, template=hashlib.sha256(template).hexdigest()[:16])
    return msgspec.structs.replace(item, kind=kind.name, spec=spec)


def _is_of(revision: Revision, kind: WatchedKind) -> bool:
    item = revision.object
    return item.kind == kind.name if isinstance(item, SeenWorkload) else isinstance(item, kind.shape)


def _unversioned(item: SeenObject) -> SeenObject:
    return msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, resource_version="0"))
