"""Leftovers: pods that must not run on spot nodes move to on-demand nodes that stay, and their nodes are emptied."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from random import Random
from typing import Any, Final

import pytest

from rescheduler.facts.round_facts import FactsReader, Known
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.movements import LeftoverMoves
from rescheduler.planning.outcome import Blocker, DrainKind, Landing, Plan, Planning, Purpose, Reason, Rejected
from rescheduler.planning.placement.forecast import Forecast, Forecaster
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Leftovers, Policy, Survive
from rescheduler.planning.waits import Cooldown
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import worths_of
from tests.bench import leftovers as bench
from tests.bench.freed import cluster as generated
from tests.planning.builders import (
    CIRCUMSTANCES,
    HOST,
    NOW,
    ON_DEMAND,
    ZONE,
    Manifest,
    budget,
    node,
    pod,
    repels,
    seeks,
    snapshot,
)
from tests.planning.builders import SPOT as SPOT_LABEL
from tests.planning.changing import ChangingCluster

PIN: Final[dict[str, Any]] = {"nodeSelector": {ON_DEMAND: ""}}
STAYS: Final[dict[str, Any]] = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
STAYS_ITSELF: Final = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
OWNER_OF_B: Final = "default/uid-of-b"
SPOT: Final = node("s", cpu="8")
SPOT_TAINT: Final = [{"key": "spot", "effect": "NoSchedule"}]

#: od-1 stays because of b-1, od-2 because of c-1. Each has room for the pinned pod of the other.
ROOMY: Final = [
    *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
    *(pod("a-1", "od-1"), pod("b-1", "od-1", **PIN)),
    *(pod("c-1", "od-2", cpu="2", **PIN),),
]
#: Both nodes are full. od-2 can give d-1 or d-2, and od-1 only a-1, of which one is large enough.
FULL: Final = [
    *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
    *(pod("a-1", "od-1", cpu="3"), pod("b-1", "od-1", **PIN)),
    *(pod("c-1", "od-2", **PIN), pod("d-1", "od-2", cpu="2"), pod("d-2", "od-2")),
]


def planned(objects: list[Manifest], circumstances: Circumstances = CIRCUMSTANCES, **settings: Any) -> Planning:
    policy = Policy(**{"leftovers": Leftovers.MOVE, "budgets_in_steps": True, **settings})
    return Planner(snapshot(objects), policy).plan_all(circumstances)


def moves(plan: Plan) -> dict[str, str]:
    return {placement.pod.name: placement.node for placement in plan.placements}


def freed(planning: Planning) -> dict[str, dict[str, str]]:
    return {plan.node: moves(plan) for plan in planning.plans}


def test_a_node_is_emptied_with_its_leftovers_on_a_node_that_stays() -> None:
    [plan] = planned(ROOMY).plans
    assert (plan.node, moves(plan), plan.kind) == ("od-2", {"c-1": "od-1"}, DrainKind.LEFTOVERS)
    assert (set(plan.leftovers), plan.landing, plan.first) == ({"uid-c-1"}, Landing(0, 0, 1), ())


def first(objects: list[Manifest]) -> dict[str, dict[str, str]]:
    """Return the plans of the next drain, without those of nodes that have no pods to move."""
    policy = Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True)
    plans = Planner(snapshot(objects), policy).first_plan(CIRCUMSTANCES).plans
    return {plan.node: moves(plan) for plan in plans if plan.placements}


@pytest.mark.parametrize(
    ("empty", "moved"),
    [
        ({}, {}),
        ({"unschedulable": True}, {"od-2": {"c-1": "od-1"}}),
        ({"annotations": STAYS_ITSELF}, {"od-2": {"c-1": "od-0"}}),
    ],
    ids=["open", "cordoned", "kept"],
)
def test_no_leftover_fills_a_node_that_is_free(empty: dict[str, Any], moved: dict[str, dict[str, str]]) -> None:
    """The scheduler prefers a node without pods: while it is open, nothing moves, unless it stays anyway."""
    assert first([*ROOMY, node("od-0", ON_DEMAND, **empty)]) == moved


@pytest.mark.parametrize("on_it", [[], [pod("low-1", "od-0", priority=-11)]], ids=["empty", "with an expendable pod"])
def test_a_drain_that_has_begun_sends_no_leftover_to_a_node_that_is_free(on_it: list[Manifest]) -> None:
    planner = Planner(snapshot([*ROOMY, node("od-0", ON_DEMAND), *on_it]), Policy(leftovers=Leftovers.MOVE))
    assert isinstance(planner.look_again("od-2", CIRCUMSTANCES, purpose=Purpose(DrainKind.LEFTOVERS)), Rejected)


@pytest.mark.parametrize("leftovers", [Leftovers.OFF, Leftovers.PLAN])
def test_nothing_is_planned_unless_it_is_wanted(leftovers: Leftovers) -> None:
    assert planned(ROOMY, leftovers=leftovers).plans == ()


def test_of_equal_nodes_the_one_with_fewer_moves_is_emptied() -> None:
    more = [pod(f"e-{number}", "od-2", cpu="100m") for number in (1, 2, 3)]
    assert freed(planned([*ROOMY, *more])).keys() == {"od-1"}


def test_a_full_node_that_stays_gives_pods_to_spot_nodes_first() -> None:
    """It gives the smallest pod that is enough."""
    [plan] = planned(FULL).plans
    assert (plan.node, moves(plan)) == ("od-1", {"a-1": "s", "b-1": "od-2"})
    [first] = plan.first
    assert (first.node, moves(first), first.kind) == ("od-2", {"d-2": "s"}, DrainKind.MAKES_ROOM)
    assert plan.next is first
    assert first.purpose == Purpose(DrainKind.MAKES_ROOM, frozenset({"uid-d-2"}))


@pytest.mark.parametrize(
    ("kept", "gives"),
    [
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "d-1"),
        ({"owner": None}, "d-1"),
        ({"nodeSelector": {ON_DEMAND: ""}}, "d-1"),
    ],
    ids=["opt-out", "no controller", "pinned"],
)
def test_a_pod_that_must_not_be_evicted_or_not_go_to_spot_is_not_given(kept: dict[str, Any], gives: str) -> None:
    objects = [each for each in FULL if each["metadata"]["name"] != "d-2"]
    [plan] = planned([*objects, pod("d-2", "od-2", **kept)]).plans
    assert [moves(each).keys() for each in plan.first] == [{gives}]


@pytest.mark.parametrize(("only_there", "freed_nodes"), [(True, []), (False, ["od-1"])])
def test_nothing_is_given_if_the_scheduler_may_put_it_where_the_node_needs_room(
    freed_nodes: list[str], *, only_there: bool
) -> None:
    """What od-2 gives fits both spot nodes. The scheduler prefers the empty one, which alone has room for a-1."""
    objects = [each for each in FULL if each not in (SPOT, FULL[3])]
    selector: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": "s-2"}} if only_there else {}
    objects += [node("s-1", cpu="1500m"), node("s-2", cpu="3500m"), pod("a-1", "od-1", cpu="3", **selector)]
    if not only_there:
        objects.append(node("s-3", cpu="3500m"))
    assert list(freed(planned(objects))) == freed_nodes


def test_a_node_that_is_worth_less_is_emptied_if_the_better_one_cannot_be() -> None:
    """The pods of od-3 fit spot nodes together, but the second one has no place while the first one is there."""
    twins = [pod(f"t-{number}", "od-3", labels={"app": "t"}, affinity=seeks("t", HOST)) for number in (1, 2)]
    objects = [
        *(node("od-1", ON_DEMAND, cpu="2"), node("od-2", ON_DEMAND, cpu="2", annotations=STAYS_ITSELF)),
        *(node("od-3", ON_DEMAND, cpu="3"), SPOT),
        *(pod("a-1", "od-1"), pod("b-1", "od-1", cpu="500m", **PIN)),
        *(pod("c-1", "od-2", cpu="1200m", **PIN), pod("d-1", "od-3", cpu="500m", **PIN), *twins),
    ]
    assert freed(planned(objects)) == {"od-1": {"a-1": "s", "b-1": "od-2"}}


def test_nothing_is_given_if_the_node_cannot_be_emptied_after_all() -> None:
    """The spot node has room for what is given, and not for the pods of the node as well."""
    small = [each if each is not SPOT else node("s", cpu="3500m") for each in FULL]
    assert planned(small).plans == ()


@pytest.mark.parametrize(
    ("requested", "selector", "makes_room"),
    [("1", ON_DEMAND, False), ("300m", ON_DEMAND, False), ("2500m", ON_DEMAND, True), ("1", "gone", True)],
    ids=["of the same size", "smaller", "too large", "for another node"],
)
def test_no_room_is_made_that_a_pending_pod_would_take(requested: str, selector: str, *, makes_room: bool) -> None:
    queued = pod("q-1", "", cpu=requested, nodeSelector={selector: ""})
    assert bool(planned([*FULL, queued]).plans) is makes_room


#: What keeps pods on on-demand nodes, and whether it makes them leftovers.
RULES: Final[Mapping[str, tuple[dict[str, Any], bool]]] = {
    "nodeSelector": (PIN, True),
    "affinity": (
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": ON_DEMAND, "operator": "Exists"}]}]
                    }
                }
            }
        },
        True,
    ),
    "opt-out": ({**PIN, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, False),
    "no controller": ({**PIN, "owner": None}, False),
    "floor": ({"annotations": {"spot-rescheduler/min-on-demand-replicas": "1"}}, False),
    "its own node": ({"nodeSelector": {HOST: "od-1"}}, False),
    "too large": ({**PIN, "cpu": "3500m"}, False),
    "local storage": ({**PIN, "volumes": [{"name": "data", "emptyDir": {}}]}, False),
}


@pytest.mark.parametrize(("rule", "moved"), RULES.values(), ids=RULES)
def test_only_what_the_scheduler_keeps_off_spot_nodes_moves_to_on_demand_nodes(
    rule: dict[str, Any], *, moved: bool
) -> None:
    """What may not be evicted stays, and what only this program keeps could go to spot nodes when it is created."""
    stays = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
        *(pod("a-1", "od-1"), pod("b-1", "od-1", **rule), pod("c-1", "od-2", annotations=stays)),
    ]
    assert freed(planned(objects)) == ({"od-1": {"a-1": "s", "b-1": "od-2"}} if moved else {})


def test_pods_that_do_not_tolerate_the_taint_of_spot_nodes_are_leftovers() -> None:
    tainted = [each if each is not SPOT else node("s", cpu="8", taints=SPOT_TAINT) for each in ROOMY]
    tolerant = [pod("e-1", "od-2", tolerations=[{"key": "spot", "operator": "Exists"}])]
    [plan] = planned([*tainted, *tolerant]).plans
    assert {name: target for name, target in moves(plan).items() if name == "e-1"} in ({}, {"e-1": "s"})
    assert {moves(plan)[name] for name in moves(plan) if name != "e-1"} <= {"od-1", "od-2"}


@pytest.mark.parametrize(
    "fields",
    [
        {"taints": [{"key": "x", "effect": "NoSchedule"}]},
        {"unschedulable": True},
        {"ready": "False"},
        {"taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "effect": "PreferNoSchedule"}]},
        {"taints": [{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}]},
    ],
    ids=["taint", "cordoned", "not ready", "about to be removed", "out of service"],
)
def test_a_node_that_takes_no_pods_for_good_receives_none(fields: dict[str, Any]) -> None:
    """Not even the taint that keeps new pods off on-demand nodes is overlooked."""
    stays = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND, **fields), SPOT, pod("b-1", "od-1", **PIN)]
    assert planned([*objects, pod("c-1", "od-2", annotations=stays)]).plans == ()
    healthy = [objects[0], node("od-2", ON_DEMAND), *objects[2:], pod("c-1", "od-2", annotations=stays)]
    assert freed(planned(healthy)) == {"od-1": {"b-1": "od-2"}}


@pytest.mark.parametrize(("owed_by", "receives"), [(None, False), ("default/z-1", True)], ids=["the node", "its pod"])
def test_a_node_that_owes_pods_receives_none_and_one_with_pods_of_an_owner_that_waits_does(
    owed_by: str | None, *, receives: bool
) -> None:
    """Otherwise a tenant whose pods run everywhere and never recover would stop the leftovers of all."""
    vetoes = {"od-2": (Blocker(Reason.NOT_RECOVERED, "did not run in time", owed_by),)}
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
        *(pod("a-1", "od-1"), pod("b-1", "od-1", **PIN), pod("z-1", "od-2")),
    ]
    found = planned(objects, replace(CIRCUMSTANCES, vetoes=vetoes))
    assert freed(found) == ({"od-1": {"a-1": "s", "b-1": "od-2"}} if receives else {})


def test_a_node_that_a_plan_empties_receives_nothing() -> None:
    """od-1 is emptied to spot nodes, so the leftover of od-2 has no other place."""
    objects = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT, pod("a-1", "od-1"), pod("c-1", "od-2", **PIN)]
    assert freed(planned(objects)) == {"od-1": {"a-1": "s"}}


@pytest.mark.parametrize("seed", range(12))
def test_no_node_receives_that_is_emptied_and_every_step_fits_after_the_ones_before(seed: int) -> None:
    """By the amounts of random clusters, carried out drain by drain."""
    cluster = snapshot(bench.small(Random(seed)))
    plans = Planner(cluster, Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True)).plan_all(bench.NOW).plans
    emptied = [plan.node for plan in plans]
    free = {name: cluster.nodes.free[row].copy() for name, row in cluster.nodes.row.items()}
    for step in (step for plan in plans for step in (*plan.first, plan)):
        for placement in step.placements:
            amounts = cluster.vector(cluster.pods[str(placement.pod)].cls.requests)
            assert placement.node not in emptied
            free[placement.node] -= amounts
            free[step.node] += amounts
        assert all((free[placement.node] >= 0).all() for placement in step.placements)


@pytest.mark.parametrize("seed", [*range(8), 12, 17, 40, 45, 122, 361, 403, 483, 711])
def test_the_search_is_at_most_one_node_from_the_optimum_and_frees_never_less(seed: int) -> None:
    cluster = snapshot(bench.small(Random(seed)))
    without, found = (len(bench.planned(cluster, each).plans) for each in (Leftovers.OFF, Leftovers.MOVE))
    assert without <= found
    assert bench.optimum(cluster) - found <= 1


def test_a_node_on_which_leftovers_could_land_stays_and_not_the_one_that_gives_them() -> None:
    """In a cluster of many nodes. If the other one stayed, five nodes would be freed."""
    rng = Random(2042)
    objects = bench.pinned(rng, generated(rng, nodes=rng.randint(2, 16)), rng.choice((0.2, 1 / 3, 0.6)))
    for each in objects:
        if each["kind"] == "Node" and rng.random() < 0.4 and each["metadata"]["name"].startswith("od"):
            each["status"]["allocatable"]["cpu"] = str(rng.choice((4, 8, 16)))
    without, found = (len(bench.planned(snapshot(objects), each).plans) for each in (Leftovers.OFF, Leftovers.MOVE))
    assert (without, found) == (0, 10)


# Money

PRICES: Final = PriceList(
    per_vcpu=Decimal("0.04"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.01"), spot_per_gib=Decimal(0)
)


def test_the_more_expensive_node_is_emptied() -> None:
    """od-2 has fewer pods, and od-1 is twice as large."""
    objects = [node("od-1", ON_DEMAND, cpu="8"), *ROOMY[1:]]
    assert freed(planned(objects, replace(CIRCUMSTANCES, prices=PRICES))).keys() == {"od-1"}


@pytest.mark.parametrize("spot", ["0.01", "1"])
def test_a_node_is_not_emptied_for_less_than_its_pods_cost_on_spot_nodes(spot: str) -> None:
    objects = [each for each in ROOMY if each["metadata"]["name"] != "c-1"]
    stays = pod("c-1", "od-2", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
    prices = replace(PRICES, spot_per_vcpu=Decimal(spot))
    found = planned([*objects, stays], replace(CIRCUMSTANCES, prices=prices))
    assert freed(found).keys() == ({"od-1"} if spot == "0.01" else set())


def test_a_node_that_is_paid_anyway_is_not_emptied() -> None:
    prices = replace(PRICES, commitments=(Commitment(nodes=2),))
    assert planned(ROOMY, replace(CIRCUMSTANCES, prices=prices)).plans == ()


# Nodes that could go to spot nodes alone

#: The pods of the large node take all room of the spot node. Without it, both others go, if it takes their leftovers.
CROWDED: Final = [
    *(node("large", ON_DEMAND, cpu="16"), pod("a-1", "large", cpu="3"), pod("a-2", "large", cpu="1")),
    *(node("od-1", ON_DEMAND), pod("b-1", "od-1", cpu="2"), pod("c-1", "od-1", cpu="1500m", **PIN)),
    *(node("od-2", ON_DEMAND), pod("d-1", "od-2", cpu="2"), pod("e-1", "od-2", cpu="1500m", **PIN)),
    node("s"),
]


def test_a_node_that_could_go_alone_stays_if_more_nodes_go_in_place_of_it() -> None:
    assert freed(planned(CROWDED, leftovers=Leftovers.OFF)).keys() == {"large"}
    found = planned(CROWDED)
    assert freed(found) == {"od-1": {"b-1": "s", "c-1": "large"}, "od-2": {"d-1": "s", "e-1": "large"}}
    [large] = found.rejected
    assert [(large.node, each.reason, each.pod) for each in large.blockers] == [("large", Reason.PINNED, None)]
    assert first(CROWDED) == {"od-1": {"b-1": "s", "c-1": "large"}}


def test_a_node_that_could_go_alone_and_takes_no_leftovers_gets_its_own_reason() -> None:
    """Another node with room takes the leftovers."""
    other = [node("other", ON_DEMAND, cpu="64"), pod("k-1", "other", cpu="8", **STAYS)]
    found = planned([*CROWDED, *other])
    assert freed(found).keys() == {"od-1", "od-2"}
    [large] = [each for each in found.rejected if each.node == "large"]
    assert {each.reason for each in large.blockers} == {Reason.NO_ROOM}


@pytest.mark.parametrize(("survive", "last"), [(Survive.OFF, {"paid"}), (Survive.POOL, set[str]())])
def test_a_node_that_could_go_alone_goes_after_the_others_if_it_still_can(survive: Survive, last: set[str]) -> None:
    """A commitment pays for this node anyway, so that it counts for nothing in the choice."""
    objects = [
        *CROWDED[:-1],
        *(node("sa", cpu="6", zone="a"), node("sb", cpu="6", zone="b")),
        node("paid", ON_DEMAND, cpu="32", taints=SPOT_TAINT, labels={"node.kubernetes.io/instance-type": "m5.8xlarge"}),
        pod("p-1", "paid", cpu="5", nodeSelector={SPOT_LABEL: ""}),
        pod("k-1", "large", cpu="100m", **STAYS),
    ]
    prices = replace(PRICES, commitments=(Commitment("m5.8xlarge", nodes=1),))
    found = planned(objects, replace(CIRCUMSTANCES, prices=prices), survive=survive)
    assert freed(found).keys() == {"od-1", "od-2"} | last


@pytest.mark.parametrize(("share", "last"), [(100, {"paid"}), (50, set[str]())])
def test_a_node_that_could_go_alone_does_not_exceed_a_share_of_a_pool(share: int, last: set[str]) -> None:
    """The other replica of b is moved to the only pool of spot nodes before."""
    objects = [
        *CROWDED[:-1],
        *(node("s", cpu="12"), pod("k-1", "large", cpu="100m", **STAYS)),
        node("paid", ON_DEMAND, cpu="32", taints=SPOT_TAINT, labels={"node.kubernetes.io/instance-type": "m5.8xlarge"}),
        pod("b-2", "paid", cpu="5", nodeSelector={SPOT_LABEL: ""}),
    ]
    prices = replace(PRICES, commitments=(Commitment("m5.8xlarge", nodes=1),))
    found = planned(objects, replace(CIRCUMSTANCES, prices=prices), max_share_per_spot_pool=share)
    assert freed(found).keys() == {"od-1", "od-2"} | last


def test_a_node_that_could_go_alone_does_not_go_after_the_others_if_its_group_keeps_it() -> None:
    """Its group of Cluster Autoscaler would buy it again, because another node of the group goes in the choice."""
    group = {"eks.amazonaws.com/nodegroup": "g"}
    paid = {"node.kubernetes.io/instance-type": "m5.8xlarge", **group}
    objects = [
        *[each for each in CROWDED[:-1] if each["metadata"]["name"] != "od-1"],
        *(node("s", cpu="12"), node("od-1", ON_DEMAND, labels=group), pod("k-1", "large", cpu="100m", **STAYS)),
        *(node("paid", ON_DEMAND, cpu="32", taints=SPOT_TAINT, labels=paid), pod("p-1", "paid", cpu="5")),
        {"kind": "AutoscalerGroups", "groups": [{"name": "g", "target": 2, "minimum": 1}]},
    ]
    prices = replace(PRICES, commitments=(Commitment("m5.8xlarge", nodes=1),))
    found = planned(objects, replace(CIRCUMSTANCES, prices=prices))
    assert freed(found).keys() == {"od-1", "od-2"}
    assert {each.node: each.blockers[0].reason for each in found.rejected}["paid"] is Reason.STATIC_CAPACITY


def test_nodes_that_only_go_alone_pod_by_pod_are_not_replaced_by_fewer() -> None:
    """Their pods move in steps, which the search for leftovers does not try, and they would take those of one node."""
    objects = [*(node("c", ON_DEMAND, cpu="8"), node("s1", cpu="32", zone="z1"))]
    objects += [*(node("s2", cpu="32", zone="z2"), node("s3", cpu="32", zone="z3"))]
    for number in (1, 2, 3):
        name, zone = f"o-{number}", f"z{number}"
        objects += [node(name, ON_DEMAND, cpu="8", zone=zone), pod(f"c-{number}", "c", affinity=repels("c"), **PIN)]
        for app, other in (("x", "y"), ("y", "x")):
            beside = seeks(f"{other}{number}", ZONE)
            objects.append(pod(f"{app}{number}-1", name, labels={"app": f"{app}{number}"}, affinity=beside))
        objects += [pod(f"w{number}-{pods}", name, cpu="100m") for pods in range(3)]
    assert freed(planned(objects)).keys() == freed(planned(objects, leftovers=Leftovers.OFF)).keys()
    assert first(objects).keys() <= {"o-1", "o-2", "o-3"}


@pytest.mark.parametrize("kept", ["vetoes", "cooling"])
def test_a_choice_is_not_kept_when_one_of_its_nodes_may_not_be_drained_any_more(kept: str) -> None:
    """The first node could go alone: so nothing else about the node that is chosen in place of it is looked at."""
    planner = Planner(snapshot(CROWDED), Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True))
    assert planner.first_plan(CIRCUMSTANCES).plans[-1].node == "od-1"
    blocker = Blocker(Reason.EVICTION_REFUSED, "it was refused")
    what: Any = {
        "vetoes": {"od-1": (blocker,)},
        "cooling": {"od-1": Cooldown("uid-od-1", 1, NOW + timedelta(hours=1))},
    }[kept]
    later = replace(CIRCUMSTANCES, **{kept: what})
    fresh = Planner(snapshot(CROWDED), planner.policy).first_plan(later).plans
    assert planner.first_plan(later).plans == fresh
    assert fresh[-1].node != "od-1"


@pytest.mark.parametrize("seconds", [0.1, 2.0])
def test_what_was_found_when_the_effort_ended_is_used(seconds: float) -> None:
    """Each of ten nodes has many pods, so that not even one order is searched to its end in the shorter time."""
    objects = [node(f"s-{number}", cpu="16") for number in range(10)]
    for number in range(12):
        objects += [node(f"stays-{number}", ON_DEMAND, cpu="40"), pod(f"k-{number}", f"stays-{number}", **STAYS)]
    for number in range(10):
        pods = ((f"p{number}-{pods}", {} if pods % 2 else PIN) for pods in range(50))
        objects += [node(f"od-{number}", ON_DEMAND), *(pod(each, f"od-{number}", cpu="50m", **to) for each, to in pods)]
    assert len(planned(objects, planning_timeout=seconds).plans) == 10


@pytest.mark.parametrize("price", ["0.16", "0.25"])
def test_the_lever_is_worth_what_the_plan_with_it_saves_more(price: str) -> None:
    """Without leftovers the large node goes, for 0.3; in place of it, two others do."""
    by_node = {"large": Decimal("0.3"), "od-1": Decimal(price), "od-2": Decimal(price), "s": Decimal("0.01")}
    prices, cluster = PriceList(by_node=by_node), snapshot(CROWDED)
    circumstances = replace(CIRCUMSTANCES, prices=prices)
    before, after = (planned(CROWDED, circumstances, leftovers=each) for each in (Leftovers.PLAN, Leftovers.MOVE))
    assert [{*freed(each)} for each in (before, after)] == [{"large"}, {"od-1", "od-2"}]
    saved = [
        sum(each.saved or 0 for each in worths_of(plans, cluster, prices, NOW.date()).values())
        for plans in (before, after)
    ]
    planner = Planner(cluster, Policy(leftovers=Leftovers.PLAN, budgets_in_steps=True))
    levers = levers_of(before, planner, cluster, planner.policy, circumstances, prices, lambda: False).levers
    [lever] = [each for each in levers if "leftovers" in each.controller]
    assert (lever.worth.saved, lever.frees) == (saved[1] - saved[0], ("od-1", "od-2"))
    assert lever.obstacle.endswith("large stays in place of them")


def test_nodes_that_could_go_alone_are_not_replaced_if_no_more_go() -> None:
    """The large node goes alone, or one of the others with its leftovers: that is the same number."""
    objects = [each for each in CROWDED if each["metadata"]["name"] not in {"od-2", "d-1", "e-1"}]
    assert freed(planned(objects)) == freed(planned(objects, leftovers=Leftovers.OFF))
    assert first(objects).keys() == {"large"}


# Limits


def test_a_minimum_of_on_demand_nodes_is_kept() -> None:
    assert planned(ROOMY, min_on_demand_nodes=2).plans == ()


def test_a_budget_of_a_leftover_or_of_what_is_given_is_kept() -> None:
    assert freed(planned([*ROOMY, budget("c", "c", allowed=0)])).keys() == {"od-1"}
    [plan] = planned([*FULL, budget("d", "d", allowed=0), budget("c", "c", allowed=0)]).plans or [None]
    assert plan is None


def test_leftovers_that_repel_each_other_are_kept_apart() -> None:
    apart = {"affinity": repels("x"), "labels": {"app": "x"}, **PIN}
    objects = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT, pod("b-1", "od-1", **apart)]
    assert planned([*objects, pod("c-1", "od-2", **apart)]).plans == ()


# Rest


@pytest.mark.parametrize(("created", "moves_again"), [(-timedelta(hours=2), True), (timedelta(minutes=1), False)])
def test_what_moved_as_a_leftover_rests(created: timedelta, *, moves_again: bool) -> None:
    """Pods of the same owner that are older were not moved."""
    moved = NOW - timedelta(hours=1)
    at = f"{moved + created:%Y-%m-%dT%H:%M:%SZ}"
    stays = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    objects = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT, pod("b-1", "od-1", created=at, **PIN)]
    circumstances = replace(CIRCUMSTANCES, rested={"default/uid-of-b": moved})
    found = planned([*objects, pod("c-1", "od-2", annotations=stays)], circumstances)
    assert freed(found).keys() == ({"od-1"} if moves_again else set())


@pytest.mark.parametrize(
    ("created", "moves_again"),
    [(timedelta(hours=-30), True), (timedelta(hours=-25), True), (timedelta(hours=-20), False)],
    ids=["before the first move", "moved first, and has rested", "moved later"],
)
def test_each_pod_of_an_owner_rests_since_its_own_move(created: timedelta, *, moves_again: bool) -> None:
    """Its pods moved 26 hours ago, and again since then."""
    times = (NOW - timedelta(hours=hours) for hours in (26, 21, 1))
    known = reduce(lambda before, at: before.moved([OWNER_OF_B], at), times, LeftoverMoves())
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
        *(pod("b-1", "od-1", created=f"{NOW + created:%Y-%m-%dT%H:%M:%SZ}", **PIN), pod("c-1", "od-2", **STAYS)),
    ]
    circumstances = replace(CIRCUMSTANCES, rested=known.resting(NOW, timedelta(hours=24)))
    assert freed(planned(objects, circumstances)).keys() == ({"od-1"} if moves_again else set())


def test_a_pod_that_has_rested_is_planned_without_another_change() -> None:
    """The daemon plans again when the rest of the pod ends, and not only after that of its owner's last move."""
    created = NOW - timedelta(hours=23)
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), SPOT),
        *(pod("b-1", "od-1", created=f"{created:%Y-%m-%dT%H:%M:%SZ}", **PIN), pod("c-1", "od-2", **STAYS)),
    ]
    resting = replace(CIRCUMSTANCES, rested={OWNER_OF_B: created})
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE))
    assert planner.first_plan(resting).plans == ()
    assert planner.first_until(resting) == created + timedelta(hours=24)
    assert planner.first_plan(replace(resting, now=NOW + timedelta(minutes=59))).plans == ()
    assert freed(planner.first_plan(replace(resting, now=NOW + timedelta(hours=1)))).keys() == {"od-1"}


