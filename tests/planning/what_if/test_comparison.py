"""Tests of plans with changes and lost spot nodes: which nodes are lost, and which pods cannot be placed."""

from typing import Any

import pytest

from rescheduler.errors import UsageError
from rescheduler.planning.controllers import ControllerName
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.comparison import Hypothesis, LoseSpot, LostSpot, UnplacedPod, lost_nodes, what_if
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, repels, snapshot, summary
from tests.planning.test_replacements import container, replica_set, running

NAMES = tuple(f"s-{number}" for number in range(10))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (LoseSpot(percent=30), ("s-3", "s-6", "s-9")),
        (LoseSpot(percent=1), ("s-9",)),
        (LoseSpot(percent=11), ("s-4", "s-9")),
        (LoseSpot(percent=100), NAMES),
        (LoseSpot(node="s-4"), ("s-4",)),
        (LoseSpot(zone="eu-1b"), ("s-1", "s-4", "s-7")),
        (LoseSpot(zone="b"), ("s-1", "s-4", "s-7")),
        (LoseSpot(zone="1c"), ("s-2", "s-5", "s-8")),
    ],
    ids=str,
)
def test_lost_nodes_are_selected_by_zone_share_or_name(loss: LoseSpot, expected: tuple[str, ...]) -> None:
    nodes = [node(name, zone=f"eu-1{'abc'[number % 3]}") for number, name in enumerate(NAMES)]
    assert tuple(lost_nodes(snapshot([*nodes, node("od", ON_DEMAND)]), Policy(), loss)) == expected


def test_the_complete_name_of_a_zone_comes_before_its_end() -> None:
    nodes = [node("s-1", zone="b"), node("s-2", zone="eu-1b")]
    assert lost_nodes(snapshot(nodes), Policy(), LoseSpot(zone="b")) == ["s-1"]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (LoseSpot(node="od"), "lose-spot: there is no spot node od"),
        (LoseSpot(zone="x"), "lose-spot: no spot node is in zone x; zones of the spot nodes: a, b"),
    ],
    ids=str,
)
def test_unknown_nodes_and_zones_are_usage_errors(loss: LoseSpot, message: str) -> None:
    nodes = [node("s-1", zone="b"), node("s-2", zone="a"), node("od", ON_DEMAND, zone="x")]
    with pytest.raises(UsageError, match=message):
        lost_nodes(snapshot(nodes), Policy(), loss)


def unplaced(name: str, why: str, *, kind: str = "ReplicaSet", priority: int = 0) -> UnplacedPod:
    owner = name if kind == "Pod" else name.partition("-")[0]
    return UnplacedPod(f"default/{name}", ControllerName("default", kind, owner), priority, why)


FULL = "0/1 remaining nodes are available: 1 Insufficient cpu"
FULL_BOTH = "0/2 remaining nodes are available: 2 Insufficient cpu"

