"""List all objects of one kind, page by page."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.clock import Clock
from rescheduler.errors import Expired, InputError, Retryable
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import Client
from rescheduler.kube.codec import Codec, ListPage
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
            page = codec.page(client.request(act, "GET", resource.path, query=query).body)
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
    """A reader of complete lists of one kind, with retries. Used by one thread."""

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
        objects: list[Object] = []
        unreadable: dict[str, Unreadable] = {}
        following, failures, restarts = "", 0, 0
        while True:
            try:
                page = self._page(following)
            except Expired:
                restarts += 1
                if restarts == LIST_ATTEMPTS:
                    raise
                objects, unreadable, following, failures = [], {}, "", 0
                continue
            except Retryable as error:
                failures += 1
                if failures == PAGE_ATTEMPTS or self._stopping.is_set():
                    raise
                self._clock.wait(delay(failures, error.retry_after), self._stopping)
                continue
            objects += page.objects
            unreadable |= page.unreadable
            if progress is not None:
                progress(len(objects))
            if not page.next:
                return Listing(objects, page.resource_version, unreadable)
            following, failures = page.next, 0

    def _page(self, following: str) -> ListPage:
        """Request one page, without retries."""
        act, path = f"list {self._resource.plural}", self._resource.path
        query = {"limit": str(self._page_size)} | ({"continue": following} if following else {}) | self._resource.query
        answer = self._client.request(act, "GET", path, query=query, accept=self._codecs.accept)
        return self._codecs.of(answer.content_type).page(answer.body)
