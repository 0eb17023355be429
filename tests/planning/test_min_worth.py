"""Tests of --min-worth and --drain-order=worth: what a node is worth for the moves of its pods, in every answer."""

import random
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace as replaced

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.durations import Backoff
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.move_costs import NO_HISTORY, MoveHistory
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, DrainOrder, Policy
from rescheduler.planning.pools import HORIZON, PoolLosses
from rescheduler.planning.what_if.overview import overview
from rescheduler.planning.what_if.worth_curve import worth_curve
from tests.bench.freed import cluster, in_pools
from tests.planning.builders import NOW, ON_DEMAND, ZONE, Manifest, node, pod, snapshot

TYPE = "node.kubernetes.io/instance-type"
#: A vCPU costs a cent per hour, which is 7.30 per month, and a tenth of that on spot nodes.
PRICES = PriceList(
    per_vcpu=Decimal("0.01"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.001"), spot_per_gib=Decimal(0), currency="$"
)
KNOWN = Circumstances(NOW, prices=PRICES)
MONTH = 730


def two_replicas(name: str, **fields: Any) -> list[Manifest]:
    """Return a pod on the node ``od`` and one of the same controller on the spot node of zone a."""
    return [pod(f"{name}-1", "od", **fields), pod(f"{name}-2", "spot-a", **fields)]


def of(*pods: Manifest, circumstances: Circumstances = KNOWN) -> tuple[Any, Any]:
    """Return the cost of the node ``od`` of four vCPU with *pods*, and its worth for a moved pod."""
    nodes = [node("od", ON_DEMAND, cpu="4")]
    nodes += [node(f"spot-{zone}", cpu="16", zone=zone, labels={TYPE: "m5.large"}) for zone in "ab"]
    planner = Planner(snapshot([*nodes, *pods]), Policy())
    worth = planner.worths(["od"], circumstances)["od"]
    return pytest.approx(worth.cost), pytest.approx(worth.per_move)


def test_a_plain_pod_costs_one_move() -> None:
    assert of(*two_replicas("web", cpu="1")) == (1.0, (0.04 - 0.001) * MONTH)
    assert of(*two_replicas("web", cpu="2"), *two_replicas("db", cpu="2")) == (2.0, (0.04 - 0.004) * MONTH / 2)


def history(**fields: Any) -> Circumstances:
    return replace(KNOWN, history=replace(NO_HISTORY, **fields))


IN_ZONE_B: dict[str, Any] = {"nodeSelector": {ZONE: "b"}}
HAZARD = history(hazards={"b/m5.large": 0.8})
COSTS: dict[str, tuple[list[Manifest], Circumstances, float]] = {
    "an annotation of Karpenter": (
        two_replicas("web", annotations={"karpenter.sh/disruption-cost": str(2**27)}),
        KNOWN,
        2.0,
    ),
    "the cost of its deletion": (
        two_replicas("web", annotations={"controller.kubernetes.io/pod-deletion-cost": str(-(2**26))}),
        KNOWN,
        0.5,
    ),
    "a priority": (two_replicas("web", priority=2**25), KNOWN, 2.0),
    "a single replica": ([pod("web-1", "od")], KNOWN, 2.0),
    "a pod without a controller": ([pod("web-1", "od", owner=None)], KNOWN, 2.0),
    "slow replacements": (two_replicas("web"), history(ready={"default/ReplicaSet/web": 90.0}), 3.0),
    "fast replacements": (two_replicas("web"), history(ready={"default/ReplicaSet/web": 3.0}), 1.0),
    "replacements of another owner": (two_replicas("web"), history(ready={"other/ReplicaSet/web": 90.0}), 1.0),
    "moves of a week": (two_replicas("web"), history(moved={"default/ReplicaSet/web": 3}), 2.5),
    "the mean hazard of both spot nodes": (two_replicas("web"), HAZARD, 1.4),
    "no spot node could run it": (two_replicas("web", nodeSelector={ZONE: "c"}), HAZARD, 1.0),
    "it is too large for spot nodes": (two_replicas("web", cpu="17"), HAZARD, 1.0),
    "the hazard of the only pool that it may go to": (two_replicas("web", **IN_ZONE_B), HAZARD, 1.8),
    "no hazard in its zone": (two_replicas("web", nodeSelector={ZONE: "a"}), HAZARD, 1.0),
    "all together": (
        [pod("web-1", "od", priority=2**25, **IN_ZONE_B)],
        history(
            hazards={"b/m5.large": 0.5}, moved={"default/ReplicaSet/web": 1}, ready={"default/ReplicaSet/web": 60.0}
        ),
        2.0 * 1.5 * 2.0 * 2.0 * 2.0,
    ),
    "pods that stay": (
        [pod("agent-1", "od", owner="DaemonSet"), *two_replicas("web"), pod("gone-1", "od", deleted=True)],
        KNOWN,
        1.0,
    ),
}


@pytest.mark.parametrize(("pods", "circumstances", "cost"), COSTS.values(), ids=COSTS)
def test_a_pod_costs_what_is_known_of_it(pods: list[Manifest], circumstances: Circumstances, cost: float) -> None:
    assert of(*pods, circumstances=circumstances)[0] == cost


def test_hazards_are_probabilities_of_the_pools_that_lost_nodes() -> None:
    losses = PoolLosses().observed(
        {"calm": 1000.0, "wild": 1000.0}, {"wild": 5}, NOW, Backoff(timedelta(), timedelta())
    )
    hazards = losses.hazards(NOW)
    assert hazards.keys() == {"wild"}
    assert 0.5 < hazards["wild"] < 0.65  # 5 per 1,000 node-hours, for a week
    assert losses.hazards(NOW + 30 * HORIZON) == {}


def test_money_is_what_is_known() -> None:
    web = two_replicas("web", cpu="1")
    unpriced = replace(KNOWN, prices=PriceList())
    assert of(*web, circumstances=unpriced) == (1.0, None)
    gross = replace(KNOWN, prices=PriceList(per_vcpu=Decimal("0.01"), per_gib=Decimal(0)))
    assert of(*web, circumstances=gross) == (1.0, 0.04 * MONTH)
    pinned = two_replicas("web", cpu="1", nodeSelector={ON_DEMAND: ""})
    assert of(*pinned) == (1.0, 0.04 * MONTH)  # it goes to an on-demand node that stays
    paid = replace(KNOWN, prices=replace(PRICES, commitments=(Commitment(nodes=1),)))
    assert of(*web, circumstances=paid) == (1.0, 0.0)
    over = replace(KNOWN, prices=replace(PRICES, commitments=(Commitment(nodes=1, until=date(2020, 1, 1)),)))
    assert of(*web, circumstances=over) == (1.0, (0.04 - 0.001) * MONTH)


#: For a moved pod, good saves 28.47, fair 13.87 and poor 4.11 per month.
CLUSTER = [
    *(node(name, ON_DEMAND, cpu="4") for name in ("fair", "good", "poor")),
    node("spot", cpu="32"),
    *(pod(f"{app}-0", "spot", cpu="100m") for app in ("a", "b")),
    pod("a-1", "good", cpu="1"),
    *(pod(f"a-{number}", "fair", cpu="500m") for number in (2, 3)),
    *(pod(f"b-{number}", "poor", cpu="500m") for number in range(1, 7)),
]


def reasons(verdict: Verdict) -> list[Reason]:
    return [blocker.reason for blocker in verdict.blockers] if isinstance(verdict, Rejected) else []


def test_every_answer_leaves_the_nodes_that_are_not_worth_it() -> None:
    planner = Planner(snapshot(CLUSTER), Policy(min_worth=10.0, drain_order=DrainOrder.WORTH))
    for planning in (planner.plan_each(KNOWN), planner.plan_all(KNOWN)):
        assert [plan.node for plan in planning.plans] == ["good", "fair"]
        assert {verdict.node: reasons(verdict) for verdict in planning.rejected} == {"poor": [Reason.NOT_WORTH_IT]}
    assert [verdict.node for verdict in planner.first_plan(KNOWN).verdicts] == ["good"]
    for verdict in (planner.explain_node("poor", KNOWN), planner.plan_node("poor", KNOWN)):
        assert reasons(verdict) == [Reason.NOT_WORTH_IT]
    assert reasons(planner.look_again("poor", KNOWN)) == [Reason.NOT_WORTH_IT]
    rejected = planner.explain_node("poor", KNOWN)
    assert isinstance(rejected, Rejected)
    expected = "it saves 27.01 $/month for 6 pods that cost 6.0 moves: 4.50 for a move; --min-worth=10 asks for more"
    assert rejected.blockers[0].detail == expected
    alone = planner.explain(planner_pod(planner, "default/b-1"), KNOWN)
    assert alone.blockers == ()  # the pod itself may go


def planner_pod(planner: Planner, key: str) -> Pod:
    return planner.filters.snapshot.pods[key]


def test_a_drain_that_has_begun_is_not_given_up_for_its_worth() -> None:
    planner = Planner(snapshot(CLUSTER), Policy(min_worth=10.0, allow_returning_plans=True))
    assert reasons(planner.look_again("poor", KNOWN)) == [Reason.NOT_WORTH_IT]
    assert isinstance(planner.look_again("poor", KNOWN, evicted=["uid-b-1"]), Plan)


def test_nodes_without_a_price_are_not_judged() -> None:
    planner = Planner(snapshot(CLUSTER), Policy(min_worth=10.0))
    only_spot = Circumstances(NOW, prices=PriceList(spot_per_vcpu=Decimal(1), spot_per_gib=Decimal(0)))
    assert len(planner.plan_all(only_spot).plans) == 3


def order(objects: Snapshot, circumstances: Circumstances = KNOWN) -> list[str]:
    return list(Planner(objects, Policy(drain_order=DrainOrder.WORTH)).on_demand(circumstances))


def test_the_order_is_by_money_for_a_moved_pod() -> None:
    assert order(snapshot(CLUSTER)) == ["good", "fair", "poor"]
    assert order(snapshot(CLUSTER), Circumstances(NOW)) == ["good", "fair", "poor"]  # without prices: by cost
    moved = replace(KNOWN, history=MoveHistory({"default/ReplicaSet/a": 100}, {}, {}))
    assert order(snapshot(CLUSTER), moved) == ["good", "poor", "fair"]


def test_nodes_that_commitments_pay_are_worth_nothing_and_come_last() -> None:
    prices = replace(PRICES, commitments=(Commitment(nodes=2),))
    planner = Planner(snapshot(CLUSTER), Policy(drain_order=DrainOrder.WORTH, min_worth=1.0))
    planning = planner.plan_each(replace(KNOWN, prices=prices))
    assert [verdict.node for verdict in planning.verdicts] == ["good", "fair", "poor"]
    assert [plan.node for plan in planning.plans] == ["good"]


def test_order_and_verdicts_follow_an_edit_that_changes_nothing_for_the_scheduler() -> None:
    cluster = snapshot(CLUSTER)
    policy = Policy(drain_order=DrainOrder.WORTH, min_worth=10.0)
    planner, annotations = Planner(cluster, policy), {"karpenter.sh/disruption-cost": str(3 * 2**27)}
    assert [plan.node for plan in planner.plan_each(KNOWN).plans] == ["good", "fair"]
    edited = snapshot([pod("a-1", "good", cpu="1", annotations=annotations)]).pods["default/a-1"]
    cluster.upsert("Pod", edited)
    planning = planner.plan_each(KNOWN)
    assert [verdict.node for verdict in planning.verdicts] == ["fair", "good", "poor"]
    assert planning == Planner(cluster, policy).plan_each(KNOWN)
    assert [plan.node for plan in planning.plans] == ["fair"]


@pytest.mark.parametrize("seed", range(20))
def test_what_commitments_pay_follows_the_order(seed: int) -> None:
    """They pay for the nodes that are drained last: an edit of a pod on one node changes what others are worth."""
    rng = random.Random(seed)
    owed = Commitment(nodes=rng.randrange(3)), Commitment(per_hour=Decimal(rng.randrange(1, 9)) / 100)
    known = replace(KNOWN, prices=replace(PRICES, commitments=owed))
    cluster = snapshot([*CLUSTER, node("extra", ON_DEMAND, cpu="8"), pod("c-1", "extra", cpu="1")])
    policy = Policy(drain_order=DrainOrder.WORTH, min_worth=rng.choice((1.0, 5.0, 10.0)))
    planner = Planner(cluster, policy)
    for _ in range(8):
        name, on = rng.choice((("a-1", "good"), ("b-1", "poor"), ("c-1", "extra"), ("a-2", "fair")))
        annotations = {"karpenter.sh/disruption-cost": str(rng.randrange(-2, 8) * 2**26)}
        cpu = "1" if on in ("good", "extra") else "500m"
        edited = snapshot([pod(name, on, cpu=cpu, annotations=annotations)]).pods[f"default/{name}"]
        cluster.upsert("Pod", replaced(edited, cls=cluster.pods[edited.key].cls))
        scratch = Planner(cluster, policy)
        assert planner.plan_each(known) == scratch.plan_each(known)
        assert planner.first_plan(known) == scratch.first_plan(known)


SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
#: What keeps a node: fields of the node, and of its pod.
KEPT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "no controller": ({}, {"owner": None}),
    "an annotation of the pod": ({}, {"annotations": {SAFE_TO_EVICT: "false"}}),
    "must not run on spot": ({}, {"nodeSelector": {ON_DEMAND: ""}}),
    "an annotation of the node": ({"annotations": {"spot-rescheduler/do-not-drain": "true"}}, {}),
}
ONE_PAID = replace(KNOWN, prices=replace(PRICES, commitments=(Commitment(nodes=1),)))


