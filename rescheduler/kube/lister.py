"""All objects of one kind, page by page."""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Object
from rescheduler.clock import Clock
from rescheduler.errors import Expired, Retryable
from rescheduler.kube.answers import Answer
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import Client
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
    unreadable: dict[str, str]  #: objects left out, by key, and why


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
        unreadable: dict[str, str] = {}
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