# The forecast


def test_a_leftover_that_could_land_on_a_node_about_to_be_emptied_rejects_the_plan() -> None:
    """od-3 is the emptiest node: the scheduler prefers it, so it stays, although both others would fit on one."""
    objects = [
        *(node(f"od-{number}", ON_DEMAND, cpu="8") for number in (1, 2, 3)),
        *(SPOT, pod("a-1", "od-1", cpu="5", **PIN), pod("b-1", "od-2", cpu="2", **PIN), pod("c-1", "od-3", **PIN)),
    ]
    planning = planned(objects)
    assert all(target not in freed(planning) for plan in planning.plans for target in moves(plan).values())
    for plan in planning.plans:
        assert {placement.node for placement in plan.forecast}.isdisjoint(freed(planning))


def attracted(number: int) -> tuple[list[Manifest], Circumstances]:
    """Return many nodes with a leftover each, which would land on a large node that owes pods and receives none."""
    objects = [node("od-x", ON_DEMAND, cpu="16"), pod("z-1", "od-x", cpu="100m", **STAYS)]
    for each in range(number):
        objects += [node(f"s-{each}"), node(f"od-{each}", ON_DEMAND)]
        objects += [pod(f"a{each}-1", f"od-{each}"), pod(f"b{each}-1", f"od-{each}", **PIN)]
    return objects, replace(CIRCUMSTANCES, vetoes={"od-x": (Blocker(Reason.NOT_RECOVERED, "it owes pods"),)})


