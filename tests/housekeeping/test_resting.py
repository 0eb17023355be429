"""Rounds that would find what the last one has found are not run, and nothing happens later than without that."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.snapshot import Snapshot
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.housekeeping.resting import Resting
from rescheduler.observe.events import DrainStarted, Held, Overviewed, Planned, RoundEnded, Waiting
from rescheduler.planning.pauses import parse_window
from rescheduler.planning.room.increase import SpotOrder, SpotOrders
from rescheduler.providers.base import Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import CLUSTER, START, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod
from tests.planning.changing import Change, ChangingCluster, changes, clock_steps, first_pods

SOON: Final = Timing(node_drain_delay=timedelta(), node_cooldown=timedelta(minutes=10))
#: A pod that fits nowhere, and the same cluster without pods that can move.
FULL: Final = (node("od-1", ON_DEMAND), node("spot-1", cpu="1"), pod("web-1", "od-1", cpu="3"))
MINUTES: Final = 300.0
#: Rounds that are left out end at other times than whole minutes.
SEVEN_SECONDS: Final = replace(SOON, housekeeping_interval=timedelta(seconds=7))


def rounds(here: LoopWorld) -> int:
    return len(here.of(RoundEnded))


def run(here: LoopWorld, seconds: float, **fields: Any) -> Loop:
    """Run a daemon for *seconds*."""
    loop = here.loop(fields.pop("timing", SOON), **fields)
    here.stop_at(here.now + seconds)
    loop.run()
    return loop


def test_a_cluster_in_which_nothing_happens_is_looked_at_each_minute() -> None:
    with world(*FULL) as here:
        run(here, MINUTES)
        assert 5 <= rounds(here) <= 6
        assert {len(event.planning.verdicts) for event in here.of(Planned)} == {1}


def test_a_dry_run_looks_in_each_interval() -> None:
    with world(*FULL) as here:
        run(here, MINUTES, dry_run=True)
        assert rounds(here) == 30


def test_no_round_is_left_out_while_spot_nodes_are_ordered() -> None:
    with world(*FULL) as here:
        loop = here.loop(SOON)
        here.history.note_spot_orders(SpotOrders((SpotOrder("od-9", "uid-9", "spot", 1, before=1, at=START),)))
        here.stop_at(here.now + MINUTES)
        loop.run()
        assert rounds(here) == 30


@pytest.mark.parametrize("times", [1, 2])
def test_an_error_while_rounds_are_left_out_does_not_end_the_daemon(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that cannot be applied: the next round has the error again, and reports it."""
    failing: list[Exception] = []
    with world(*FULL) as here:
        snapshot = here.snapshot

        def applied() -> Snapshot:
            if failing:
                raise failing.pop()
            return snapshot()

        monkeypatch.setattr(here, "snapshot", applied)
        here.at(123.0, lambda: failing.extend(KeyError("od-9") for _ in range(times)))
        run(here, MINUTES)
        ends = [(at, event.succeeded) for at, event in here.reported if isinstance(event, RoundEnded)]
        assert [good for at, good in ends if 123.0 <= at <= 143.0] == [True] if times == 1 else [False, True]
        assert ends[-1][0] > 200.0


def _more_room(here: LoopWorld) -> None:
    here.add(node("spot-2", cpu="8"))


def _opened(here: LoopWorld) -> None:
    row = here.cluster.nodes.row["spot-1"]
    spot = here.cluster.nodes.nodes[row]
    assert spot is not None
    here.cluster.upsert(
        "Node", msgspec.structs.replace(spot, spec=msgspec.structs.replace(spot.spec, unschedulable=False))
    )


CLOSED: Final = (node("od-1", ON_DEMAND), node("spot-1", cpu="8", unschedulable=True), pod("web-1", "od-1"))
CHANGED: Final[Mapping[str, tuple[tuple[Any, ...], Callable[[LoopWorld], object]]]] = {
    "a spot node joins": (FULL, _more_room),
    "a spot node is uncordoned": (CLOSED, _opened),
}


def test_a_page_that_is_read_is_complete_in_the_next_interval() -> None:
    with world(*FULL) as here:
        here.at(123.0, lambda: setattr(here, "page_is_read", True))
        run(here, MINUTES)
        first = next(at for at, event in here.reported if isinstance(event, Overviewed))
        assert 123.0 <= first <= 133.0


