"""Manual pauses, and windows in which drains may start, over several rounds of the daemon."""

from datetime import timedelta

import pytest

from rescheduler.draining.state import Why
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded, DrainStarted, Held, PauseChanged, Planned, Waiting
from rescheduler.planning.pauses import parse_window
from rescheduler.providers.base import Accepted, Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import LoopWorld, Replacement, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod

CLUSTER = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="16"),
    pod("web-1", "od-1"),
    pod("web-2", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
    pod("db-3", "od-2"),
)
PAUSE = "drains are paused: a release"
MINUTE = 60.0


def pause_at(here: LoopWorld, seconds: float, text: str = PAUSE) -> None:
    here.at(seconds, lambda: setattr(here, "paused", text))


def waits(here: LoopWorld) -> list[Held]:
    return here.of(Held)


def test_no_drain_starts_while_drains_are_paused_and_nodes_are_still_planned() -> None:
    with world(*CLUSTER) as here:
        here.paused = PAUSE
        pause_at(here, 5 * MINUTE, "")
        here.stop_at(6 * MINUTE)
        here.loop().run()
        assert waits(here)[0] == Held(Waiting.PAUSED, PAUSE)
        assert [event.paused for event in here.of(PauseChanged)] == [PAUSE, ""]
        assert [5 * MINUTE <= at <= 5 * MINUTE + 10 for at in here.times(DrainStarted)] == [True]
        assert sum(at < 5 * MINUTE for at, event in here.reported if isinstance(event, Planned)) == 5


def test_a_replica_that_does_not_lead_shows_the_pause() -> None:
    with world(*CLUSTER) as here:
        here.leading, here.rival, here.paused = False, "other-pod", PAUSE
        here.loop().round()
        assert waits(here) == [
            Held(Waiting.NOT_LEADING, f"another replica leads: other-pod; {PAUSE}", "other-pod"),
        ]
        assert here.of(PauseChanged) == []


def test_a_pause_rolls_back_the_drain_in_progress_within_a_second() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNBOUND
        pause_at(here, 5)
        here.loop().round()
        [ended] = here.of(DrainEnded)
        assert (ended.failure.why, ended.failure.detail, here.marked) == (Why.PAUSED, PAUSE, [])
        assert here.times(DrainEnded)[0] <= 6
        assert [write for write in here.writes if write[0] == "evict"] == [("evict", "web-1")]


def test_a_node_whose_drain_was_paused_does_not_cool_down_and_its_owed_pods_are_followed() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNBOUND
        pause_at(here, 5)
        here.loop().round()
        assert [owed.debt.bound for owed in here.memory.debts] == [2]
        here.at(2 * MINUTE, lambda: here.recover("web"))
        here.stop_at(4 * MINUTE)
        here.loop().run()
        assert here.memory.debts == ()
        assert here.memory.cooldowns.by_node == {}
        assert {held.waiting for held in waits(here)} == {Waiting.PAUSED}
        assert len(here.of(DrainStarted)) == 1


def test_a_drain_that_another_replica_left_is_rolled_back_and_not_resumed() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNBOUND
        here.at(5, lambda: setattr(here, "leading", False))
        here.loop(holder="first").round()
        assert here.marked == ["od-1"]
        here.leading, here.paused = True, PAUSE
        here.loop(holder="second").round()
        assert (here.marked, here.failures) == ([], [Why.LEADERSHIP_LOST, Why.PAUSED])
        assert [write for write in here.writes if write[0] == "evict"] == [("evict", "web-1")]


def test_a_machine_whose_removal_was_requested_is_still_removed() -> None:
    with world(*CLUSTER) as here:
        provider = ScriptedProvider([*[Accepted("terminating")] * 6, Deleted()])
        here.loop(provider=provider).round()
        assert [event.handed_over for event in here.of(DrainEnded)] == [True]
        here.paused = PAUSE
        here.stop_at(here.now + 10 * MINUTE)
        here.loop(provider=provider).run()
        assert [known.name for known in here.cluster.nodes] == ["od-2", "spot-1"]
        assert len(here.of(DrainStarted)) == 1


def test_pods_that_were_scheduled_after_the_removal_was_requested_are_not_evicted_during_a_pause() -> None:
    with world(*CLUSTER) as here:
        provider = ScriptedProvider([Accepted("terminating")])
        here.loop(provider=provider).round()
        orders = len(provider.orders)
        here.add(pod("late-1", "od-1", tolerations=[{"operator": "Exists"}]))
        here.paused = PAUSE
        here.stop_at(here.now + 5 * MINUTE)
        here.loop(provider=provider).run()
        assert ([write for write in here.writes if write == ("evict", "late-1")], len(provider.orders)) == ([], orders)
        here.paused, here.stopping = "", False
        here.stop_at(here.now + 5 * MINUTE)
        here.loop(provider=provider).run()
        assert ("evict", "late-1") in here.writes


@pytest.mark.parametrize("dry_run", [False, True])
def test_drains_start_only_in_a_window(dry_run: bool) -> None:
    """The world starts at 12:00 UTC on 1 January 2026, a Thursday."""
    with world(*CLUSTER) as here:
        here.stop_at(90 * MINUTE)
        window = parse_window("Thu 14:00-15:00 Europe/Stockholm")
        here.loop(Timing(housekeeping_interval=timedelta(minutes=1)), dry_run=dry_run, windows=(window,)).run()
        closed = "no drain window is open; the next one opens at 2026-01-01T13:00:00Z (Thu 14:00 Europe/Stockholm)"
        assert set(waits(here)[:60]) == {Held(Waiting.OUTSIDE_DRAIN_WINDOW, closed)}
        started = [at / MINUTE for at in here.times(DrainStarted)]
        assert [60 <= at <= 62 for at in started[:1]] == [True] * (not dry_run)


def test_a_drain_that_started_in_a_window_is_finished_after_it() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNREADY
        here.at(3 * MINUTE, lambda: here.recover("web"))
        assert here.loop(windows=(parse_window("12:00-12:01"),)).round() is RoundOutcome.DRAINED
        assert here.now >= 3 * MINUTE
        assert here.failures == [None]
