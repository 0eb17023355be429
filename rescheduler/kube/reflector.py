"""One kind of object, kept the same as in the cluster: LIST once, then WATCH from there.

The rules are those of ``client-go/tools/cache/reflector.go``: a watch goes on where the last one ended; what
is too old to go on from (410) is listed again, and a list replaces all that was known of the kind, so that
what was deleted in between goes too.
"""

import logging
import threading
from typing import Final, Protocol

from rescheduler.clock import Clock
from rescheduler.errors import Expired, Forbidden, NotFound, Permanent, ReschedulerError, Retryable
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import Client, Stream
from rescheduler.kube.codec import Change
from rescheduler.kube.codecs import Codecs
from rescheduler.kube.lister import PAGE_SIZE, Lister, Listing
from rescheduler.kube.resources import Resource

#: How long the server keeps a watch open; a connection that is silent for longer than that is dead.
WATCH_SECONDS: Final = 90
SILENCE_SECONDS: Final = WATCH_SECONDS + 15.0

#: How often it is looked again for an optional kind that is not there.
ABSENT_SECONDS: Final = 300.0

#: The API server means to send a bookmark each minute, and one shortly before a watch ends; now and then it leaves
#: both out, and servers without a watch cache send none. A watch that ends after a longer silence is followed by a
#: list, so that a quiet kind of a healthy server never looks stale.
BOOKMARK_SECONDS: Final = 75.0

#: A kind of which nothing was heard for so long is listed before it is watched again.
RELIST_SECONDS: Final = 150.0

#: A server that ends watches sooner than this, and with nothing said, is not asked again at once.
_SHORT_SECONDS: Final = 1.0

#: Watches that opened and broke this often without an event in between: list again.
_BROKEN_WATCHES: Final = 3

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where a reflector puts what it sees. Called by the reflector's thread."""

    def listed(self, kind: str, listing: Listing) -> None:
        """All there is of the kind, in place of what was known."""
        ...

    def changed(self, kind: str, change: Change) -> None:
        """One object came, changed or went."""
        ...

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        """Why the kind cannot be read at present; None as soon as it can."""
        ...


class Reflector:
    """A thread that keeps one kind up to date in a sink."""

    def __init__(
        self,
        resource: Resource,
        client: Client,
        codecs: Codecs,
        sink: Sink,
        clock: Clock,
        *,
        page_size: int = PAGE_SIZE,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> None:
        self._resource = resource
        self._client = client
        self._codecs = codecs
        self._sink = sink
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._stopping = threading.Event()
        self._lister = Lister(resource, client, codecs, clock, self._stopping, page_size)
        self._version: str | None = None  #: where to go on watching; None: list first
        self._known = False  #: whether it was ever listed
        self._absent = False  #: an optional kind that counts as empty
        self._failures = 0  #: in a row, since something last came in
        self._broken = 0  #: watches that opened and broke, since something last came in
        self._cut = False  #: the last watch that opened broke before anything came in
        self._heard: float | None = None  #: when an event, a bookmark or a list last came in; None: never listed
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"reflect-{resource.plural}", daemon=True)

    @property
    def age(self) -> float | None:
        """Seconds since an event, a bookmark or a list last came in; None: never listed. Read by any thread.

        Once watches break before anything comes in, a list shows no longer that the kind is watched.
        """
        heard = self._heard
        return None if heard is None else self._clock.monotonic() - heard

    @property
    def _stale(self) -> bool:
        return (self.age or 0.0) >= RELIST_SECONDS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Make the thread end soon; an open watch is cut off."""
        self._stopping.set()
        if (stream := self._stream) is not None:
            stream.stop()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, after :meth:`stop`."""
        if self._thread.ident is not None:
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
        began = self._clock.monotonic()
        listing = self._lister.list()
        self._sink.listed(self._resource.kind, listing)
        if not (self._cut and self._stale):
            self._heard = began  # pages are of the moment of the first one
        self._version = listing.resource_version
        self._known = True
        log.debug("%s: listed %d", self._resource.plural, len(listing.objects))

    def _watch(self) -> None:
        """One watch, to its end."""
        assert self._version is not None
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
            "resourceVersion": self._version,
        } | self._resource.query
        opened = self._clock.monotonic()
        self._stream = stream = self._client.stream(
            f"watch {self._resource.plural}",
            self._resource.path,
            query=query,
            accept=self._codecs.accept,
            idle_seconds=self._silence_seconds,
        )
        try:
            if self._stopping.is_set():  # stop() may have come before the stream was known
                return
            self._broken += 1
            self._cut = True
            self._follow(stream)
            self._cut = False
        finally:
            self._stream = None
            stream.close()
        if self._broken and self._clock.monotonic() - opened < _SHORT_SECONDS:
            raise Retryable(f"watch {self._resource.plural}: the server ended it at once")
        self._failures = self._broken = 0
        if (self.age or 0.0) >= BOOKMARK_SECONDS:
            self._version = None

    def _follow(self, stream: Stream) -> None:
        self._sink.failing(self._resource.kind, None)
        for change in self._codecs.of(stream.content_type).changes(stream.chunks()):
            if change.type != "BOOKMARK":
                self._sink.changed(self._resource.kind, change)
            # Not before the sink has it: what a sink could not take comes again.
            self._version = change.resource_version or self._version
            self._failures = self._broken = 0
            self._cut, self._heard = False, self._clock.monotonic()

    def _refused(self, error: Forbidden | NotFound) -> float:
        """An optional kind that was never served counts as empty; of others the last state is kept.

        A missing right is a failure: nobody knows whether there are such objects.
        """
        if isinstance(error, Forbidden) or not self._resource.optional or self._known:
            return self._failed(error)
        if not self._absent:
            log.warning("%s: taken as none: %s", self._resource.plural, error)
            self._sink.listed(self._resource.kind, Listing([], "", {}))
            self._absent = True
        self._sink.failing(self._resource.kind, None)  # what failed before this was told
        self._failures += 1
        self._version = None
        return ABSENT_SECONDS

    def _failed(self, error: ReschedulerError) -> float:
        """Note a failure; seconds until the next try."""
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