def test_forecasts_of_all_nodes_are_made_only_for_readers() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="8"), pod("web-1", "od-1")) as here:
        here.paused = "a person paused drains"
        loop = here.loop()
        forecasts = []
        for reads in (False, True):
            here.page_is_read = reads
            loop.round()
            [plan] = here.of(Planned)[-1].planning.plans
            forecasts.append([placement.node for placement in plan.forecast])
        assert forecasts == [[], ["spot-1"]]


@pytest.mark.parametrize(("objects", "change"), CHANGED.values(), ids=CHANGED)
@pytest.mark.parametrize("at", [123.0, 181.0])
def test_a_change_is_seen_in_the_next_interval(
    objects: tuple[Any, ...], change: Callable[[LoopWorld], object], at: float
) -> None:
    with world(*objects) as here:
        here.at(at, lambda: change(here))
        run(here, MINUTES)
        [started] = here.times(DrainStarted)
        assert at <= started <= at + 10


def _paused(here: LoopWorld) -> None:
    here.paused = "a person paused drains"
    here.at(133.0, lambda: setattr(here, "paused", ""))


def _without_rights(here: LoopWorld) -> None:
    here.missing_rights = "no right"
    here.at(133.0, lambda: setattr(here, "missing_rights", ""))


def _with_a_silent_watch(here: LoopWorld) -> None:
    here.watch_ages["Pod"] = 1000.0
    here.at(155.0, here.watch_ages.clear)


#: Waits that end by themselves, and the round in which the drain then begins. It is the same if no round is left out.
WAITS: Final[Mapping[str, tuple[dict[str, Any], Callable[[LoopWorld], object]]]] = {
    "a drain delay": ({"timing": Timing(node_drain_delay=timedelta(seconds=137))}, lambda _: None),
    "a drain window": (
        {"windows": (parse_window(f"{START + timedelta(minutes=3):%H:%M}-23:00"),), "timing": SEVEN_SECONDS},
        lambda _: None,
    ),
    "a pause": ({}, _paused),
    "missing rights": ({}, _without_rights),
    "a silent watch": ({}, _with_a_silent_watch),
}
_STARTS: dict[str, dict[bool, list[float]]] = {}


@pytest.mark.parametrize(("name", "never"), [(name, never) for name in WAITS for never in (True, False)])
def test_drains_begin_in_the_same_round_as_if_no_round_was_left_out(
    name: str, *, never: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, prepare = WAITS[name]
    if never:
        monkeypatch.setattr(Resting, "lasts", lambda _: False)
    with world(*CLUSTER) as here:
        prepare(here)
        run(here, MINUTES, provider=ScriptedProvider([Deleted()]), **fields)
        found = _STARTS.setdefault(name, {})
        found[never] = here.times(DrainStarted)
        assert found[never]
        assert found[never] == found.get(True, found[never])


@settings(max_examples=40)
@given(first_pods, st.lists(st.tuples(st.lists(changes, max_size=2), clock_steps), min_size=1, max_size=6))
def test_a_round_that_is_left_out_would_have_found_nothing_new(
    pods: list[Change], story: list[tuple[list[Change], float]]
) -> None:
    with world() as here:
        cluster = ChangingCluster()
        here.cluster = cluster.snapshot
        for change in pods:
            change(cluster)
        loop = here.loop(SOON)
        last = _found(here, loop)
        for changed, step in story:
            for change in changed:
                change(cluster)
            for seconds in (step, 10.0, 10.0, 10.0):
                here.pass_time(seconds)
                rests = loop._resting.lasts()
                now = _found(here, loop)
                assert now == last or not rests
                last = now


def _found(here: LoopWorld, loop: Loop) -> list[Any]:
    """Run a round. Return what it finds: whether something begins, why not, the plan, and all writes to the cluster."""
    outcome = loop.round()
    held = here.of(Held)[-1].waiting if outcome is RoundOutcome.HELD else None
    planned = here.of(Planned)
    settled = planned[-1].planning.verdicts if planned and held in (None, Waiting.DRAIN_DELAY) else ()
    return [outcome, held, settled, list(here.writes)]