def one_kept(kept: str, other: str, cpu: str, node_fields: dict[str, Any], fields: dict[str, Any]) -> list[Manifest]:
    """Return two on-demand nodes, of which one is *kept*; its pod requests *cpu*, and that of the other one 500m."""
    nodes = [node(kept, ON_DEMAND, cpu="4", **node_fields), node(other, ON_DEMAND, cpu="4"), node("spot", cpu="16")]
    pods = [pod("a-1", kept, cpu=cpu, **fields), pod("b-1", other, cpu="500m"), pod("b-2", "spot", cpu="100m")]
    return [*nodes, *pods]


@pytest.mark.parametrize(("node_fields", "fields"), KEPT.values(), ids=KEPT)
@pytest.mark.parametrize(("kept", "other"), [("od-1", "od-2"), ("od-2", "od-1")])
@pytest.mark.parametrize("cpu", ["100m", "900m"])
@pytest.mark.parametrize("drain_order", [DrainOrder.LEAST_REQUESTED, DrainOrder.WORTH, DrainOrder.COST])
def test_commitments_pay_first_for_nodes_that_rules_keep(
    kept: str, other: str, cpu: str, drain_order: DrainOrder, node_fields: dict[str, Any], fields: dict[str, Any]
) -> None:
    planner = Planner(
        snapshot(one_kept(kept, other, cpu, node_fields, fields)), Policy(drain_order=drain_order, min_worth=1.0)
    )
    assert list(planner.on_demand(ONE_PAID)) == [other, kept]
    [plan] = planner.plan_all(ONE_PAID).plans
    assert plan.node == other
    assert planner.worths([other], ONE_PAID)[other].per_move == pytest.approx((0.04 - 0.0005) * MONTH)


