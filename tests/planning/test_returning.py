"""Tests of what a plan says about pods that the scheduler would return to on-demand nodes."""

import pytest

from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Landing, Plan, Planning
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.overview import overview
from tests.planning.builders import ON_DEMAND, node, snapshot

SOFT = [{"key": "x", "effect": "PreferNoSchedule"}]
HARD = [{"key": "x", "effect": "NoSchedule"}]


@pytest.mark.parametrize(
    ("landing", "taints", "said"),
    [
        (None, [[], []], ""),
        (Landing(3, 0), [[], []], ""),
        (
            Landing(0, 2),
            [[], []],
            "the scheduler would return 2 of 2 pods to nodes that are not spot: 2 on-demand nodes",
        ),
        (
            Landing(2, 1),
            [SOFT, HARD],
            "the scheduler would return 1 of 3 pods to nodes that are not spot: 1 on-demand no",
        ),
        (Landing(2, 1), [SOFT, SOFT], "the scheduler would return 1 of 3 pods to nodes that are not spot"),
    ],
)
def test_a_plan_names_the_missing_soft_taint(
    landing: Landing | None, taints: list[list[dict[str, str]]], said: str
) -> None:
    cluster = snapshot([*(node(f"od-{i}", ON_DEMAND, taints=each) for i, each in enumerate(taints)), node("spot")])
    plans = tuple(Plan(f"od-{i}", (), landing=landing if i == 0 else None) for i in range(2))
    text = overview(Planning(plans, 2, 1), cluster, PriceList()).returning
    assert (text.startswith(said), bool(text)) == (True, bool(said))
    missing = any(all(taint["effect"] != "PreferNoSchedule" for taint in each) for each in taints)
    assert ("--manage-soft-taint" in text) == (bool(said) and missing)


@pytest.mark.parametrize("taints", [[[], []], [SOFT, SOFT]])
@pytest.mark.parametrize("allowed", [False, True])
def test_only_a_daemon_that_rejects_such_plans_is_said_to_reject_them(
    taints: list[list[dict[str, str]]], *, allowed: bool
) -> None:
    cluster = snapshot([*(node(f"od-{i}", ON_DEMAND, taints=each) for i, each in enumerate(taints)), node("spot")])
    planning = Planning((Plan("od-0", (), landing=Landing(0, 2)), Plan("od-1", ())), 2, 1)
    text = overview(planning, cluster, PriceList(), policy=Policy(allow_returning_plans=allowed)).returning
    assert text.endswith("The daemon drains no node of which most pods would return") is not allowed
