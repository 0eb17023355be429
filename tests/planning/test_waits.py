"""Tests of waits that double, and of cooldowns of nodes."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rescheduler.durations import Backoff, Pauses
from rescheduler.planning.waits import Cooldown, Cooldowns, Pause
from tests.planning.builders import NOW

MINUTE = timedelta(minutes=1)
WAIT = Backoff(5 * MINUTE, 30 * MINUTE)


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (WAIT, [5, 10, 20, 30, 30]),
        (Backoff(timedelta(), 30 * MINUTE), [0, 0, 0, 0, 0]),
        (Backoff(MINUTE, MINUTE), [1, 1, 1, 1, 1]),
    ],
)
def test_waits_double_up_to_the_maximum(wait: Backoff, expected: list[int]) -> None:
    assert [wait.after(times) for times in range(1, 6)] == [minutes * MINUTE for minutes in expected]
    assert wait.after(10**9) == (wait.longest if wait.first else timedelta())


def test_a_pause_is_active_until_its_end() -> None:
    first = Pause().lengthened(NOW, WAIT)
    second = first.lengthened(NOW, WAIT)
    assert (first, second) == (Pause(1, NOW + 5 * MINUTE), Pause(2, NOW + 10 * MINUTE))
    assert Pause().active(NOW) is None
    assert first.active(NOW + 5 * MINUTE - timedelta(seconds=1)) == NOW + 5 * MINUTE
    assert first.active(NOW + 5 * MINUTE) is None


def test_a_pause_of_a_wrong_clock_is_limited_to_the_maximum() -> None:
    assert Pause(3, NOW + 1000 * MINUTE).bounded(NOW, WAIT) == Pause(3, NOW + 30 * MINUTE)
    assert Pause(3, NOW + 30 * MINUTE).bounded(NOW, WAIT) == Pause(3, NOW + 30 * MINUTE)
    assert Pause().bounded(NOW, WAIT) == Pause()


def test_a_further_failure_extends_the_cooldown() -> None:
    once = Cooldowns().failed("a", "uid", NOW, WAIT)
    twice = once.failed("a", "uid", NOW + MINUTE, WAIT, "eviction-refused", "x" * 1000)
    assert once.by_node == {"a": Cooldown("uid", 1, NOW + 5 * MINUTE)}
    assert twice.by_node == {"a": Cooldown("uid", 2, NOW + 11 * MINUTE, "eviction-refused", "x" * 300)}
    assert twice.active(NOW + 11 * MINUTE) == {}
    assert twice.active(NOW + 10 * MINUTE) == twice.by_node


def test_a_new_node_of_the_same_name_starts_with_the_first_wait() -> None:
    again = Cooldowns().failed("a", "uid", NOW, WAIT).failed("a", "another", NOW, WAIT)
    assert again.by_node == {"a": Cooldown("another", 1, NOW + 5 * MINUTE)}


def test_a_success_ends_the_cooldown() -> None:
    failed = Cooldowns().failed("a", "uid-a", NOW, WAIT).failed("b", "uid-b", NOW, WAIT)
    assert failed.succeeded("a") == Cooldowns().failed("b", "uid-b", NOW, WAIT)
    assert failed.succeeded("c") is failed


def test_cooldowns_of_deleted_or_replaced_nodes_are_removed() -> None:
    failed = Cooldowns().failed("a", "uid-a", NOW, WAIT).failed("b", "uid-b", NOW, WAIT).failed("c", "uid-c", NOW, WAIT)
    assert failed.kept({"a": "uid-a", "b": "another", "d": "uid-d"}) == Cooldowns().failed("a", "uid-a", NOW, WAIT)
    assert failed.kept({"a": "uid-a", "b": "uid-b", "c": "uid-c"}) is failed


def test_a_cooldown_of_a_wrong_clock_is_limited_to_the_maximum() -> None:
    failed = Cooldowns().failed("a", "uid", NOW + 1000 * MINUTE, WAIT)
    assert failed.bounded(NOW, WAIT).by_node == {"a": Cooldown("uid", 1, NOW + 30 * MINUTE)}
    assert Cooldowns().failed("a", "uid", NOW, WAIT).bounded(NOW, WAIT).by_node == {
        "a": Cooldown("uid", 1, NOW + 5 * MINUTE)
    }


def test_pauses_double_by_key() -> None:
    pauses = Pauses(WAIT)
    pauses.failed("a", 0)
    pauses.failed("b", 0)
    pauses.failed("a", 300)
    assert [pauses.active(key, 300) for key in ("a", "b", "c")] == [True, False, False]
    assert [pauses.active("a", now) for now in (899, 900)] == [True, False]


#: an action on a key after a pause from 0 to 300 s: when its pause after a second failure, at 2000 s, ends
FORGOTTEN: dict[str, tuple[Callable[[Pauses], None], int]] = {
    "nothing": (lambda _: None, 2600),
    "a success": (lambda pauses: pauses.succeeded("a"), 2300),
    "a key that is not kept": (lambda pauses: pauses.keep(["b"]), 2300),
    "a key that is kept": (lambda pauses: pauses.keep(["a"]), 2600),
    "shorter than the longest pause": (lambda pauses: pauses.forget_old(2099), 2600),
    "as long as the longest pause": (lambda pauses: pauses.forget_old(2100), 2300),
}


@pytest.mark.parametrize("fact", FORGOTTEN)
def test_expired_failures_restart_with_the_first_wait(fact: str) -> None:
    event, end = FORGOTTEN[fact]
    pauses = Pauses(WAIT)
    pauses.failed("a", 0)
    event(pauses)
    pauses.failed("a", 2000)
    assert [pauses.active("a", now) for now in (end - 1, end)] == [True, False]
