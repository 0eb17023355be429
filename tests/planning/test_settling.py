"""Tests of plans while pools of spot nodes are not trusted: targets, reasons, and results that are kept."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.planning.outcome import Plan, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, node, pod, short, snapshot, summary

TYPE = "node.kubernetes.io/instance-type"
UNTIL = NOW + timedelta(minutes=10)
A = replace(CIRCUMSTANCES, settling={"a/m5.large": UNTIL})
BOTH = replace(CIRCUMSTANCES, settling={"a/m5.large": UNTIL, "b/m5.large": UNTIL})


def spot(name: str, zone: str = "a", **fields: Any) -> Manifest:
    return node(name, zone=zone, labels={TYPE: "m5.large"}, **fields)


CLUSTER = [
    node("od-1", ON_DEMAND, cpu="1"),
    node("od-2", ON_DEMAND, cpu="2"),
    spot("spot-1"),
    spot("spot-2", "b", cpu="1"),
    pod("web-1", "od-1"),
    pod("db-1", "od-2", cpu="2"),
]


def test_nodes_of_trusted_pools_are_targets() -> None:
    planner = Planner(snapshot(CLUSTER), Policy())
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"od-1": {"web-1": "spot-1"}, "od-2": {"db-1": "spot-1"}}
    expected = {"od-1": {"web-1": "spot-2"}, "od-2": [Reason.SPOT_POOL_SETTLING]}
    assert summary(planner.plan_each(A)) == expected
    assert summary(planner.plan_all(A)) == expected
    assert summary(planner.first_plan(A)) == {"od-1": {"web-1": "spot-2"}}
    assert short(planner.look_again("od-2", A)) == [Reason.SPOT_POOL_SETTLING]
    assert short(planner.follow("od-2", A, ())) == [Reason.SPOT_POOL_SETTLING]
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"od-1": {"web-1": "spot-1"}, "od-2": {"db-1": "spot-1"}}


def test_nothing_moves_while_no_pool_is_trusted() -> None:
    planner = Planner(snapshot(CLUSTER), Policy())
    assert summary(planner.plan_each(BOTH)) == {
        "od-1": [Reason.SPOT_POOL_SETTLING],
        "od-2": [Reason.SPOT_POOL_SETTLING],
    }


#: case: further spot nodes, the pod of od-2 → reasons of od-2 while pool A is not trusted
REASONS: dict[str, tuple[list[Manifest], Manifest, list[Reason]]] = {
    "it would fit": ([], pod("db-1", "od-2", cpu="2"), [Reason.SPOT_POOL_SETTLING]),
    "it fits nowhere": ([], pod("db-1", "od-2", cpu="5"), [Reason.NO_ROOM]),
    "it may not run in that zone": (
        [spot("spot-3", "c", cpu="1")],
        pod("db-1", "od-2", cpu="2", nodeSelector={"topology.kubernetes.io/zone": "c"}),
        [Reason.NO_ROOM],
    ),
    "the node of the pool is cordoned": (
        [spot("spot-1", unschedulable=True)],
        pod("db-1", "od-2", cpu="2"),
        [Reason.NO_ROOM],
    ),
    "another pool has room": ([spot("spot-3", "c")], pod("db-1", "od-2", cpu="2"), []),
}


@pytest.mark.parametrize(("more", "own", "expected"), REASONS.values(), ids=REASONS)
def test_the_reason_tells_whether_the_pod_would_fit(
    more: list[Manifest], own: Manifest, expected: list[Reason]
) -> None:
    verdict = Planner(snapshot([*CLUSTER[:5], *more, own]), Policy()).plan_node("od-2", A)
    assert (short(verdict) if isinstance(verdict, Rejected) else []) == expected


def test_the_text_counts_nodes_by_cause() -> None:
    objects = [*CLUSTER, spot("spot-3", ready="False"), spot("spot-4")]
    verdict = Planner(snapshot(objects), Policy()).plan_node("od-2", A)
    assert isinstance(verdict, Rejected)
    assert verdict.blockers[0].detail == (
        "0/1 spot nodes are available: 1 Insufficient cpu; 1 more node cannot be used: being removed, cordoned, not "
        "Ready, or not ready yet (start-up taint); pools that lost nodes are not trusted: 2 nodes of a/m5.large until "
        "2026-01-01T12:10:00Z"
    )


def test_other_labels_name_the_pools() -> None:
    policy = Policy(spot_pool_labels=(TYPE,))
    settling = replace(CIRCUMSTANCES, settling={"m5.large": UNTIL})
    assert short(Planner(snapshot(CLUSTER), policy).plan_node("od-1", settling)) == [Reason.SPOT_POOL_SETTLING]
    assert isinstance(Planner(snapshot(CLUSTER), policy).plan_node("od-1", BOTH), Plan)
