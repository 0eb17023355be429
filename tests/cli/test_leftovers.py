"""``--leftovers`` in ``plan``, ``explain`` and ``report``: a change with its money by default, plans with ``move``."""

from datetime import timedelta
from pathlib import Path

import pytest

from rescheduler.cli.plan_data import PlannedCluster
from rescheduler.facts.round_facts import FactsReader, Known
from rescheduler.planning.memory import Memory
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.movements import LeftoverMoves
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Leftovers, Policy
from rescheduler.planning.what_if.changes import SettingChange
from rescheduler.planning.what_if.comparison import what_if
from tests.cli.dumps import planned, run, write_dump
from tests.planning.builders import NOW, SYSTEM_POD, Manifest, budget, snapshot
from tests.planning.test_leftovers import FULL, ROOMY

PRICES = ("--price-per-vcpu=0.05", "--price-per-gib=0", "--spot-price-per-vcpu=0.02", "--spot-price-per-gib=0")

#: od-1 costs 0.2 an hour. Its pod a and the pod d that makes room request 4 vCPU, which cost 0.08 on spot nodes.
SAVED = (0.2 - 0.08) * 730


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return write_dump(tmp_path, [*FULL, budget("x", "x", allowed=1), SYSTEM_POD])


def test_by_default_it_is_a_change_with_its_money(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    result = planned(capfd, dump, *PRICES)
    assert [each["drainable"] for each in result["nodes"]] == [False, False]
    [lever] = [each for each in result["summary"]["levers"] if "leftovers" in each["controller"]]
    assert (lever["controller"], lever["reason"]) == ("Setting --leftovers=move", "pinned-to-on-demand")
    assert (lever["frees"], lever["what_if"], lever["risk"]) == (["od-1"], ["leftovers=move"], None)
    assert lever["net_per_month"] == pytest.approx(SAVED)
    text = "1 pod that must not run on spot moves to nodes that stay; 1 node makes room first"
    assert text in " ".join(run(capfd, "plan", dump, *PRICES).split())
    off = planned(capfd, dump, "--leftovers=off", *PRICES)["summary"]["levers"]
    assert not [each for each in off if "leftovers" in each["controller"]]


def test_trying_it_frees_what_the_change_says(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    result = planned(capfd, dump, "--what-if", "leftovers=move", *PRICES)
    before, after = result["what_if"]["before"], result["what_if"]["after"]
    assert (before["drainable_nodes"], after["drainable_nodes"]) == (0, 1)
    assert after["freed"]["net_per_month"] == pytest.approx(SAVED)


def test_a_plan_has_what_goes_where_and_what_makes_room(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    result = planned(capfd, dump, "--leftovers=move", *PRICES)
    nodes = {each["node"]: each for each in result["nodes"]}
    assert nodes["od-1"]["leftovers"] == ["default/b-1"]
    assert {"pod": "default/b-1", "node": "od-2"} in nodes["od-1"]["placements"]
    room = [{"node": "od-2", "placements": [{"pod": "default/d-2", "node": "s"}]}]
    assert nodes["od-1"]["makes_room"] == room
    assert nodes["od-1"]["landing"] == {"spot": 1, "on_demand": 0, "leftovers": 1}
    assert (nodes["od-2"]["drainable"], nodes["od-2"]["leftovers"], nodes["od-2"]["makes_room"]) == (False, [], [])
    assert result["summary"]["freed"]["net_per_month"] == pytest.approx(SAVED)


def test_pods_that_make_room_count_as_moves(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    summary = planned(capfd, dump, "--leftovers=move", *PRICES)["summary"]
    compared = planned(capfd, dump, "--what-if", "leftovers=move", *PRICES)["what_if"]["after"]
    assert (summary["pods_to_move"], compared["pods_to_move"]) == (3, 3)
    assert compared["move_cost"] == summary["move_cost"] == summary["worth_curve"]["points"][0]["move_cost"]
    assert summary["worth_curve"]["points"][0]["pods"] == len({"a-1", "b-1", "d-2"})
    [pool] = summary["survival"]["pools"]
    assert {name for each in pool["homeless"] for name in each["pods"]} == {"default/a-1", "default/d-2"}


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        (FULL, "Freed by moving 3 pods to 1 of 1 spot node and 1 on-demand node that stays"),
        (ROOMY, "Freed by moving 1 pod to 1 on-demand node that stays"),
    ],
    ids=["with spot nodes", "on-demand nodes only"],
)
def test_the_targets_are_counted_by_kind(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, objects: list[Manifest], text: str
) -> None:
    dump = write_dump(tmp_path, [*objects, budget("x", "x", allowed=1), SYSTEM_POD])
    assert text in run(capfd, "plan", dump, "--leftovers=move")


def test_explain_agrees_with_the_plan(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    """A node that the plan empties with leftovers can be drained; the one that stays has its reason."""

    def explained(node: str, *flags: str) -> str:
        return " ".join(run(capfd, "explain", dump, *flags, node).split())

    why = "with leftovers (1 pod to on-demand nodes that stay, after 1 pod of od-2 went to spot)"
    assert f"Node od-1 can be drained {why}: 2 pods would move." in explained("od-1", "--leftovers=move")
    assert "Node od-2 is not drained:" in explained("od-2", "--leftovers=move")
    assert "Node od-1 is not drained:" in explained("od-1")


def test_pages_say_what_goes_where(capfd: pytest.CaptureFixture[str], dump: Path) -> None:
    text = " ".join(run(capfd, "plan", dump, "--leftovers=move", "-o", "details").split())
    assert "drainable with leftovers (1 pod to on-demand nodes that stay, after 1 pod of od-2 went to spot)" in text
    assert "before that, od-2, which stays, makes room:" in text
    page = run(capfd, "report", dump, "--leftovers=move")
    assert "with leftovers (1 pod to on-demand nodes that stay" in page


@pytest.mark.parametrize(("hours", "freed"), [(24, []), (1, ["od-2"])], ids=["rests", "has rested"])
def test_a_what_if_of_the_rest_counts_what_the_daemon_remembers(hours: int, freed: list[str]) -> None:
    """Both pinned pods moved as leftovers two hours ago, and rest for 30 hours."""
    at = NOW - timedelta(hours=2)
    created = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    objects = [{**each, "metadata": {**each["metadata"], "creationTimestamp": created}} for each in ROOMY]
    moved = LeftoverMoves().moved(["default/uid-of-b", "default/uid-of-c"], at)
    policy = Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True, leftover_rest=30 * 3600.0)
    facts = FactsReader(policy).facts(snapshot(objects), Known(memory=Memory(leftovers=moved)), NOW)
    planner = Planner(facts.snapshot, policy)
    cluster = PlannedCluster(facts, planner, planner.plan_all(facts.circumstances), 0.0, ())
    assert cluster.planning.plans == ()
    change = SettingChange("leftover_rest", hours * 3600.0)
    given = facts.snapshot, policy, facts.circumstances, [change]
    outcome = what_if(*given, cluster.circumstances_with(PriceList()))
    assert [plan.node for plan in outcome.planning.plans] == freed