#: By name: the nodes besides the lost one ("lost"), the pods, and which are without a place now and after the drains.
LOSSES: dict[str, tuple[list[Manifest], list[UnplacedPod], list[UnplacedPod]]] = {
    "on-demand nodes take what spot nodes cannot": (
        [
            node("od", ON_DEMAND, cpu="8"),
            node("s", cpu="1"),
            pod("a", "lost"),
            pod("b", "lost", cpu="3"),
            pod("x", "od"),
        ],
        [],
        [unplaced("a", FULL), unplaced("b", FULL)],
    ),
    "the scheduler may place a small pod where the large one would have to go": (
        [node("od", ON_DEMAND), node("s", cpu="1"), pod("a", "lost"), pod("b", "lost", cpu="3"), pod("x", "od")],
        [unplaced("b", FULL_BOTH)],
        [unplaced("a", FULL), unplaced("b", FULL)],
    ),
    "expendable pods need no place": (
        [node("s", cpu="1m"), pod("low", "lost", priority=-20)],
        [],
        [],
    ),
    "the highest priority is placed first, and listed first": (
        [
            node("s", cpu="2"),
            pod("low-1", "lost", cpu="2", priority=5),
            pod("high-1", "lost", cpu="2", priority=100),
            pod("middle-1", "lost", cpu="2", priority=7),
        ],
        [unplaced("middle-1", FULL, priority=7), unplaced("low-1", FULL, priority=5)],
        [unplaced("middle-1", FULL, priority=7), unplaced("low-1", FULL, priority=5)],
    ),
    "pods that would only fit in another order than the scheduler's": (
        [
            node("s1", cpu="5"),
            node("s2", cpu="5"),
            *(pod(f"p{n}", "lost", cpu=cpu, priority=n) for n, cpu in enumerate(("4", "3", "2", "1"))),
        ],
        [unplaced("p0", FULL_BOTH)],
        [unplaced("p0", FULL_BOTH)],
    ),
    "pods of DaemonSets and terminating pods need no place": (
        [node("s", cpu="1m"), pod("a", "lost", owner="DaemonSet"), pod("b", "lost", deleted=True)],
        [],
        [],
    ),
    "a pod without a controller is lost": (
        [node("s"), pod("a", "lost", owner=None)],
        [unplaced("a", "no controller would recreate it", kind="Pod")],
        [unplaced("a", "no controller would recreate it", kind="Pod")],
    ),
    "cordoned nodes and nodes that are not Ready take no pods": (
        [node("s", unschedulable=True), node("od", ON_DEMAND, ready="False"), pod("a", "lost")],
        [unplaced("a", "0/0 remaining nodes are available")],
        [unplaced("a", "0/0 remaining nodes are available")],
    ),
    "the scheduler's rules decide": (
        [node("s"), pod("w-1", "s"), pod("w-2", "lost", affinity=repels("w"))],
        [unplaced("w-2", "0/1 remaining nodes are available: 1 node(s) didn't match pod anti-affinity rules")],
        [unplaced("w-2", "0/1 remaining nodes are available: 1 node(s) didn't match pod anti-affinity rules")],
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_pods_of_lost_nodes_without_a_place_are_reported(case: str) -> None:
    objects, now, after_drains = LOSSES[case]
    cluster = snapshot([node("lost"), *objects])
    outcome = what_if(cluster, Policy(), CIRCUMSTANCES, [LoseSpot(node="lost")])
    assert outcome.lost == LostSpot(("lost",), tuple(now), tuple(after_drains))


def test_pods_that_the_plan_moved_to_a_lost_node_move_again() -> None:
    objects = [
        node("od", ON_DEMAND),
        node("lost", cpu="3"),
        node("s", cpu="1"),
        pod("x", "lost"),
        pod("a", "od", cpu="2"),
    ]
    outcome = what_if(snapshot(objects), Policy(), CIRCUMSTANCES, [LoseSpot(node="lost")])
    assert outcome.lost == LostSpot(("lost",), (), (unplaced("a", FULL),))


def test_the_plan_after_a_loss_counts_the_pods_that_moved() -> None:
    objects = [node("od", ON_DEMAND), node("lost"), node("s", cpu="2"), pod("x", "lost", cpu="1500m"), pod("a", "od")]
    cluster = snapshot(objects)
    before = what_if(cluster, Policy(), CIRCUMSTANCES, [])
    after = what_if(cluster, Policy(), CIRCUMSTANCES, [LoseSpot(node="lost")])
    plans = summary(before.planning), summary(after.planning)
    assert plans == ({"od": {"a": "lost"}}, {"od": ["no-room-on-spot"]})
    assert [*cluster.nodes.row] == ["od", "lost", "s"]


#: By name: pods on the lost node beside the template of their controller, and where they run afterwards.
AGAIN: dict[str, tuple[list[Manifest], dict[str, str]]] = {
    "as the template says, if it fits": ([running(2), replica_set(container(cpu="2"))], {"default/a-1": "s"}),
    "pending, if what the template asks for fits nowhere": (
        [running(2), replica_set(container(cpu="3"))],
        {"default/a-1": ""},
    ),
    "expendable pods are not created again, and take no room": ([running(priority=-20)], {}),
    "pods without a controller are gone": ([running(owner=None)], {}),
}


@pytest.mark.parametrize("case", AGAIN)
def test_the_pods_of_lost_nodes_run_again_as_in_the_certificate(case: str) -> None:
    objects, expected = AGAIN[case]
    cluster = snapshot([node("od"), node("s", cpu="2"), *objects])
    outcome = what_if(cluster, Policy(), CIRCUMSTANCES, [LoseSpot(node="od")])
    assert {key: each.node_name for key, each in outcome.snapshot.pods.items()} == expected


def test_losses_come_after_all_other_changes() -> None:
    objects: list[dict[str, Any]] = [node("od", ON_DEMAND), node("s", cpu="1"), pod("a", "od", cpu="2")]
    hypotheses: list[Hypothesis] = [LoseSpot(percent=100), AddSpot(2, cpu="4", memory="8Gi")]
    outcome = what_if(snapshot(objects), Policy(), CIRCUMSTANCES, hypotheses)
    assert outcome.lost is not None
    assert outcome.lost.nodes == ("added-spot-1", "added-spot-2", "s")
    assert (outcome.planning.spot_nodes, summary(outcome.planning)) == (0, {"od": ["no-room-on-spot"]})
