"""List all objects of one kind, page by page."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.clock import Clock
from rescheduler.errors import Expired, InputError, Retryable
from rescheduler.kube.answers import ApiResponse
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import Client
from rescheduler.kube.codec import Codec, RawPage, decode_page
from rescheduler.kube.codecs import Codecs
from rescheduler.kube.resources import Resource

#: Objects per page; a page of pods is about 2 MB of JSON.
PAGE_SIZE: Final = 500

#: Maximum number of requests for a page, and of attempts to read a whole list.
PAGE_ATTEMPTS: Final = 4
LIST_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind."""

    objects: list[Object]
    resource_version: str  #: to watch from
    unreadable: dict[str, Unreadable]  #: objects left out, by key


def read_all(
    client: Client, resource: Resource, codec: Codec, matters: Callable[[str], bool] = lambda _: True
) -> list[Object]:
    """Return all objects of *resource* with one consistent, paged list. Requests are not retried.

    Raises the errors of requests, Retryable if the list expired before its last page, and InputError for an object
    that cannot be decoded if *matters* returns True for its key.
    """
    act, objects = f"list {resource.plural}", list[Object]()
    query = {"limit": str(PAGE_SIZE)} | resource.query
    while True:
        try:
            page = decode_page(codec, client.request(act, "GET", resource.path, query=query).body)
        except Expired as error:
            raise Retryable(str(error)) from error
        for key, unreadable in page.unreadable.items():
            if matters(key):
                raise InputError(f"{act}: {unreadable.why}")
        objects += page.objects
        if not page.next:
            return objects
        query |= {"continue": page.next}


class Lister:
    """A reader of complete lists of one kind, with retries. Used by one thread.

    The next page is requested before the objects of a page are decoded, so that the API server and this process work at
    the same time. At most one page is requested ahead, which bounds the memory.
    """

    def __init__(
        self,
        resource: Resource,
        client: Client,
        codecs: Codecs,
        clock: Clock,
        stopping: threading.Event | None = None,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._resource = resource
        self._client = client
        self._codecs = codecs
        self._clock = clock
        self._stopping = stopping or threading.Event()
        self._page_size = page_size

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Return the complete list.

        *progress* is called after each page with the number of objects so far. The list is restarted if its continue
        token expires (the server keeps it for some minutes). Raises Expired after LIST_ATTEMPTS, and the errors of
        requests.
        """
        restarts = 0
        while True:
            try:
                return self._attempt(progress)
            except Expired:
                restarts += 1
                if restarts == LIST_ATTEMPTS:
                    raise

    def _attempt(self, progress: Callable[[int], None] | None) -> Listing:
        """Read the list from its first page. Raises Expired if a continue token expires."""
        objects: list[Object] = []
        unreadable: dict[str, Unreadable] = {}
        request = self._ask("")
        while True:
            codec, raw = self._split_page(request)
            if raw.next:
                request = self._ask(raw.next)
            page = codec.decoded(raw)
            objects += page.objects
            unreadable |= page.unreadable
            if progress is not None:
                progress(len(objects))
            if not page.next:
                return Listing(objects, page.resource_version, unreadable)

    def _split_page(self, request: "_PageRequest") -> tuple[Codec, RawPage]:
        """Wait for the response, and repeat the request if it fails. Return the codec and the page."""
        failures = 0
        while True:
            try:
                answer = request.result()
                codec = self._codecs.of(answer.content_type)
                return codec, codec.split(answer.body)
            except Retryable as error:
                failures += 1
                if failures == PAGE_ATTEMPTS or self._stopping.is_set():
                    raise
                self._clock.wait(delay(failures, error.retry_after), self._stopping)
                request = self._ask(request.following)

    def _ask(self, following: str) -> "_PageRequest":
        """Start the request for the page with the continue token *following*; "" is the first page."""
        act, path = f"list {self._resource.plural}", self._resource.path
        query = {"limit": str(self._page_size)} | ({"continue": following} if following else {}) | self._resource.query
        return _PageRequest(
            following, lambda: self._client.request(act, "GET", path, query=query, accept=self._codecs.accept)
        )


class _PageRequest:
    """A request that runs in a separate thread."""

    def __init__(self, following: str, send: Callable[[], ApiResponse]) -> None:
        self.following = following  #: the continue token
        self._send = send
        self._answer: ApiResponse | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="list-page", daemon=True)
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
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread that waits for the response
            self._error = error