@pytest.fixture
def forecasts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the nodes for whose drains forecasts were made."""
    nodes: list[str] = []
    forecast = Forecaster.forecast

    def counted(self: Forecaster, plan: Plan, **limits: Any) -> Forecast:
        nodes.append(plan.node)
        return forecast(self, plan, **limits)

    monkeypatch.setattr(Forecaster, "forecast", counted)
    return nodes


def test_the_forecasts_of_each_node_are_few_however_many_nodes_there_are(forecasts: list[str]) -> None:
    objects, circumstances = attracted(40)
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE, planning_timeout=1000.0))
    planner.first_plan(circumstances)
    assert 40 <= len(forecasts) <= 5 * 40


def test_the_daemon_makes_no_forecasts_beyond_the_time_limit_of_planning(forecasts: list[str]) -> None:
    """Of two pods with five simulations each, one node is too many for this time, and the others are not tried."""
    objects, circumstances = attracted(10)
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE, planning_timeout=0.001))
    assert planner.first_plan(circumstances).plans == ()
    assert len(forecasts) <= 1


# The loss of spot nodes


@pytest.mark.parametrize("only_first", [False, True], ids=["all", "the daemon's"])
@pytest.mark.parametrize("survive", [Survive.OFF, Survive.POOL])
def test_another_node_is_emptied_if_the_best_one_would_break_the_certificate(
    survive: Survive, *, only_first: bool
) -> None:
    """The pods of the large node fit both pools of spot nodes, and none of them alone."""
    spot: dict[str, Any] = {"nodeSelector": {SPOT_LABEL: ""}}
    objects = [
        *(node("sa", zone="a"), node("sb", zone="b"), node("keep", ON_DEMAND, cpu="16"), pod("k-1", "keep", **STAYS)),
        *(
            node("big", ON_DEMAND, cpu="8"),
            pod("p-1", "big", cpu="2500m", **spot),
            pod("r-1", "big", cpu="2500m", **spot),
        ),
        *(node("small", ON_DEMAND), pod("q-1", "small", cpu="400m")),
        *(pod("x-1", "big", cpu="500m", **PIN), pod("y-1", "small", cpu="500m", **PIN)),
    ]
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE, survive=survive))
    circumstances = replace(CIRCUMSTANCES, prices=PRICES)
    found = freed(planner.first_plan(circumstances) if only_first else planner.plan_all(circumstances)).keys()
    best = {"big"} if only_first else {"big", "small"}
    assert found == (best if survive is Survive.OFF else {"small"})


# The daemon's questions


@pytest.mark.parametrize("objects", [ROOMY, FULL], ids=["roomy", "full"])
def test_the_first_plan_is_that_of_all_nodes_and_stands_when_it_is_planned_again(objects: list[Manifest]) -> None:
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True))
    [plan] = planner.plan_all(CIRCUMSTANCES).plans
    [first] = planner.first_plan(CIRCUMSTANCES).plans
    assert (first.node, moves(first)) == (plan.node, moves(plan))
    assert planner.first_plan(CIRCUMSTANCES) is planner.first_plan(CIRCUMSTANCES)
    again = planner.look_again(first.next.node, CIRCUMSTANCES, purpose=first.next.purpose)
    assert isinstance(again, Plan)
    assert moves(again) == moves(first.next)
    followed = planner.follow(first.next.node, CIRCUMSTANCES, (), purpose=first.next.purpose)
    assert isinstance(followed, Plan)


def test_a_drain_to_spot_nodes_places_no_leftover_on_on_demand_nodes() -> None:
    """A pod may get a selector while its node is drained to spot nodes."""
    planner = Planner(snapshot(ROOMY), Policy(leftovers=Leftovers.MOVE))
    verdict = planner.look_again("od-1", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.PINNED


def test_nodes_are_drained_to_spot_nodes_before_any_leftover_moves() -> None:
    objects = [*ROOMY, node("od-3", ON_DEMAND), pod("e-1", "od-3")]
    planner = Planner(snapshot(objects), Policy(leftovers=Leftovers.MOVE))
    [first] = planner.first_plan(CIRCUMSTANCES).plans
    assert (first.node, first.kind) == ("od-3", DrainKind.TO_SPOT)


#: od-3 and od-4 can be drained, each only alone; od-1 with its leftover on od-2 takes 1 of the 4 vCPU.
ALONE: Final = [
    *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="4")),
    *(pod("a-1", "od-1"), pod("b-1", "od-1", **PIN)),
    pod("c-1", "od-2", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
    *(node(name, ON_DEMAND, cpu="4") for name in ("od-3", "od-4")),
    *(pod(f"{name}-1", f"od-{number}", cpu="4") for number, name in ((3, "e"), (4, "g"))),
]


@pytest.mark.parametrize("others", [(), ("od-3",), ("od-3", "od-4")], ids=["none", "one", "two"])
def test_each_by_itself_does_not_wait_for_the_room_of_others(others: tuple[str, ...]) -> None:
    names = {"od-3", "od-4"} - {*others}
    objects = [
        each
        for each in ALONE
        if each["metadata"]["name"] not in names and each.get("spec", {}).get("nodeName") not in names
    ]
    policy = Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True)
    plans = Planner(snapshot(objects), policy).plan_each(CIRCUMSTANCES).plans
    assert {plan.node: plan.kind for plan in plans} == {
        "od-1": DrainKind.LEFTOVERS,
        **dict.fromkeys(others, DrainKind.TO_SPOT),
    }


@pytest.mark.parametrize(
    ("over", "found"), [(False, ["Setting --leftovers=move"]), (True, [])], ids=["in time", "late"]
)
def test_the_change_is_not_looked_for_after_the_time_limit(found: list[str], *, over: bool) -> None:
    cluster, policy = snapshot(ROOMY), Policy(leftovers=Leftovers.PLAN, budgets_in_steps=True)
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    levers = levers_of(planning, planner, cluster, policy, CIRCUMSTANCES, PriceList(), lambda: over)
    assert [each.controller for each in levers.levers if "leftovers" in each.controller] == found
    assert levers.complete is not over


def test_another_veto_does_not_hide_what_a_node_owes() -> None:
    """The leftovers of another node must not move to a node that may be the only place of owed pods."""
    ssd: Manifest = {"nodeSelector": {"disk": "ssd"}}
    nodes = [node(name, ON_DEMAND, cpu="8", labels={"disk": "ssd"}) for name in ("od-c", "od-d")]
    table = snapshot([*nodes, node("s"), pod("l-1", "od-c", cpu="500m", **ssd), pod("d-1", "od-d", cpu="3", **ssd)])
    policy = Policy(leftovers=Leftovers.MOVE, allow_returning_plans=True, allow_fragile_plans=True)
    debt = Debt(Controller("default", "Deployment", "gone", "uid-of-gone"), 1, 1)
    memory = Memory(settled=(OpenDebt("od-d", NOW, debt, lacking=True),))
    refused = {"od-d": (Blocker(Reason.PROVIDER_REFUSED, "below the minimum of its group"),)}
    reader = FactsReader(policy)
    for checked in ({}, refused):
        facts = reader.facts(table, Known(memory=memory, checked=checked), NOW)
        assert not Planner(table, policy).first_plan(facts.circumstances).plans


def test_leftovers_are_planned_again_after_the_edit_of_a_pod() -> None:
    ssd: Manifest = {"nodeSelector": {"disk": "ssd"}}
    nodes = [node(name, ON_DEMAND, cpu="8", labels={"disk": "ssd"}) for name in ("od-c", "od-d")]
    pods = [pod("c-1", "od-c", cpu="2"), pod("l-1", "od-c", cpu="500m", **ssd), pod("d-1", "od-d", cpu="7", **ssd)]
    full = [node("od-a", ON_DEMAND, cpu="2"), pod("a-1", "od-a", cpu="2"), node("s", cpu="2")]
    policy = Policy(leftovers=Leftovers.MOVE, allow_returning_plans=True, allow_fragile_plans=True)
    cluster = ChangingCluster([*nodes, *full, *pods])
    planner = Planner(cluster.snapshot, policy)
    assert planner.first_plan(CIRCUMSTANCES).plans
    cluster.put(pod("c-1", "od-c", cpu="2", annotations={"spot-rescheduler/do-not-evict": "true"}))
    later = replace(CIRCUMSTANCES, now=NOW + timedelta(hours=2))
    assert planner.first_plan(later).plans == Planner(cluster.snapshot, policy).first_plan(later).plans
