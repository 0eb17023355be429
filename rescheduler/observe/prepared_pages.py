"""Pages that are rendered before they are requested: at the end of each round, as long as clients request them."""

import hashlib
import threading
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry

from rescheduler.clock import Clock, SystemClock
from rescheduler.observe.events import DrainStarted, Event, Planned, RoundEnded, Surveyed
from rescheduler.observe.exposition import Exposition, content_type_of
from rescheduler.observe.status import Board, Status
from rescheduler.observe.status_json import StatusJson
from rescheduler.observe.status_page import StatusPage

#: How long a rendered page is served after the board has changed, in seconds.
_PAGE_SECONDS: Final = 1.0

#: The same for prepared pages and metrics: longer than the default interval between rounds.
PREPARED_SECONDS: Final = 15.0

#: A page is prepared for this many seconds after it was last requested.
_REQUESTED_SECONDS: Final = 120.0

#: During a drain, metrics are rendered again at most once in this many seconds.
_DRAIN_SECONDS: Final = 1.0


class Rendered:
    """A page of the status board. Requests get the last rendered page if it is at most :attr:`patience` seconds old."""

    def __init__(self, status: Status, render: Callable[[Board], bytes], clock: Clock | None = None) -> None:
        self.patience = _PAGE_SECONDS
        self._status, self._render, self._clock = status, render, clock or SystemClock()
        self._lock = threading.Lock()
        self._board: Board | None = None
        self._page = b"", ""
        self._rendered_at = 0.0
        self._requested_at: float | None = None

    def cached(self) -> tuple[bytes, str] | None:
        """Return the rendered page if it may still be served, or while a new one is rendered; otherwise None."""
        self._requested_at = self._clock.monotonic()
        if self._board is None:
            return None
        current = self._board is self._status.board or self._requested_at < self._rendered_at + self.patience
        return self._page if current or self._lock.locked() else None

    def current(self) -> tuple[bytes, str]:
        """Return the current page and its entity tag, or the rendered ones if they may still be served."""
        with self._lock:
            if self._board is None or self._clock.monotonic() >= self._rendered_at + self.patience:
                self._update()
            return self._page

    def prepare(self) -> None:
        """Render the current page if it was requested recently."""
        if _is_recent(self._requested_at, self._clock):
            with self._lock:
                self._update()

    def _update(self) -> None:
        board = self._status.board
        if board is not self._board:
            content = self._render(board)
            self._page = content, f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
            self._board, self._rendered_at = board, self._clock.monotonic()


class RenderedMetrics:
    """The rendered metrics in each format that was requested. Thread-safe."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None, keep: float = PREPARED_SECONDS) -> None:
        """Create the cache. *keep* is how long rendered metrics are served, in seconds."""
        self._exposition, self._clock, self._keep = Exposition(registry), clock or SystemClock(), keep
        self._texts: dict[str, tuple[bytes, float]] = {}  # the text and when it was rendered, by content type
        self._accepted: dict[str, str] = {}  # an Accept header for each content type
        self._requested_at: float | None = None

    def cached(self, accept: str) -> tuple[bytes, str] | None:
        """Return the rendered metrics and their content type, or None if they are too old."""
        self._requested_at = self._clock.monotonic()
        content_type = content_type_of(accept)
        text, at = self._texts.get(content_type, (b"", 0.0))
        return (text, content_type) if text and self._requested_at < at + self._keep else None

    def current(self, accept: str) -> tuple[bytes, str]:
        """Render the metrics now. Return them with their content type."""
        content_type, at = content_type_of(accept), self._clock.monotonic()
        text = self._exposition.render(accept)
        if self._keep:
            self._accepted[content_type] = accept
            self._texts[content_type] = text, at
        return text, content_type

    def prepare(self, least_age: float = 0.0) -> None:
        """Render the metrics, if they were requested recently and are at least *least_age* seconds old."""
        if not _is_recent(self._requested_at, self._clock):
            return
        for content_type, accept in list(self._accepted.items()):
            if self._clock.monotonic() - self._texts[content_type][1] >= least_age:
                self.current(accept)


class PreparedPages:
    """A listener that prepares the pages. It must be notified after the listeners that it renders.

    Between drains, requests get the pages of the last round. During a drain, which has no rounds, status pages are
    rendered on request, and metrics at most once a second.
    """

    def __init__(self, registry: CollectorRegistry, status: Status, clock: Clock | None = None) -> None:
        page, plain = StatusPage(), StatusJson()
        self.metrics = RenderedMetrics(registry, clock)
        self.html = Rendered(status, lambda board: page.as_html(board).encode(), clock)
        self.plain = Rendered(status, plain.as_bytes, clock)
        self._draining = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, DrainStarted):
            self._draining = True
        elif isinstance(event, RoundEnded):
            self._draining = False
        self.html.patience = self.plain.patience = _PAGE_SECONDS if self._draining else PREPARED_SECONDS
        if isinstance(event, Planned | Surveyed | RoundEnded):
            self.html.prepare()
            self.plain.prepare()
        if isinstance(event, RoundEnded):
            self.metrics.prepare()
        elif self._draining:
            self.metrics.prepare(_DRAIN_SECONDS)


def _is_recent(requested_at: float | None, clock: Clock) -> bool:
    return requested_at is not None and clock.monotonic() - requested_at < _REQUESTED_SECONDS
