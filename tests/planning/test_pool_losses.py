"""Tests of the losses of pools: rates, waits that double and decay, the bounds of the memory."""

from datetime import datetime, timedelta

import pytest

from rescheduler.durations import Backoff
from rescheduler.planning.memory import Memory, fitted, load
from rescheduler.planning.pools import HALF_LIFE, MOST_POOLS, PoolLosses, PoolRecord
from rescheduler.planning.waits import Pause, Waits
from tests.planning.builders import NOW

WAIT = Backoff(timedelta(minutes=10), timedelta(hours=6))
HOUR = timedelta(hours=1)


def at(hours: float) -> datetime:
    return NOW + hours * HOUR


#: case: hours at which the pool loses a node → for how many minutes it is not trusted after the last one
WAITS: dict[str, tuple[list[float], float]] = {
    "once": ([0], 10),
    "twice": ([0, 1], 20),
    "three times": ([0, 1, 2], 40),
    "often": ([0, 1, 2, 3, 4, 5, 6], 360),
    "very often": ([float(hour) for hour in range(12)], 360),
    "one event of many losses": ([0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4], 10),
    "two events": ([0, 0.05, 0.1, 0.5, 0.55], 20),
    "a quiet time forgives one loss": ([0, 1, 7.5], 20),
    "a long quiet time forgives all": ([0, 1, 2, 3, 40], 10),
}


@pytest.mark.parametrize(("hours", "minutes"), WAITS.values(), ids=WAITS)
def test_the_wait_doubles_with_each_event_and_decays(hours: list[float], minutes: float) -> None:
    pools = PoolLosses()
    for hour in hours:
        pools = pools.observed({}, {"a/x": 1}, at(hour), WAIT)
    end = at(hours[-1]) + timedelta(minutes=minutes)
    assert pools.settling(at(hours[-1])) == {"a/x": end}
    assert pools.settling(end - timedelta(seconds=1)) == {"a/x": end}
    assert pools.settling(end) == {}


def test_other_pools_are_trusted() -> None:
    pools = PoolLosses().observed({"a/x": 2, "b/x": 2}, {"a/x": 1}, at(0), WAIT)
    assert pools.settling(at(0)) == {"a/x": at(0) + timedelta(minutes=10)}


def test_without_a_cooldown_losses_are_counted_and_pools_are_trusted() -> None:
    never = Backoff(timedelta(), 6 * HOUR)
    pools = PoolLosses().observed({}, {"a/x": 2}, at(0), never)
    assert (pools.settling(at(0)), pools.by_pool["a/x"].losses) == ({}, 2)
    waiting = PoolLosses().observed({}, {"a/x": 1}, at(0), WAIT)
    assert waiting.bounded(at(0), never).settling(at(0)) == {}


def rate(pools: PoolLosses, hours: float) -> float:
    [state] = pools.states({}, {}, at(hours))
    return state.per_node_hour


def test_the_rate_is_of_losses_per_node_hour() -> None:
    pools = PoolLosses()
    for hour in range(10):
        pools = pools.observed({"a/x": 10}, {"a/x": 1} if hour == 9 else {}, at(hour), WAIT)
    assert rate(pools, 9) == pytest.approx(1 / 100, rel=0.15)
    quiet = pools
    for hour in range(10, 10 + 7 * 24):
        quiet = quiet.observed({"a/x": 10}, {}, at(hour), WAIT)
    assert rate(quiet, 10 + 7 * 24) < rate(pools, 9) / 100


def test_a_loss_and_an_hour_count_half_after_the_half_life() -> None:
    record = PoolRecord(at=NOW, recent=4.0, node_hours=100.0).decayed(NOW + HALF_LIFE)
    assert (record.recent, record.node_hours, record.per_node_hour) == (2.0, 50.0, 0.04)


def test_the_first_minutes_of_a_pool_give_no_huge_rate() -> None:
    assert rate(PoolLosses().observed({"a/x": 0.01}, {"a/x": 1}, at(0), WAIT), 0) == 1.0


def test_hours_that_are_not_recorded_yet_lower_the_rate() -> None:
    pools = PoolLosses().observed({"a/x": 10}, {"a/x": 1}, at(0), WAIT)
    [state] = pools.states({"a/x": 5}, {"a/x": 10.0}, at(0))
    assert (state.nodes, state.losses, state.per_node_hour) == (5, 1, 0.05)


def test_the_worst_pools_come_first() -> None:
    pools = PoolLosses().observed({"a/x": 10, "b/x": 10, "c/x": 10}, {"b/x": 1}, at(0), WAIT)
    pools = pools.observed({}, {"c/x": 1}, at(1), WAIT)
    assert [state.name for state in pools.states({"a/x": 3, "d/x": 9}, {}, at(1.1))] == ["c/x", "b/x", "d/x", "a/x"]


def test_the_number_of_pools_is_bounded() -> None:
    pools = PoolLosses().observed({f"a/{number}": 1.0 for number in range(500)}, {"a/499": 1, "b/1": 1}, at(0), WAIT)
    kept = pools.current(at(0))
    assert len(kept.by_pool) == MOST_POOLS
    assert {"a/499", "b/1"} <= kept.by_pool.keys()
    assert len(pools.states({f"c/{number}": 1 for number in range(500)}, {}, at(0))) == MOST_POOLS


def test_pools_without_nodes_are_forgotten_when_their_losses_count_for_nothing() -> None:
    pools = PoolLosses().observed({"a/x": 5, "b/x": 5}, {"b/x": 1}, at(0), WAIT)
    assert pools.current(at(0), {}).by_pool.keys() == {"b/x"}
    assert pools.current(at(24), {}).by_pool.keys() == {"b/x"}
    assert pools.current(at(24 * 7), {}).by_pool.keys() == set()
    assert pools.current(at(24 * 7), {"a/x": 1}).by_pool.keys() == {"a/x"}


def test_stored_times_are_limited() -> None:
    """The clock of the process that wrote them was wrong, or its flags were others."""
    record = PoolRecord(at=at(100), losses=1, recent=1.0, last=at(100), wait=Pause(9, at(1000)))
    bounded = PoolLosses({"a/x": record}).bounded(at(0), WAIT)
    assert bounded.settling(at(0)) == {"a/x": at(6)}
    assert bounded.by_pool["a/x"].last == at(0)


def test_the_memory_keeps_pools() -> None:
    pools = PoolLosses().observed({"a/x": 2.5}, {"a/x": 1}, at(0), WAIT)
    memory = Memory(pools=pools)
    assert load(fitted(memory).content).pools == pools
    assert memory.bounded(at(0), Waits()).current(at(0), Waits()).pools == pools
    assert "spot pools that are not trusted: a/x" in memory.summary(at(0))
    assert "not trusted" not in memory.summary(at(1))


def test_pools_with_endless_names_are_dropped() -> None:
    pools = PoolLosses().observed({}, {"x" * 2000: 1, "a/x": 1}, at(0), WAIT)
    stored = fitted(Memory(pools=pools))
    assert (list(stored.memory.pools.by_pool), dict(stored.dropped)) == (["a/x"], {"pool": 1})
