"""Pending pods delay drains for a limited time, whatever a namespace does with them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from predicates.objects import Pod
from predicates.wire import Decoder, Interner
from rescheduler.housekeeping.loop import PendingDelays
from tests.planning.builders import pod

START = datetime(2026, 3, 1, tzinfo=UTC)
PATIENCE = 600
ROUND = 10
DAY = 24 * 3600

#: The seconds after the start at which a namespace has a pending pod.
HABITS: dict[str, Callable[[int], bool]] = {
    "always": lambda _: True,
    "created again every 30 s": lambda second: second % 30 < 20,
    "a new pod every 590 s": lambda second: second % 590 < 60,
    "in turns of 10 minutes": lambda second: second // 600 % 2 == 0,
    "in turns of an hour": lambda second: second // 3600 % 2 == 0,
}


def pending(namespace: str) -> Pod:
    decoded = Decoder(Interner()).decode("Pod", msgspec.json.encode(pod(f"{namespace}/waits-1")))
    assert isinstance(decoded, Pod)
    return decoded


WAITS = pending("noisy")
OTHER = pending("shop")


def rounds(habit: Callable[[int], bool], seconds: int) -> tuple[PendingDelays, list[bool]]:
    """Return whether drains are delayed in each round of a namespace with this *habit*."""
    delays = PendingDelays(timedelta(seconds=PATIENCE))
    held = [
        bool(delays.delaying([WAITS] if habit(second) else [], START + timedelta(seconds=second)))
        for second in range(0, seconds, ROUND)
    ]
    return delays, held


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
def test_a_namespace_delays_at_most_a_fifth_of_the_rounds_of_a_day(habit: Callable[[int], bool]) -> None:
    _, held = rounds(habit, DAY)
    assert 0 < sum(held) < len(held) / 5


@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
def test_other_namespaces_keep_their_patience(habit: Callable[[int], bool]) -> None:
    delays, _ = rounds(habit, DAY)
    now = START + timedelta(days=1)
    assert OTHER in delays.delaying([WAITS, OTHER], now)
    assert OTHER in delays.delaying([WAITS, OTHER], now + timedelta(seconds=PATIENCE))
    assert delays.delaying([WAITS, OTHER], now + timedelta(seconds=PATIENCE + 1)) == []


def test_the_patience_is_regained() -> None:
    delays, held = rounds(lambda second: second < 2 * PATIENCE, 2 * PATIENCE + 11 * PATIENCE)
    assert sum(held) == PATIENCE // ROUND + 1
    assert delays.delaying([WAITS], START + timedelta(seconds=14 * PATIENCE)) == [WAITS]
