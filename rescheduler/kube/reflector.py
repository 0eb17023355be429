"""Keep the objects of one kind in sync with the cluster: LIST once, then WATCH from there.

The rules are those of ``client-go/tools/cache/reflector.go``: a watch continues where the last one ended. If that
resourceVersion has expired (410), the kind is listed again. A list replaces all known objects of the kind, so that
objects that were deleted in the meantime are removed as well.
"""

import logging
import threading
from typing import Final, Protocol

from rescheduler.clock import Clock
from rescheduler.errors import Expired, Forbidden, NotFound, Permanent, ReschedulerError, Retryable
from rescheduler.kube.client import Client, ResponseStream
from rescheduler.kube.codec import JsonCodec, WatchedChange
from rescheduler.kube.lister import PAGE_SIZE, Lister, Listing, Resource, delay

#: The timeout of a watch on the server; a connection without data for longer than that is considered dead.
WATCH_SECONDS: Final = 90
SILENCE_SECONDS: Final = WATCH_SECONDS + 15.0

#: Interval between checks for an optional kind that is not served.
ABSENT_SECONDS: Final = 300.0

#: The API server usually sends a bookmark each minute and shortly before a watch ends, but sometimes omits both, and
#: servers without a watch cache send none. If a watch ends after a longer silence, the kind is listed again, so that a
#: kind without changes is not considered stale.
BOOKMARK_SECONDS: Final = 75.0

#: A kind without an event, bookmark or list for this long is listed before it is watched again.
RELIST_SECONDS: Final = 150.0

#: A watch that ends sooner than this without an event counts as a failure, and its retry is delayed.
_SHORT_SECONDS: Final = 1.0

#: After this number of watches in a row that broke without an event, the kind is listed again.
_BROKEN_WATCHES: Final = 3

log = logging.getLogger(__name__)


class Sink(Protocol):
    """The receiver of a reflector's changes. Called by the reflector's thread."""

    def listed(self, kind: str, listing: Listing) -> None:
        """Replace all known objects of the kind."""
        ...

    def changed(self, kind: str, change: WatchedChange) -> None:
        """Apply the addition, modification or deletion of one object."""
        ...

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        """Set or clear (None) the error that prevents reading the kind."""
        ...


class Reflector:
    """A thread that keeps one kind in a sink in sync with the cluster."""

    def __init__(
        self,
        resource: Resource,
        client: Client,
        codec: JsonCodec,
        sink: Sink,
        clock: Clock,
        *,
        page_size: int = PAGE_SIZE,
        silence_seconds: float = SILENCE_SECONDS,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._resource = resource
        self._client = client
        self._codec = codec
        self._sink = sink
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._watch_seconds = watch_seconds
        self._stopping = threading.Event()
        self._lister = Lister(resource, client, codec, clock, page_size)
        self._version: str | None = None  #: resourceVersion to watch from; None: list first
        self._known = False  #: whether the kind was ever listed
        self._absent = False  #: an optional kind that counts as empty
        self._failures = 0  #: in a row, since the last event
        self._broken = 0  #: watches that opened and broke since the last event
        self._cut = False  #: the last watch that opened broke before the first event
        self._heard: float | None = None  #: time of the last event, bookmark or list; None: never listed
        self._stream: ResponseStream | None = None
        self._thread = clock.thread(f"reflect-{resource.plural}", self._run)

    @property
    def age(self) -> float | None:
        """Seconds since the last event, bookmark or list; None if the kind was never listed. Thread-safe.

        While watches break before their first event, a list no longer resets the age.
        """
        heard = self._heard
        return None if heard is None else self._clock.monotonic() - heard

    @property
    def _stale(self) -> bool:
        return (self.age or 0.0) >= RELIST_SECONDS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Signal the thread to stop, and close an open watch."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.stop()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end after :meth:`stop`."""
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if self._version is None or self._stale:
                    self._list()
                self._watch()
            except (Forbidden, NotFound) as error:
                self._clock.wait(self._refused(error), self._stopping)
            except ReschedulerError as error:
                self._clock.wait(self._failed(error), self._stopping)
            except Exception as error:
                log.debug("%s", self._resource.plural, exc_info=True)
                self._version = None
                unexpected = f"read {self._resource.plural}: {type(error).__name__}: {error}"
                self._clock.wait(self._failed(Permanent(unexpected)), self._stopping)

    def _list(self) -> None:
        listing = self._lister.list(self._page_listed)
        self._sink.listed(self._resource.kind, listing)
        if not (self._cut and self._stale):
            self._heard = self._lister.began
        self._version = listing.resource_version
        self._known = True
        log.debug("%s: listed %d", self._resource.plural, len(listing.objects))

    def _page_listed(self, _: int) -> None:
        """Count the failures of each page of a list separately."""
        if self._lister.continues:
            self._failures = 0

    def _watch(self) -> None:
        """Run one watch until it ends."""
        opened = self._clock.monotonic()
        self._stream = stream = self._open()
        try:
            if self._stopping.is_set():  # stop() may have been called before the stream was set
                return
            self._broken += 1
            self._cut = True
            self._follow(stream)
            self._cut = False
        finally:
            self._stream = None
            stream.close()
        if self._broken and self._clock.monotonic() - opened < _SHORT_SECONDS:
            raise Retryable(f"watch {self._resource.plural}: the server ended the watch at once")
        self._failures = self._broken = 0
        if (self.age or 0.0) >= BOOKMARK_SECONDS:
            self._version = None

    def _open(self) -> ResponseStream:
        """Start a watch at the known version."""
        assert self._version is not None
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": f"{self._watch_seconds:.0f}",
            "resourceVersion": self._version,
        }
        return self._client.stream(
            f"watch {self._resource.plural}",
            self._resource.path,
            query=query | self._resource.query,
            idle_seconds=self._silence_seconds,
        )

    def _follow(self, stream: ResponseStream) -> None:
        self._sink.failing(self._resource.kind, None)
        for change in self._codec.changes(stream.chunks()):
            if change.type != "BOOKMARK":
                self._sink.changed(self._resource.kind, change)
            # Only after the sink has the change, so that a change that the sink failed to apply is sent again.
            self._version = change.resource_version or self._version
            self._failures = self._broken = 0
            self._cut, self._heard = False, self._clock.monotonic()

    def _refused(self, error: Forbidden | NotFound) -> float:
        """Handle 403 and 404. An optional kind that was never served counts as empty; others keep their last state.

        A missing permission is a failure, because it is unknown whether there are such objects.
        """
        if isinstance(error, Forbidden) or not self._resource.optional or self._known:
            return self._failed(error)
        if not self._absent:
            log.warning("%s: not served, assuming that there are none: %s", self._resource.plural, error)
            self._sink.listed(self._resource.kind, Listing([], "", {}))
            self._absent = True
        self._sink.failing(self._resource.kind, None)  # clear earlier errors
        self._failures += 1
        self._version = None
        return ABSENT_SECONDS

    def _failed(self, error: ReschedulerError) -> float:
        """Record a failure. Return the seconds until the next attempt."""
        if self._stopping.is_set():
            return 0.0
        self._failures += 1
        if isinstance(error, Expired):
            log.info("%s: listing again: %s", self._resource.plural, error)
            self._version = None
            return 0.0 if self._failures == 1 else delay(self._failures - 1)
        if self._broken >= _BROKEN_WATCHES:
            self._version, self._broken = None, 0
        self._sink.failing(self._resource.kind, error)
        return delay(self._failures, getattr(error, "retry_after", None))
