"""Wait for a condition with a deadline."""

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay

#: The interval between two calls grows with the time that was waited, so that long waits cost little CPU time.
MIN_SECONDS, MAX_SECONDS = 0.05, 0.3
GROWTH = 0.05  #: of the interval, per second

_Result = TypeVar("_Result")


def poll(
    condition: Callable[[], _Result], seconds: float, *, patient_with: tuple[type[Exception], ...] = ()
) -> _Result:
    """Call *condition* until it returns a true value, and return that value.

    Exceptions in *patient_with* count as a false value; others propagate. Raises tenacity.RetryError after *seconds*.
    """
    retry = retry_if_result(lambda result: not result) | retry_if_exception_type(patient_with)
    return Retrying(retry=retry, stop=stop_after_delay(seconds), wait=_interval)(condition)


def _interval(state: RetryCallState) -> float:
    return min(MIN_SECONDS + GROWTH * (state.seconds_since_start or 0.0), MAX_SECONDS)
