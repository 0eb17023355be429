"""All objects of one kind, page by page."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.clock import Clock
from rescheduler.errors import Expired, InputError, Retryable
from rescheduler.kube.answers import Answer
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import Client
from rescheduler.kube.codec import Codec
from rescheduler.kube.codecs import Codecs
from rescheduler.kube.resources import Resource

#: Objects a page; a page of pods is some 2 MB of JSON.
PAGE_SIZE: Final = 500

#: A page that fails for a while is asked for again before the whole list is given up.
PAGE_ATTEMPTS: Final = 4
LIST_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Listing:
    """All there is of a kind."""

    objects: list[Object]
    resource_version: str  #: to watch from
    unreadable: dict[str, Unreadable]  #: objects left out, by key


def read_all(
    client: Client, resource: Resource, codec: Codec, matters: Callable[[str], bool] = lambda _: True
) -> list[Object]:
    """All objects of *resource* by one consistent list, page by page; nothing is repeated.

    Raises what requests raise, Retryable where the list expired before its last page, and InputError for an object
    that cannot be decoded and, by its key, *matters*.
    """
    act, found = f"list {resource.plural}", list[Object]()
    query = {"limit": str(PAGE_SIZE)} | resource.query
    while True:
        try:
            page = codec.page(client.request(act, "GET", resource.path, query=query).body)
        except Expired as error:
            raise Retryable(str(error)) from error
        for key, unreadable in page.unreadable.items():
            if matters(key):
                raise InputError(f"{act}: {unreadable.why}")
        found += page.objects
        if not page.next:
            return found
        query |= {"continue": page.next}


class Lister:
    """Lists one kind. Used by one thread."""

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
        """The whole list.

        *progress* is told the number read so far, once a page. A page that comes too late (the server keeps
        a list's state for some minutes) makes it begin anew. Raises Expired when that goes on happening,
        and what requests raise.
        """
        for _ in range(LIST_ATTEMPTS - 1):
            with contextlib.suppress(Expired):
                return self._pages(progress)
        return self._pages(progress)

    def _pages(self, progress: Callable[[int], None] | None) -> Listing:
        found: list[Object] = []
        unreadable: dict[str, Unreadable] = {}
        following = ""
        while True:
            answer = self._page(following)
            page = self._codecs.of(answer.content_type).page(answer.body)
            found += page.objects
            unreadable |= page.unreadable
            if progress is not None:
                progress(len(found))
            if not (following := page.next):
                return Listing(found, page.resource_version, unreadable)

    def _page(self, following: str) -> Answer:
        query = {"limit": str(self._page_size)} | ({"continue": following} if following else {}) | self._resource.query
        attempt = 1
        while True:
            try:
                return self._client.request(
                    f"list {self._resource.plural}",
                    "GET",
                    self._resource.path,
                    query=query,
                    accept=self._codecs.accept,
                )
            except Retryable as error:
                if attempt == PAGE_ATTEMPTS or self._stopping.is_set():
                    raise
                self._clock.wait(delay(attempt, error.retry_after), self._stopping)
                attempt += 1
