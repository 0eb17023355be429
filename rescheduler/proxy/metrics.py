"""The proxy's metrics for Prometheus, in addition to the drain metrics of :mod:`rescheduler.observe.metrics`."""

import enum
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rescheduler.observe.events import Chosen, Event
from rescheduler.observe.metric_families import PREFIX
from rescheduler.planning.outcome import Reason
from rescheduler.proxy.paths import Operation

NAME: Final = f"{PREFIX}proxy_"

#: The code of a request whose client disconnected before the response began.
UNANSWERED: Final = "none"

#: The response codes with which the counter of requests is initialized; others are added when they occur.
_CODES: Final = ("200", "400", "401", "403", "404", "405", "413", "500", "502", "503", "504", UNANSWERED)
#: The operations that remove machines.
_UPDATES: Final = (Operation.SIZE, Operation.TERMINATE, Operation.DETACH, Operation.MEMBERSHIP)

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)
_SLOW: Final = (0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600)


class UpdateResult(enum.StrEnum):
    """How an update ended (a metric label)."""

    DONE = "done"
    PARTLY = "partly"  #: fewer machines were removed than requested
    FAILED = "failed"
    LATE = "queue-timeout"  #: it timed out in the queue
    LEFT = "client-gone"  #: the client disconnected while it was queued


class ProxyMetrics:
    """Metrics of requests and updates, which the proxy reports, and of victims, which events report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{NAME}requests", "Requests of the pool's clients.", ("route", "code"), registry=registry
        )
        self._forwards = Histogram(
            f"{NAME}forward_duration_seconds",
            "Forwarded requests, until the last byte of the response.",
            buckets=_QUICK,
            registry=registry,
        )
        self._updates = Counter(
            f"{NAME}updates", "Requested removals by result.", ("operation", "result"), registry=registry
        )
        self._seconds = Histogram(
            f"{NAME}update_duration_seconds",
            "Removals, without their time in the queue.",
            ("operation",),
            buckets=_SLOW,
            registry=registry,
        )
        self._waiting = Gauge(f"{NAME}updates_waiting", "Removals in the queue.", registry=registry)
        self._victims = Counter(f"{NAME}victims", "Nodes chosen for removal.", registry=registry)
        self._rejections = Counter(
            f"{NAME}rejections", "Nodes rejected for removal, per request.", ("reason",), registry=registry
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        for route, code in itertools.product(Operation, _CODES):
            self._requests.labels(route, code)
        for operation, result in itertools.product(_UPDATES, UpdateResult):
            self._updates.labels(operation, result)
        for reason in Reason:
            self._rejections.labels(reason)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Chosen):
            self._victims.inc(len(event.plans))
            for rejected in event.rejected:
                self._rejections.labels(rejected.blockers[0].reason).inc()

    def answered(self, route: str, code: str) -> None:
        self._requests.labels(route, code).inc()

    def forwarding(self) -> AbstractContextManager[object]:
        """Measure the duration of the block."""
        return self._forwards.time()

    def updated(self, operation: str, result: UpdateResult) -> None:
        self._updates.labels(operation, result).inc()

    def updating(self, operation: str) -> AbstractContextManager[object]:
        """Measure the duration of the block."""
        return self._seconds.labels(operation).time()

    def waiting_are(self, count: Callable[[], int]) -> None:
        """Call *count* at each scrape for the number of queued updates."""
        self._waiting.set_function(count)
