"""The possible label values of counters. A counter starts at 0 for each of them.

Prometheus computes an increase from two samples. A series that first appears with the value 1 has no increase, so an
alert would miss the first occurrence.
"""

from collections.abc import Iterator
from typing import Final

from rescheduler.draining.eviction_outcomes import EvictionResult
from rescheduler.observe.events import EvictionAnswered

#: HTTP status by result. A failed request has its own status, or none.
_CODES: Final = {EvictionResult.EVICTED: "201", EvictionResult.GONE: "404", EvictionResult.REFUSED: "429"}

#: HTTP statuses of failed eviction requests; "" if there was no response. The series of any other status is added when
#: the status occurs.
FAILURE_CODES: Final = (
    "", "400", "401", "403", "405", "408", "409", "410", "413", "415", "422", "429", "500", "502", "503", "504",
)  # fmt: skip

#: Responses of cloud providers: the values of :class:`rescheduler.providers.base.DeleteResult`.
REMOVAL_RESULTS: Final = ("deleted", "alreadygone", "accepted", "refused", "failed")

#: Values of the label ``result`` of the counter of drains.
DRAIN_RESULTS: Final = ("success", "failure")


def eviction_labels(event: EvictionAnswered) -> tuple[str, str]:
    """Return the labels ``result`` and ``code`` of a response to an eviction request."""
    return event.result, _CODES.get(event.result) or str(event.code or "")


def all_eviction_labels() -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``result`` and ``code`` that are known to occur."""
    yield from _CODES.items()
    for code in FAILURE_CODES:
        yield EvictionResult.FAILED, code