@pytest.mark.parametrize("drain_order", [DrainOrder.LEAST_REQUESTED, DrainOrder.WORTH])
def test_what_commitments_pay_follows_what_rules_keep(drain_order: DrainOrder) -> None:
    """The first node is kept for three hours, then by an edit of its pod: it is the one that a commitment pays for."""
    for_hours = {"annotations": {"spot-rescheduler/do-not-drain": "3h"}, "created": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
    objects = [*one_kept("od-1", "od-2", "100m", for_hours, {}), pod("a-2", "spot", cpu="100m")]
    cluster, policy = snapshot(objects), Policy(drain_order=drain_order, min_worth=1.0)
    planner, found = Planner(cluster, policy), list[str]()
    for value, hours in (("true", 2), ("true", 4), ("false", 5), ("true", 6)):
        edited = snapshot([pod("a-1", "od-1", cpu="100m", annotations={SAFE_TO_EVICT: value})]).pods["default/a-1"]
        cluster.upsert("Pod", replaced(edited, cls=cluster.pods[edited.key].cls))
        known = replace(ONE_PAID, now=NOW + timedelta(hours=hours))
        assert planner.plan_each(known) == Planner(cluster, policy).plan_each(known)
        found += [plan.node for plan in planner.plan_all(known).plans]
    assert found == ["od-2", "od-1", "od-2", "od-1"]


def test_verdicts_follow_what_becomes_known() -> None:
    planner, policy = Planner(snapshot(CLUSTER), Policy(min_worth=10.0)), Policy(min_worth=10.0)
    for known in (KNOWN, replace(KNOWN, history=MoveHistory({"default/ReplicaSet/a": 100}, {}, {})), KNOWN):
        assert planner.plan_each(known) == Planner(snapshot(CLUSTER), policy).plan_each(known)


def generated(seed: int) -> list[Manifest]:
    """Return a cluster whose nodes have different sizes, and some of whose pods state a cost."""
    rng = random.Random(seed)
    objects = in_pools(rng, cluster(rng, nodes=rng.randint(3, 14)))
    for each in objects:
        if each["kind"] == "Pod" and rng.random() < 0.2:
            cost = {"karpenter.sh/disruption-cost": str(rng.randint(-(2**28), 2**31))}
            each["metadata"]["annotations"] = cost
        elif ON_DEMAND in each["metadata"].get("labels", {}):
            each["status"]["allocatable"]["cpu"] = str(rng.choice((8, 16, 32)))
    return objects


@pytest.mark.parametrize("order", [DrainOrder.LEAST_REQUESTED, DrainOrder.WORTH])
def test_each_point_of_the_curve_is_what_the_flag_gives(order: DrainOrder) -> None:
    recommended, clusters = 0, 20
    for seed in range(clusters):
        objects, policy = generated(seed), Policy(drain_order=order, planning_timeout=0.1)
        cluster = snapshot(objects)
        planner = Planner(cluster, policy)
        known = overview(planner.plan_all(KNOWN), cluster, PRICES, now=NOW)
        curve = worth_curve(planner, known, cluster, KNOWN, lambda: False, whole=True)
        for each in curve.points if curve is not None else ():
            with_flag = Planner(snapshot(objects), replace(policy, min_worth=each.min_worth))
            planning = with_flag.plan_all(KNOWN)
            totals = overview(planning, snapshot(objects), PRICES, now=NOW).freed
            moves = sum(len(plan.placements) for plan in planning.plans)
            assert (each.nodes, each.pods, each.per_month) == (totals.nodes, moves, totals.worth.saved_per_month), seed
        if curve is not None and (best := curve.recommended) is not None:
            recommended += 1
            assert best.per_month >= Decimal("0.9") * curve.points[0].per_month
            assert best.pods <= 0.8 * curve.points[0].pods
    assert recommended > 0
