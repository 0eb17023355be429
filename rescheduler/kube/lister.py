"""The resources that are read from the cluster, and lists of them, page by page."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Raw

from predicates.objects import Object, Unreadable
from predicates.wire import Interner, WireError
from predicates.wire import unreadable as wire_unreadable
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.errors import Expired, InputError, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.responses import ApiResponse


@dataclass(frozen=True, slots=True)
class Resource:
    """The collection of a kind in all namespaces, or in the namespace in *path*.

    An *optional* resource that the API server does not serve (404) counts as empty, with one warning. All others,
    and optional ones that are served, must be readable before decisions are made: a missing permission does not mean
    that there are no objects.
    """

    kind: str
    path: str
    optional: bool = False
    selector: str = ""  #: label selector
    fields: str = ""  #: field selector

    @property
    def plural(self) -> str:
        """The resource name in permissions and messages, for example ``pods``."""
        return self.path.rpartition("/")[2]

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` of the objects, for example ``apps/v1``."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of lists and watches."""
        selectors = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {name: text for name, text in selectors.items() if text}


#: In the order in which changes are applied to the snapshot: referenced kinds come first.
RESOURCES: Final[tuple[Resource, ...]] = (
    Resource("Namespace", "/api/v1/namespaces"),
    Resource("Node", "/api/v1/nodes"),
    Resource("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    Resource("PersistentVolume", "/api/v1/persistentvolumes"),
    Resource("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Resource("CSINode", "/apis/storage.k8s.io/v1/csinodes", optional=True),
    Resource("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers", optional=True),
    Resource("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities", optional=True),
    Resource("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments", optional=True),
    Resource("ResourceClaim", "/apis/resource.k8s.io/v1/resourceclaims", optional=True),
    Resource("DeviceClass", "/apis/resource.k8s.io/v1/deviceclasses", optional=True),
    Resource("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Resource("Pod", "/api/v1/pods"),
)

#: Kinds from which replacement pods are derived. Commands read all of them, the daemon reads those of a candidate.
TEMPLATES: Final[tuple[Resource, ...]] = (
    Resource("ReplicaSet", "/apis/apps/v1/replicasets", optional=True),
    Resource("StatefulSet", "/apis/apps/v1/statefulsets", optional=True),
    Resource("ReplicationController", "/api/v1/replicationcontrollers", optional=True),
    Resource("Job", "/apis/batch/v1/jobs", optional=True),
    Resource("ControllerRevision", "/apis/apps/v1/controllerrevisions", optional=True),
    Resource("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", optional=True),
    Resource("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses", optional=True),
    Resource("LimitRange", "/api/v1/limitranges", optional=True),
    Resource("ResourceQuota", "/api/v1/resourcequotas", optional=True),
    Resource("Deployment", "/apis/apps/v1/deployments", optional=True),
    Resource("VerticalPodAutoscaler", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", optional=True),
)

#: Everything that commands read.
ALL_RESOURCES: Final = (*TEMPLATES, *RESOURCES)


# Back-off of reads and writes that the API server rejects.

_BACKOFF: Final = Backoff(timedelta(seconds=1), timedelta(seconds=30))
_LONGEST_RETRY_AFTER: Final = 300.0  #: seconds


def delay(failures: int, retry_after: float | None = None) -> float:
    """Return the seconds to wait after *failures* in a row, or the server's *retry_after* if that is longer."""
    return max(_BACKOFF.seconds_after(failures), min(retry_after or 0.0, _LONGEST_RETRY_AFTER))


# List all objects of one kind, page by page.

#: Objects per page; a page of pods is about 2 MB of JSON.
PAGE_SIZE: Final = 500

#: Maximum number of requests for a page, and of attempts to read a whole list, for commands that read the cluster once.
PAGE_ATTEMPTS: Final = 4
LIST_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """The result of a complete list: all objects of a kind."""

    objects: list[Object]
    resource_version: str  #: to watch from
    unreadable: dict[str, Unreadable]  #: objects left out, by key


def read_all(
    client: Client,
    resource: Resource,
    codec: JsonCodec,
    matters: Callable[[str], bool] = lambda _: True,
    read_seconds: float | None = None,
) -> list[Object]:
    """Return all objects of *resource* with one consistent, paged list. Requests are not retried.

    *read_seconds* is the timeout of each page; None: that of *client*.

    Raises the errors of requests, Retryable if the list expired before its last page, and InputError for an object
    that cannot be decoded if *matters* returns True for its key.
    """
    act, objects = f"list {resource.plural}", list[Object]()
    query = {"limit": str(PAGE_SIZE)} | resource.query
    while True:
        try:
            response = client.request(act, "GET", resource.path, query=query, read_seconds=read_seconds)
            page = codec.page(response.body)
        except Expired as error:
            raise Retryable(str(error)) from error
        for key, unreadable in page.unreadable.items():
            if matters(key):
                raise InputError(f"{act}: {unreadable.why}")
        objects += page.objects
        if not page.next:
            return objects
        query |= {"continue": page.next}


@dataclass(slots=True)
class _PartialList:
    """A list of which some pages are still to be read."""

    following: str = ""  #: the continue token of the next page; "" is the first page
    objects: list[Object] = field(default_factory=list)
    unreadable: dict[str, Unreadable] = field(default_factory=dict)


class Lister:
    """A reader of complete lists of one kind. Used by one thread.

    The next page is requested before the objects of a page are decoded, so that the API server and this process work at
    the same time. At most one page is requested ahead, which bounds the memory.

    Requests are not retried; the caller may retry. After a Retryable error, the next call of :meth:`list` continues
    with the page that failed.
    """

    def __init__(
        self, resource: Resource, client: Client, codec: JsonCodec, clock: Clock, page_size: int = PAGE_SIZE
    ) -> None:
        self._resource = resource
        self._client = client
        self._codec = codec
        self._clock = clock
        self._page_size = page_size
        self._partial: _PartialList | None = None
        #: When the first page of the last list was requested: all its pages show the state at that time.
        self.began = 0.0
        self.continues = False  #: whether the last call of `list` continues an earlier one

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Return the complete list.

        *progress* is called after each page with the number of objects so far. Raises the errors of requests, and
        Expired if the continue token expired, which the server keeps for some minutes.
        """
        partial, self._partial = self._partial, None
        self.continues = partial is not None
        if partial is None:
            partial, self.began = _PartialList(), self._clock.monotonic()
        try:
            return self._listing(partial, progress)
        except Retryable:
            self._partial = partial
            raise

    def _listing(self, partial: _PartialList, progress: Callable[[int], None] | None) -> Listing:
        request = self._ask(partial.following)
        while True:
            raw = self._codec.split(request.result().body)
            if raw.next:
                request = self._ask(raw.next)
            page = self._codec.decoded(raw)
            partial.objects += page.objects
            partial.unreadable |= page.unreadable
            partial.following = page.next
            if progress is not None:
                progress(len(partial.objects))
            if not page.next:
                return Listing(partial.objects, page.resource_version, partial.unreadable)

    def _ask(self, following: str) -> "_PageRequest":
        """Start the request for the page with the continue token *following*; "" is the first page."""
        act, path = f"list {self._resource.plural}", self._resource.path
        query = {"limit": str(self._page_size)} | ({"continue": following} if following else {}) | self._resource.query
        return _PageRequest(self._clock, lambda: self._client.request(act, "GET", path, query=query))


class _PageRequest:
    """A request that runs in a separate thread."""

    def __init__(self, clock: Clock, send: Callable[[], ApiResponse]) -> None:
        self._send = send
        self._answer: ApiResponse | None = None
        self._error: Exception | None = None
        self._thread = clock.thread("list-page", self._run)
        self._thread.start()

    def result(self) -> ApiResponse:
        """Wait for the response. Raises the error of the request."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._send()
        except Exception as error:  # noqa: BLE001 - re-raised in the thread that waits for the response
            self._error = error


def list_patiently(lister: Lister, clock: Clock, progress: Callable[[int], None] | None = None) -> Listing:
    """Return the complete list, with retries. For commands that read the cluster once.

    Raises Retryable if a page fails PAGE_ATTEMPTS times, Expired if LIST_ATTEMPTS lists expire, and all other errors of
    requests.
    """
    failures = expired = 0

    def advanced(objects: int) -> None:
        nonlocal failures
        failures = 0
        if progress is not None:
            progress(objects)

    while True:
        try:
            return lister.list(advanced)
        except Expired:
            failures, expired = 0, expired + 1
            if expired == LIST_ATTEMPTS:
                raise
        except Retryable as error:
            failures += 1
            if failures == PAGE_ATTEMPTS:
                raise
            clock.wait(delay(failures, error.retry_after), threading.Event())


# Read objects as structs of the caller, for kinds and fields that the snapshot does not contain.

T = TypeVar("T", bound=msgspec.Struct)


class StructCodec(JsonCodec, Generic[T]):
    """A decoder of the objects of one kind as *shape*."""

    def __init__(self, kind: str, shape: type[T]) -> None:
        super().__init__(kind, Interner())
        self._shapes = decoding.decoder(shape)

    def decode(self, raw: Raw) -> Object:
        try:
            decoded: Any = self._shapes.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(wire_unreadable(self.kind, raw, str(error))) from error
        return cast("Object", decoded)


def read_structs(client: Client, resource: Resource, shape: type[T], *, read_seconds: float | None = None) -> list[T]:
    """Return all objects of *resource* as *shape*; see :func:`~rescheduler.kube.lister.read_all`."""
    codec = StructCodec(resource.kind, shape)
    return cast("list[T]", read_all(client, resource, codec, read_seconds=read_seconds))
