"""What an error means for an order, and when the order is repeated: the same for all systems."""

import datetime as dt

import httpx2
import pytest

from rescheduler import errors
from rescheduler.durations import Backoff
from rescheduler.net.http_errors import HttpResponse, InvalidResponse, NoResponse, Unsent, response_error
from rescheduler.providers.base import Accepted, Failed
from rescheduler.providers.order_life import OrderResult, OrderTimeouts, result_of, without_answer
from tests.providers.clocks import START

BACKOFF = Backoff(dt.timedelta(seconds=2), dt.timedelta(seconds=30))
CAREFUL = OrderTimeouts(dt.timedelta(seconds=100), BACKOFF)
IDEMPOTENT = OrderTimeouts(dt.timedelta(seconds=100), BACKOFF, idempotent=True)


def status(code: int) -> errors.ReschedulerError:
    return response_error(HttpResponse(code, httpx2.Headers(), b""), "no", None)


#: fact: (error, result, outcome if repeating cannot help); failures of 500 count as reported by the system
RESULTS: dict[str, tuple[errors.ReschedulerError, OrderResult, Failed | None]] = {
    "404": (status(404), OrderResult.MISSING, None),
    "500, from the system": (status(500), OrderResult.FAULT, None),
    "502, from a gateway": (status(502), OrderResult.NONE, None),
    "504, from a gateway": (status(504), OrderResult.NONE, None),
    "408": (status(408), OrderResult.NONE, None),
    "429": (status(429), OrderResult.UNSENT, None),
    "401": (status(401), OrderResult.UNSENT, Failed("no", retryable=True)),
    "403": (status(403), OrderResult.UNSENT, Failed("no", retryable=True)),
    "400": (status(400), OrderResult.UNSENT, Failed("no", retryable=False)),
    "501": (status(501), OrderResult.UNSENT, Failed("no", retryable=False)),
    "no connection": (Unsent("no"), OrderResult.UNSENT, None),
    "no time to send it": (errors.DeadlineExceeded("no"), OrderResult.UNSENT, None),
    "a lost response": (NoResponse("no"), OrderResult.NONE, None),
    "an invalid response": (InvalidResponse("no"), OrderResult.NONE, None),
    "any other error": (errors.NotFound("no"), OrderResult.NONE, None),
}


@pytest.mark.parametrize("fact", RESULTS)
def test_an_error_tells_whether_the_order_may_take_effect(fact: str) -> None:
    error, result, failed = RESULTS[fact]
    assert result_of(error, lambda fault: fault.response.status == httpx2.codes.INTERNAL_SERVER_ERROR) == (
        result,
        failed,
    )
    assert result.without_effect is (result in {OrderResult.FAULT, OrderResult.UNSENT})


#: result: seconds until the third attempt is repeated, if repeating does harm and if it does not
PAUSES: dict[OrderResult, tuple[int, int]] = {
    OrderResult.DONE: (100, 100),
    OrderResult.NONE: (100, 8),
    OrderResult.FAULT: (8, 8),
    OrderResult.UNSENT: (8, 8),
}


@pytest.mark.parametrize("result", PAUSES)
def test_an_order_is_repeated_when_that_does_no_harm(result: OrderResult) -> None:
    pauses = [timeouts.pause(result, 3).total_seconds() for timeouts in (CAREFUL, IDEMPOTENT)]
    assert tuple(pauses) == PAUSES[result]


def test_an_order_is_pending_for_the_settle_time() -> None:
    times = [START + dt.timedelta(seconds=seconds) for seconds in (0, 100, 100.1)]
    assert [CAREFUL.pending(START, now) for now in times] == [START, START, None]
    assert CAREFUL.pending(None, START) is None


def test_without_an_answer_only_an_earlier_order_may_take_effect() -> None:
    assert without_answer("late", ordered=True) == Accepted("an earlier order may still take effect: late")
    assert without_answer("late", ordered=False) == Failed("late", retryable=True)
