"""Who waits for a system ends at its deadline, or when the program ends, and says which."""

import threading

import pytest

from rescheduler.backends.base import DeadlineExceeded
from rescheduler.backends.waiting import Waiting
from tests.backends.clocks import StepClock


def told(deadline: float, *, ends: bool) -> str:
    clock, stop = StepClock(), threading.Event()
    if ends:
        stop.set()
    with pytest.raises(DeadlineExceeded) as caught:
        Waiting("pool p", clock, 2.0).pause("its view is old", clock.monotonic() + deadline, stop)
    return str(caught.value)


def test_a_deadline_that_comes_before_the_next_look() -> None:
    assert told(1, ends=False) == "pool p: its view is old"


def test_the_end_of_the_program() -> None:
    assert told(60, ends=True) == "pool p: its view is old; we were told to end"
