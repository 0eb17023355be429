"""What the proxy counts for Prometheus, beside the drains of :mod:`rescheduler.observe.metrics`."""

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rescheduler.observe.events import Chosen, Event
from rescheduler.observe.metrics import PREFIX

NAME: Final = f"{PREFIX}proxy_"

#: The code of a request whose client left before an answer began.
UNANSWERED: Final = "none"

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30, 300)
_SLOW: Final = (0.1, 1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600)


class Result(enum.StrEnum):
    """How an update ended."""

    DONE = "done"
    PARTLY = "partly"  #: fewer machines went than were to go
    FAILED = "failed"
    LATE = "queue-timeout"  #: its turn never came
    LEFT = "client-gone"  #: nobody waited for its turn any more


class ProxyMetrics:
    """Counts requests and updates as it is told, and victims as a listener."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{NAME}requests", "Requests of the pool's clients.", ("route", "code"), registry=registry
        )
        self._forwards = Histogram(
            f"{NAME}forward_duration_seconds",
            "Forwarded requests, to the last byte of the answer.",
            buckets=_QUICK,
            registry=registry,
        )
        self._updates = Counter(
            f"{NAME}updates", "Removals asked for, by how they ended.", ("operation", "result"), registry=registry
        )
        self._seconds = Histogram(
            f"{NAME}update_duration_seconds",
            "Removals, their wait for a turn left out.",
            ("operation",),
            buckets=_SLOW,
            registry=registry,
        )
        self._waiting = Gauge(f"{NAME}updates_waiting", "Removals that wait for those before them.", registry=registry)
        self._victims = Counter(f"{NAME}victims", "Nodes chosen to be given up.", registry=registry)
        self._rejections = Counter(
            f"{NAME}rejections", "Nodes that stay, each time they are asked for.", ("reason",), registry=registry
        )

    def __call__(self, event: Event) -> None:
        if isinstance(event, Chosen):
            self._victims.inc(len(event.plans))
            for one in event.rejected:
                self._rejections.labels(one.blockers[0].reason).inc()

    def answered(self, route: str, code: str) -> None:
        self._requests.labels(route, code).inc()

    def forwarding(self) -> AbstractContextManager[object]:
        """Measures the block."""
        return self._forwards.time()

    def updated(self, operation: str, result: Result) -> None:
        self._updates.labels(operation, result).inc()

    def updating(self, operation: str) -> AbstractContextManager[object]:
        """Measures the block."""
        return self._seconds.labels(operation).time()

    def waiting_are(self, count: Callable[[], int]) -> None:
        """*count* tells at each scrape how many updates wait."""
        self._waiting.set_function(count)
