"""Waits for a system end at their deadline or when the program stops; the error message states the cause."""

import threading

import pytest

from rescheduler.errors import DeadlineExceeded
from rescheduler.providers.deleting import PolledSystem
from tests.providers.clocks import StepClock


def message_of(deadline: float, *, ends: bool) -> str:
    clock, stop = StepClock(), threading.Event()
    if ends:
        stop.set()
    with pytest.raises(DeadlineExceeded) as caught:
        PolledSystem("pool p", clock, 2.0, settle=60.0).pause("its view is old", clock.monotonic() + deadline, stop)
    return str(caught.value)


def test_a_wait_ends_if_its_deadline_is_before_the_next_poll() -> None:
    assert message_of(1, ends=False) == "pool p: its view is old"


def test_a_wait_ends_when_the_program_stops() -> None:
    assert message_of(60, ends=True) == "pool p: its view is old; stopping"
