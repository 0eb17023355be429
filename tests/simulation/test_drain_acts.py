"""What others do right before a request of the daemon, in courses."""

import random

import pytest

from rescheduler.simulation.store import Json
from tests.invariants.rules import Rules
from tests.simulation.acts import Acts
from tests.simulation.drain_acts import ACTS_IN_DRAINS, OTHERS_TAINT, DrainActs, step_of
from tests.simulation.random_events import AT_REQUESTS, AtRequests, Choice, Weather, random_events, random_weather
from tests.simulation.sent_requests import SentRequests
from tests.simulation.worlds import Scene, node, workload


def scene(*entries: Json) -> Scene:
    """Return a cluster with one node to drain, where *entries* happen in its drain."""
    here = Scene([node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 3))
    here.world.store.create("statefulsets", workload("StatefulSet", "db", 2))
    for name in ("spot-1", "spot-2"):
        here.world.store.patch("nodes", name, {"spec": {"unschedulable": True}})
    acts = DrainActs(here.world, Acts(here.world))
    for entry in entries:
        acts.happen(entry)
    here.run(60)
    for name in ("spot-1", "spot-2"):
        here.world.store.patch("nodes", name, {"spec": {"unschedulable": None}})
    return here


def event(act: str, step: str, call: str, **more: object) -> Json:
    return {"in a drain": act, "step": step, "before": call, "skip": 0, "number": 1, "for": 3000, **more}


@pytest.mark.parametrize("act", ACTS_IN_DRAINS)
def test_nothing_but_the_chosen_act_happens(act: str) -> None:
    events = random_events(Choice(random.Random(1)), 3600.0, Weather().only([act]))
    acts = {each.entry.get("in a drain", "back") for each in events}
    assert acts == {act, "back"}


def test_some_courses_have_a_few_kinds_of_events_and_others_have_all() -> None:
    weathers = [random_weather(Choice(random.Random(seed))) for seed in range(30)]
    assert 5 < weathers.count(Weather()) < 20
    assert all(len(each.in_drains) == 3 for each in weathers if each != Weather())
    assert {act for each in weathers for act in each.in_drains} == {*Weather().in_drains}
    assert random_weather(Choice(random.Random(1))) == random_weather(Choice(random.Random(1)))


def test_a_drain_without_events_ends_its_machine() -> None:
    here = scene().begin().run(300)
    assert here.nodes == ["spot-1", "spot-2"]
    here.world.close()


@pytest.mark.parametrize(
    ("act", "call"),
    [
        ("keep node", "read node"),
        ("untaint", "read node"),
        ("unmark", "read node"),
        ("mark as other", "read node"),
        ("turn into spot", "read node"),
        ("register again", "read node"),
        ("add pod", "read node"),
        ("add pod", "read pods"),
    ],
)
@pytest.mark.parametrize("restored", [1, 2])
def test_no_machine_ends_after_a_change_right_before_the_last_look(act: str, call: str, restored: int) -> None:
    here = scene(event(act, "removing", call, number=restored)).begin().run(60)
    assert here.world.machines.ended == {}
    assert "od-1" in here.nodes
    here.world.close()


@pytest.mark.parametrize("row", AT_REQUESTS, ids=lambda row: f"{row.step or 'marking'}, {row.acts[0]}")
def test_each_event_may_happen_right_before_its_request(row: AtRequests) -> None:
    for number, act in enumerate(row.acts):
        request, skip = row.requests[number % len(row.requests)]
        here = scene(event(act, row.step, request, skip=skip)).begin().run(120)
        assert here.world.engine.crashes == []
        here.world.close()


@pytest.mark.parametrize("act", ["touch node", "taint node"])
def test_a_patch_keeps_what_another_client_has_written_meanwhile(act: str) -> None:
    here = scene(event(act, "", "patch node"))
    judge = SentRequests(here.world, Rules(namespace=here.running.namespace))
    here.begin().run(30)
    [changed] = [each for each in here.world.store.all("nodes") if each["metadata"]["name"] == "od-1"]
    kept = [taint["key"] for taint in changed["spec"]["taints"]] + [*changed["metadata"]["annotations"]]
    assert {OTHERS_TAINT, "example.com/touched"} & {*kept}
    assert step_of(changed)
    assert judge.broken([], []) == []
    here.world.close()
