"""``--fallback-headroom``: nodes that stay because plans leave room for the pods of lost spot nodes."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import FallbackHeadroom, Policy, Survive
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, node, pod, snapshot, summary

TYPE = "node.kubernetes.io/instance-type"
POOL = FallbackHeadroom(largest_pool=True)
KEPT = Reason.FALLBACK_HEADROOM


def spot(name: str, zone: str = "a", **fields: Any) -> Manifest:
    return node(name, zone=zone, labels={TYPE: "m"}, **fields)


def planner(objects: Iterable[Manifest], headroom: FallbackHeadroom, **fields: Any) -> Planner:
    return Planner(snapshot(objects), Policy(fallback_headroom=headroom, allow_returning_plans=True, **fields))


def share(percent: int) -> FallbackHeadroom:
    return FallbackHeadroom(percent)


#: The plan moves 1 vCPU: then pods on spot nodes request 3, and 5 are free on spot nodes and 4 on `other`.
ONE = [node("o", ON_DEMAND), spot("s1"), spot("s2", "b"), pod("p", "o"), pod("q", "s1", cpu="2")]
OTHER = node("other", ON_DEMAND, unschedulable=True)
GPU = "nvidia.com/gpu"

#: case: nodes and pods besides ONE → the headroom, and whether the node is left
CASES: dict[str, tuple[list[Manifest], FallbackHeadroom, bool]] = {
    "off": ([], share(0), False),
    "just enough": ([], share(166), False),
    "too little": ([], share(167), True),
    "another node has room": ([node("n", "other")], share(300), False),
    "and no more than that": ([node("n", "other")], share(301), True),
    "a cordoned node has none": ([OTHER], share(167), True),
    "a node that is not Ready has none": ([node("n", "other", ready="False")], share(167), True),
    "what expendable pods request is free": ([pod("x", "s2", cpu="3", priority=-11)], share(166), False),
    "what pause pods request is free": ([pod("x", "s2", cpu="3", priority=-1)], share(166), False),
    "what other pods request is not": ([pod("x", "s2", cpu="500m", priority=0)], share(166), True),
    "pods of DaemonSets need no place": ([pod("d", "s2", cpu="1", owner="apps/v1/DaemonSet")], share(133), False),
    "but their room is taken": ([pod("d", "s2", cpu="1", owner="apps/v1/DaemonSet")], share(134), True),
    "pending pods have taken their room": ([pod("w", cpu="1")], share(134), True),
    "outside of the pool of the moved pod": ([], POOL, False),
    "not outside of that pool": ([pod("x", "s2", cpu="2")], POOL, True),
    "another node has room for the pool": ([pod("x", "s2", cpu="2"), node("n", "other", cpu="2")], POOL, False),
    "a resource that only the pods of spot nodes have": (
        [
            spot("g", "c", allocatable={"cpu": "4", "memory": "8Gi", "pods": "110", GPU: "1"}),
            pod("gpu", "g", cpu="100m", requests={GPU: "1"}),
        ],
        share(10),
        False,  # it is short now, and the plan does not change that
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_nodes_that_stay_for_the_headroom(case: str) -> None:
    more, headroom, left = CASES[case]
    ours = planner([*ONE, *more], headroom)
    for planning in (ours.plan_each(CIRCUMSTANCES), ours.plan_all(CIRCUMSTANCES), ours.first_plan(CIRCUMSTANCES)):
        found = summary(planning)["o"]
        assert found == [KEPT] if left else isinstance(found, dict)


def test_the_text_names_what_is_short() -> None:
    [rejected] = planner(ONE, share(167)).plan_each(CIRCUMSTANCES).rejected
    assert rejected.blockers[0].detail == (
        "after its drain, 5 vCPU would be free for the pods of lost spot nodes, and 5 vCPU is to be kept free: "
        "167% of what the pods on spot nodes request (--fallback-headroom=167%)"
    )
    [rejected] = planner([*ONE, pod("x", "s2", cpu="2")], POOL).plan_each(CIRCUMSTANCES).rejected
    assert rejected.blockers[0].detail == (
        "after its drain, 1 vCPU would be free outside of pool b/m, and 2 vCPU is to be kept free: "
        "what the pods of pool b/m request (--fallback-headroom=largest-pool)"
    )


def test_an_empty_node_stays_for_its_room() -> None:
    objects = [node("o", ON_DEMAND), spot("s1"), pod("q", "s1", cpu="3")]
    assert summary(planner(objects, share(33)).plan_each(CIRCUMSTANCES)) == {"o": {}}
    assert summary(planner(objects, share(34)).plan_each(CIRCUMSTANCES)) == {"o": [KEPT]}


def test_what_is_short_already_does_not_get_shorter() -> None:
    """The emptied node is no room now, because it is cordoned: but its pod takes room."""
    objects = [node("o", ON_DEMAND, unschedulable=True), spot("s1"), pod("q", "s1", cpu="3")]
    assert summary(planner(objects, share(100)).plan_each(CIRCUMSTANCES)) == {"o": {}}
    with_pod = [*objects, pod("p", "o", cpu="500m")]
    assert summary(planner(with_pod, share(100)).plan_each(CIRCUMSTANCES)) == {"o": [KEPT]}


def test_pools_that_lost_nodes_have_no_room() -> None:
    ours = planner(ONE, share(100))
    assert summary(ours.plan_each(CIRCUMSTANCES)) == {"o": {"p": "s1"}}
    circumstances = replace(CIRCUMSTANCES, settling={"b/m": NOW + timedelta(minutes=1)})
    assert summary(ours.plan_each(circumstances)) == {"o": [KEPT]}
    assert summary(ours.plan_each(CIRCUMSTANCES)) == {"o": {"p": "s1"}}


SIX = [
    spot("s1", cpu="16"),
    spot("s2", "b", cpu="16"),
    *(node(f"o{number}", ON_DEMAND, cpu="4" if number else "2") for number in range(6)),
    *(pod(f"p{number}", f"o{number}", cpu="1") for number in range(6)),
]

#: by percentage: the number of nodes that a plan of all nodes drains. After all drains, 26 of 32 vCPU are free.
NUMBERS = {0: 6, 433: 6, 434: 5, 550: 5, 600: 5, 601: 4, 850: 4, 851: 3, 100_00: 0}


@pytest.mark.parametrize("percent", NUMBERS)
def test_a_plan_of_all_nodes_keeps_as_few_nodes_as_possible(percent: int) -> None:
    planning = planner(SIX, share(percent)).plan_all(CIRCUMSTANCES)
    assert len(planning.plans) == NUMBERS[percent]
    assert {verdict.reason for verdict in planning.rejected} <= {KEPT}
    assert len(planning.possible) == (6 if NUMBERS[percent] < 6 else 0)


def test_a_smaller_node_is_drained_where_a_larger_one_must_stay() -> None:
    objects = [
        spot("s1", cpu="16"),
        *(node(f"o{number}", ON_DEMAND, cpu="8" if number == 1 else "2") for number in range(3)),
        *(pod(f"p{number}", f"o{number}", cpu="1") for number in range(3)),
    ]
    planning = planner(objects, share(950)).plan_all(CIRCUMSTANCES)
    assert [verdict.node for verdict in planning.rejected] == ["o1"]
    assert [plan.node for plan in planning.plans] == ["o0", "o2"]


def test_the_daemon_stops_where_the_plan_stops() -> None:
    """Its rounds drain one node after the other, until the rest is left."""
    table = snapshot(SIX)
    ours = Planner(table, Policy(fallback_headroom=share(601)))
    drained = []
    while plans := ours.first_plan(CIRCUMSTANCES, take_empty=lambda _: True).plans:
        [plan] = plans
        drained.append(plan.node)
        for placement in plan.placements:
            moved = pod(str(placement.pod).partition("/")[2], placement.node, cpu="1")
            table.upsert("Pod", snapshot([*SIX[:8], moved]).pods[str(placement.pod)])
        table.delete("Node", plan.node)
    assert len(drained) == NUMBERS[601]


def test_headroom_and_certificate_together() -> None:
    """Each keeps what it needs; the reasons differ."""
    objects = [spot("s1", cpu="16"), spot("s2", "b", cpu="16")]
    for number in range(6):
        objects += [node(f"o{number}", ON_DEMAND), pod(f"p{number}", f"o{number}", cpu="3")]
    both = planner(objects, share(75), survive=Survive.POOL).plan_all(CIRCUMSTANCES)
    reasons = [verdict.reason for verdict in both.rejected]
    assert set(reasons) <= {KEPT, Reason.WOULD_NOT_SURVIVE}
    assert len(both.plans) + len(reasons) == len(both.possible) == 6
    assert len(both.plans) <= 5


def test_the_room_of_nodes_that_were_emptied_before_is_not_counted_on() -> None:
    """An autoscaler removes them after a while, unless they are kept."""
    objects = [*ONE, node("e", ON_DEMAND)]
    assert summary(planner(objects, share(166)).plan_each(CIRCUMSTANCES))["o"] == {"p": "s1"}
    assert summary(planner(objects, share(167)).plan_each(CIRCUMSTANCES))["o"] == [KEPT]
    annotations = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    objects = [*ONE, node("e", ON_DEMAND, annotations=annotations)]
    assert summary(planner(objects, share(300)).plan_each(CIRCUMSTANCES))["o"] == {"p": "s1"}
