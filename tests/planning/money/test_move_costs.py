"""Tests of what moves cost: each factor is bounded, monotone, and 1 if nothing is known."""

import math
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.planning.money import move_costs
from rescheduler.planning.money.move_costs import MoveWorth, WorthCurve, WorthPoint, annotated_cost
from rescheduler.planning.outcome import Reason

KARPENTER, DELETION = move_costs.DISRUPTION_COSTS
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        ({}, 0),
        ({KARPENTER: "1000"}, 1000),
        ({KARPENTER: "-5"}, -5),
        ({DELETION: "7"}, 7),
        ({KARPENTER: "1", DELETION: "7"}, 1),
        ({KARPENTER: "x", DELETION: "7"}, 0),
        ({KARPENTER: ""}, 0),
        ({KARPENTER: "2147483647"}, 2**31 - 1),
        ({KARPENTER: "2147483648"}, 0),
        ({KARPENTER: "-2147483649"}, 0),
        ({KARPENTER: "1" * 5000}, 0),
        ({KARPENTER: "1.5"}, 0),
        ({KARPENTER: "٣"}, 0),
        ({KARPENTER: " 3"}, 0),
    ],
)
def test_annotations_are_integers_of_32_bits(annotations: dict[str, str], cost: int) -> None:
    assert annotated_cost(annotations) == cost


@pytest.mark.parametrize(
    ("cost", "priority", "factor"),
    [(0, 0, 1), (2**27, 0, 2), (0, 2**25, 2), (2**27, 2**25, 3), (-(2**27), 0, 0.1), (2**31 - 1, 2 * 10**9, 10)],
)
def test_the_factor_of_a_pod_is_the_cost_that_karpenter_calculates(cost: int, priority: int, factor: float) -> None:
    assert move_costs.own_factor(cost, priority) == pytest.approx(factor)


@given(INT32, INT32, INT32)
def test_a_higher_cost_or_priority_never_costs_less(cost: int, other: int, priority: int) -> None:
    low, high = sorted((cost, other))
    assert 0.1 <= move_costs.own_factor(low, priority) <= move_costs.own_factor(high, priority) <= 10
    assert move_costs.own_factor(priority, low) <= move_costs.own_factor(priority, high)


def test_the_other_factors_are_bounded_and_monotone() -> None:
    ready = [move_costs.owner_factor(seconds, 0, 2) for seconds in (0, 5, 15, 30, 60, 119, 120, 1e9)]
    assert ready == [1, 1, 1, 1, 2, pytest.approx(119 / 30), 4, 4]
    moved = [move_costs.owner_factor(None, pods, 2) for pods in (0, 1, 2, 5, 6, 1000)]
    assert moved == [1, 1.5, 2, 3.5, 4, 4]
    for factors in (ready, moved):
        assert all(first <= second for first, second in pairwise(factors))
    assert [move_costs.owner_factor(None, 0, number) for number in (0, 1, 2, 50)] == [1, 2, 1, 1]
    assert move_costs.owner_factor(60, 1, 1) == 2 * 2 * 2


def test_what_is_not_known_has_the_factor_one() -> None:
    assert (move_costs.owner_factor(None, 0, 0), move_costs.own_factor(0, 0)) == (1, 1)


def test_the_worth_is_money_for_a_moved_pod() -> None:
    assert MoveWorth(3, 4.0, 10.0).per_move == 2.5
    assert MoveWorth(3, 4.0, None).per_move is None
    assert MoveWorth(0, 0.0, 10.0).per_move == math.inf


def test_nodes_are_ranked_by_worth_and_those_without_a_price_last_by_cost() -> None:
    worths = {
        "dear": MoveWorth(1, 4.0, 10.0),
        "good": MoveWorth(1, 1.0, 10.0),
        "empty": MoveWorth(0, 0.0, 0.0),
        "unpriced": MoveWorth(1, 1.0, None),
        "unpriced and dear": MoveWorth(1, 3.0, None),
        "nothing, cheap": MoveWorth(1, 1.0, 0.0),
        "nothing, dear": MoveWorth(1, 2.0, 0.0),
    }
    ranked = sorted(worths, key=lambda name: worths[name].rank)
    nothing = ["nothing, cheap", "nothing, dear"]
    assert ranked == ["empty", "good", "dear", *nothing, "unpriced", "unpriced and dear"]


def test_only_a_node_that_is_known_to_save_less_stays() -> None:
    below = MoveWorth(38, 41.5, 12.3).blocker(0.9, "EUR")
    assert below is not None
    assert below.reason is Reason.NOT_WORTH_IT
    assert below.detail == (
        "it saves 12.30 EUR/month for 38 pods that cost 41.5 moves: 0.30 for a move; --min-worth=0.9 asks for more"
    )
    for enough in (MoveWorth(1, 1.0, 0.9), MoveWorth(1, 1.0, None), MoveWorth(0, 0.0, 0.0)):
        assert enough.blocker(0.9, "") is None


def point(value: float, pods: int, saved: str) -> WorthPoint:
    return WorthPoint(value, 1, pods, float(pods), Decimal(saved))


def test_the_line_never_says_more_money_or_fewer_moves_than_there_are() -> None:
    points = point(0, 1000, "100"), point(0.9, 481, "90.99")
    assert WorthCurve(points, points[1]).text == "90% of the money with 49% of the moves: --min-worth=0.9"
    assert WorthCurve(points, None).text == ""
