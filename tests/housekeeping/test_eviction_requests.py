"""Drains with ``--eviction=request`` in the in-memory cluster, also with a kill at each write."""

from dataclasses import replace
from typing import Final

import pytest

from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded, EvictionAnswered
from tests.housekeeping.test_conditions import ONE_NODE
from tests.housekeeping.test_kills import TIMING, SimulatedKill, kill_at
from tests.housekeeping.world import LIMITS, LoopWorld, Replacement, world

REQUESTS: Final = replace(LIMITS, requests=True, landing=30)
WRITES: Final = 7  #: mark, debts, two requests, withdrawal, release, and the sweep of the first round


def names(here: LoopWorld) -> list[str]:
    return [name for name, _ in here.writes]


def test_pods_move_by_requests_which_are_withdrawn_before_the_release() -> None:
    with world(*ONE_NODE) as here:
        assert here.loop(limits=REQUESTS).round() is RoundOutcome.DRAINED
        written = [name for name in names(here) if name != "taint"]
        assert written == ["withdraw", "request", "request", "withdraw", "untaint"]
        results = [event.result for event in here.of(EvictionAnswered)]
        assert sorted(results) == ["evicted", "evicted", "requested", "requested"]
        assert here.requests.open == {}


@pytest.mark.parametrize("missing", ["served", "taken"])
def test_where_nobody_handles_requests_the_eviction_api_is_used(missing: str) -> None:
    with world(*ONE_NODE) as here:
        setattr(here.requests, missing, False)
        assert here.loop(limits=REQUESTS).round() is RoundOutcome.DRAINED
        assert (names(here).count("evict"), here.requests.open) == (2, {})
        assert names(here).count("request") == (0 if missing == "served" else 1)


def test_a_rollback_withdraws() -> None:
    with world(*ONE_NODE) as here:
        here.requests.evicts = False
        here.stop_at(60)
        here.loop(TIMING, limits=REQUESTS).run()
        [ended] = here.of(DrainEnded)
        assert ended.failure is not None
        assert (ended.evicted, here.requests.open, here.marked) == ((), {}, [])


def test_requests_of_an_earlier_process_are_withdrawn_by_the_first_round() -> None:
    with world(*ONE_NODE[:2]) as here:
        here.requests.open["gone"] = here.requests.open["other"] = object()  # type: ignore[assignment]
        loop = here.loop(limits=REQUESTS)
        for _ in range(3):
            loop.round()
        assert (here.requests.open, names(here).count("withdraw")) == ({}, 1)


KILLS: Final = [(write, True) for write in range(1, WRITES + 1)] + [(4, False), (5, False)]


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize(("write", "evicts"), KILLS)
def test_no_request_is_left_after_a_kill_at_any_write(write: int, evicts: bool, after: bool) -> None:
    with world(*ONE_NODE) as here:
        kill_at(here, write, (here.requests, "create"), (here.requests, "withdraw_all"), after=after)
        here.requests.evicts = evicts
        here.replacements["web"] = Replacement.READY
        here.stop_at(150)
        with pytest.raises(SimulatedKill):
            here.loop(TIMING, holder="first", limits=REQUESTS).run()
        here.pass_time(15)
        here.leading = True
        here.loop(TIMING, holder="second", limits=REQUESTS).run()
        assert (here.requests.open, here.marked) == ({}, [])
        assert len(here.cluster.pods) == 2
