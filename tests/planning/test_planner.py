"""Tests of plans for whole clusters: order, room, affinity, minimum; planning leaves the snapshot unchanged."""

import random
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pytest

from predicates.filters import Filters
from predicates.plugins import DEFAULT
from rescheduler.planning.examined import examine
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.search import Search
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.question import opened
from rescheduler.planning.waits import Cooldown
from tests.planning.builders import (
    CIRCUMSTANCES,
    NOW,
    ON_DEMAND,
    SPOT,
    ZONE,
    node,
    pod,
    policy,
    repels,
    seeks,
    short,
    snapshot,
    summary,
)
from tests.planning.changing import ChangingCluster

Objects = list[dict[str, Any]]

#: Cluster Autoscaler's soft taint on underused nodes.
UNDERUSED: dict[str, Any] = {
    "taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "value": "1700000000", "effect": "PreferNoSchedule"}]
}

SINGLE_NODES: dict[str, tuple[Objects, Any]] = {
    "room is counted once": (
        [node("s", cpu="1500m"), pod("a", "od"), pod("b", "od")],
        ["no-room-on-spot"],
    ),
    "the fuller spot node is filled first": (
        [node("s1"), node("s2"), pod("x", "s2"), pod("a", "od")],
        {"a": "s2"},
    ),
    "a smaller pod makes room for a larger one": (
        [node("s1", cpu="3"), node("s2", cpu="2"), pod("a", "od", cpu="2"), pod("b", "od", cpu="3")],
        {"a": "s2", "b": "s1"},
    ),
    "three pods fit on two nodes in one way only": (
        [
            node("s1", cpu="5"),
            node("s2", cpu="5"),
            *(pod(f"p{n}", "od", cpu=cpu) for n, cpu in enumerate(("4", "3", "2", "1"))),
        ],
        {"p0": "s1", "p1": "s2", "p2": "s2", "p3": "s1"},
    ),
    "a pod that another one needs is placed first": (
        [node("s"), pod("a", "od", affinity=seeks("z")), pod("z", "od")],
        {"z": "s", "a": "s"},
    ),
    "pods with anti-affinity are separated": (
        [
            node("s1"),
            node("s2"),
            pod("w-1", "od", affinity=repels("w")),
            pod("w-2", "od", affinity=repels("w")),
        ],
        {"w-1": "s1", "w-2": "s2"},
    ),
    "spot nodes that will be removed are not targets": (
        [
            node("s1", unschedulable=True),
            node("s2", ready="False"),
            node("s3", taints=[{"key": "aws-node-termination-handler/spot-itn", "effect": "PreferNoSchedule"}]),
            pod("a", "od", tolerations=[{"operator": "Exists"}]),
        ],
        ["no-room-on-spot"],
    ),
    "an underused spot node is used if there is no other": (
        [node("s", **UNDERUSED), pod("a", "od")],
        {"a": "s"},
    ),
    "an underused spot node is the last target, regardless of its load": (
        [node("s1", **UNDERUSED), node("s2"), pod("x", "s1", cpu="2"), pod("a", "od")],
        {"a": "s2"},
    ),
    "the fuller of two underused spot nodes is used first": (
        [node("s1", **UNDERUSED), node("s2", **UNDERUSED), pod("x", "s2"), pod("a", "od")],
        {"a": "s2"},
    ),
    "pods that do not fit on other spot nodes use an underused one": (
        [node("s1", **UNDERUSED), node("s2", cpu="1"), pod("a", "od"), pod("b", "od")],
        {"a": "s2", "b": "s1"},
    ),
    "an empty node has no pods to move": ([node("s")], {}),
}


@pytest.mark.parametrize(("objects", "expected"), SINGLE_NODES.values(), ids=SINGLE_NODES)
def test_a_single_node_is_drained_or_rejected(objects: Objects, expected: Any) -> None:
    cluster = snapshot([node("od", ON_DEMAND, cpu="32"), *objects])
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == expected


def test_the_drained_nodes_zone_still_counts() -> None:
    """A drained node keeps its topology domain (kubernetes/autoscaler#9287)."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    web: dict[str, Any] = {"labels": {"app": "w"}, "topologySpreadConstraints": [spread]}
    cluster = snapshot(
        [
            node("od", ON_DEMAND, zone="b"),
            node("s", zone="a"),
            pod("w-1", "s", **web),
            pod("w-2", "od", **web),
        ]
    )
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == ["no-room-on-spot"]


def test_underused_spot_nodes_are_where_pods_land_when_on_demand_nodes_carry_a_soft_taint() -> None:
    """Cluster Autoscaler's soft taint counts in the scheduler's scoring: without one on the on-demand nodes, pods of a
    drained node would be bound to other on-demand nodes.
    """
    soft = {"taints": [{"key": "on-demand", "value": "true", "effect": "PreferNoSchedule"}]}
    pods = [pod("a", "od1"), pod("b", "od2", cpu="3")]

    def planned(**on_demand: Any) -> Any:
        nodes = [*(node(f"od{number}", ON_DEMAND, **on_demand) for number in (1, 2)), node("s", **UNDERUSED)]
        return summary(Planner(snapshot([*nodes, *pods]), Policy()).first_plan(CIRCUMSTANCES))["od1"]

    assert [planned(**soft), planned()] == [{"a": "s"}, ["returns-to-on-demand"]]


def test_nodes_are_drained_in_order_of_requested_cpu_then_name() -> None:
    pods = [pod("a", "od1", cpu="2"), pod("b", "od3"), pod("c", "od2")]
    cluster = snapshot([*(node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)), node("s", cpu="32"), *pods])
    planning = Planner(cluster, Policy()).plan_each(CIRCUMSTANCES)
    assert [verdict.node for verdict in planning.verdicts] == ["od2", "od3", "od1"]


def test_drains_in_sequence_share_the_room() -> None:
    cluster = snapshot(
        [node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s", cpu="1"), pod("a", "od1"), pod("b", "od2")]
    )
    planner = Planner(cluster, Policy())
    assert [len(planner.plan_each(CIRCUMSTANCES).plans), len(planner.plan_all(CIRCUMSTANCES).plans)] == [2, 1]


def test_two_light_nodes_are_preferred_to_the_first() -> None:
    """The node with the least requested CPU needs the most memory: draining it first frees one node instead of two."""

    def asks(cpu: str, memory: str) -> dict[str, Any]:
        return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}

    cluster = snapshot(
        [
            *(node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)),
            node("s", cpu="4"),
            pod("a", "od1", **(asks("100m", "15500Mi") | {"nodeName": "od1"})),
            pod("b", "od2", **(asks("1", "1Gi") | {"nodeName": "od2"})),
            pod("c", "od3", **(asks("1", "1Gi") | {"nodeName": "od3"})),
        ]
    )
    planning = Planner(cluster, Policy()).plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in planning.plans] == ["od2", "od3"]
    floor = Planner(cluster, Policy(planning_timeout=0)).plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in floor.plans] == ["od1"]


MINIMA = {0: 3, 1: 2, 2: 1, 3: 0, 9: 0}


@pytest.mark.parametrize(("minimum", "emptied"), MINIMA.items())
def test_the_minimum_of_on_demand_nodes_is_kept(minimum: int, emptied: int) -> None:
    nodes = [node(f"od{n}", ON_DEMAND) for n in (1, 2, 3)]
    cluster = snapshot([*nodes, node("s", cpu="32"), *(pod(f"p{n}", f"od{n}") for n in (1, 2, 3))])
    planning = Planner(cluster, Policy(min_on_demand_nodes=minimum)).plan_all(CIRCUMSTANCES)
    assert len(planning.plans) == emptied
    assert {str(verdict.reason) for verdict in planning.rejected} <= {"min-on-demand-nodes"}


#: Half of the nodes that take a pod are on-demand nodes.
RETURNING: Final = Policy(allow_returning_plans=True)


def test_the_daemon_gets_the_first_node_with_pods_to_move() -> None:
    cluster = snapshot(
        [
            *(node(name, ON_DEMAND) for name in ("empty", "full", "later")),
            node("s"),
            pod("a", "full"),
            pod("b", "later"),
        ]
    )
    planning = Planner(cluster, RETURNING).first_plan(CIRCUMSTANCES)
    assert summary(planning) == {"empty": {}, "full": {"a": "s"}}
    assert summary(Planner(cluster, RETURNING).first_plan(CIRCUMSTANCES, take_empty=lambda _: True)) == {"empty": {}}


COOLING = {
    "without a reason": (
        Cooldown("uid", 1, NOW + timedelta(minutes=5)),
        Blocker(Reason.COOLING_DOWN, "its last drain failed; no new attempt before 2026-01-01T12:05:00Z"),
    ),
    "with the failure's own reason": (
        Cooldown("uid", 1, NOW + timedelta(minutes=5), "eviction-refused", "a webhook refuses default/a"),
        Blocker(Reason.EVICTION_REFUSED, "a webhook refuses default/a; no new attempt before 2026-01-01T12:05:00Z"),
    ),
    "with a reason that this version does not know": (
        Cooldown("uid", 1, NOW + timedelta(minutes=5), "strike", "of the guild"),
        Blocker(Reason.COOLING_DOWN, "its last drain failed; no new attempt before 2026-01-01T12:05:00Z"),
    ),
}


@pytest.mark.parametrize(("cooldown", "blocker"), COOLING.values(), ids=COOLING)
def test_a_node_in_cooldown_is_not_drained(cooldown: Cooldown, blocker: Blocker) -> None:
    cluster = snapshot([node("od", ON_DEMAND), node("s"), pod("a", "od")])
    planner = Planner(cluster, Policy())
    assert planner.plan_node("od", Circumstances(NOW, {"od": cooldown})) == Rejected("od", (blocker,))
    assert short(planner.plan_node("od", Circumstances(cooldown.until, {"od": cooldown}))) == {"a": "s"}


def test_the_node_that_this_program_runs_on_is_not_drained() -> None:
    planner = Planner(snapshot([node("od", ON_DEMAND), node("s"), pod("a", "od")]), Policy())
    assert short(planner.plan_node("od", Circumstances(NOW, own="od"))) == ["hosts-the-leader"]
    assert short(planner.plan_node("od", Circumstances(NOW, own="s"))) == {"a": "s"}


def test_labels_with_values_select_nodes_and_the_spot_label_wins() -> None:
    policy = Policy(on_demand_label=NodeLabels.parse("pool=od"), spot_label=NodeLabels.parse("pool=spot"))
    cluster = snapshot(
        [
            node("o", "x", labels={"pool": "od"}),
            node("s", "x", labels={"pool": "spot"}),
            node("n", "x", labels={"pool": "else"}),
        ]
    )
    planning = Planner(cluster, policy).plan_each(CIRCUMSTANCES)
    assert ([verdict.node for verdict in planning.verdicts], planning.spot_nodes) == (["o"], 1)
    both = snapshot([node("b", ON_DEMAND, labels={SPOT: ""})])
    planning = Planner(both, Policy()).plan_each(CIRCUMSTANCES)
    assert (planning.on_demand_nodes, planning.spot_nodes) == (0, 1)


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


@pytest.mark.parametrize(
    ("cpu", "since", "waits"),
    [("1", "2026-01-01T11:55:00Z", True), ("1", "2026-01-01T11:00:00Z", False), ("99", "2026-01-01T11:55:00Z", False)],
    ids=["a spot node could take it", "it pends for long", "none ever could"],
)
def test_pending_pods_delay_drains_only_if_spot_nodes_could_run_them(cpu: str, since: str, *, waits: bool) -> None:
    condition = UNSCHEDULABLE | {"lastTransitionTime": since}
    pending = pod("p", cpu=cpu, status={"conditions": [condition]})
    cluster = snapshot([node("s", cpu="2"), pod("x", "s", cpu="2"), pending])
    waiting = Planner(cluster, Policy()).waiting(CIRCUMSTANCES, timedelta(minutes=10))
    assert bool(waiting) is waits


def random_cluster(seed: int) -> Objects:
    rng = random.Random(seed)
    on_demand, spot = rng.randint(2, 6), rng.randint(2, 6)
    objects = [node(f"od{n}", ON_DEMAND, cpu="8", zone=rng.choice("ab")) for n in range(on_demand)]
    objects += [node(f"s{n}", cpu=str(rng.randint(2, 8)), zone=rng.choice("ab")) for n in range(spot)]
    for number in range(rng.randint(4, 24)):
        app = rng.choice(["red", "blue", "green"])
        more: dict[str, Any] = {"labels": {"app": app}}
        kind = rng.random()
        if kind < 0.15:
            more["affinity"] = repels(app, rng.choice([ZONE, "kubernetes.io/hostname"]))
        elif kind < 0.25:
            more["affinity"] = seeks(rng.choice(["red", "blue"]), ZONE)
        on = rng.choice([manifest["metadata"]["name"] for manifest in objects if manifest["kind"] == "Node"])
        objects.append(pod(f"{app}-{number}", on, cpu=f"{rng.randint(2, 20) * 100}m", **more))
    return objects


@pytest.mark.parametrize("seed", range(40))
def test_every_placement_passes_the_filters_one_after_the_other(seed: int) -> None:
    """Plans are replayed on a new snapshot with new filters."""
    objects = random_cluster(seed)
    planning = Planner(snapshot(objects), Policy(planning_timeout=0.2)).plan_all(CIRCUMSTANCES)
    fresh = snapshot(objects)
    filters = Filters(fresh, DEFAULT)
    with fresh.trial() as trial:
        for plan in planning.plans:
            moving = [fresh.pods[str(placement.pod)] for placement in plan.placements]
            for victim in moving:
                trial.evict(victim)
            trial.drain(fresh.nodes.row[plan.node])
            for victim, placement in zip(moving, plan.placements, strict=True):
                assert filters.fits(victim.cls, fresh.nodes.row[placement.node]), (plan.node, placement)
                trial.place(victim.cls, fresh.nodes.row[placement.node])


@pytest.mark.parametrize("seed", range(40))
def test_more_effort_never_frees_fewer_nodes(seed: int) -> None:
    objects = random_cluster(seed)
    floor, better = (
        len(Planner(snapshot(objects), Policy(planning_timeout=seconds)).plan_all(CIRCUMSTANCES).plans)
        for seconds in (0, 0.5)
    )
    assert better >= floor


@pytest.mark.parametrize("seed", range(10))
def test_planning_leaves_the_snapshot_unchanged_and_is_repeatable(seed: int) -> None:
    cluster = snapshot(random_cluster(seed))
    planner = Planner(cluster, Policy(planning_timeout=0.2))
    before = cluster.nodes.requested.copy()
    first = planner.plan_all(CIRCUMSTANCES), planner.plan_each(CIRCUMSTANCES)
    assert np.array_equal(cluster.nodes.requested, before)
    assert (planner.plan_all(CIRCUMSTANCES), planner.plan_each(CIRCUMSTANCES)) == first
    fresh = Planner(snapshot(random_cluster(seed)), Policy(planning_timeout=0.2))
    assert (fresh.plan_all(CIRCUMSTANCES), fresh.plan_each(CIRCUMSTANCES)) == first


def test_no_plan_frees_more_nodes_than_the_bound() -> None:
    for seed in range(40):
        planning = Planner(snapshot(random_cluster(seed)), Policy(planning_timeout=0.2)).plan_all(CIRCUMSTANCES)
        assert planning.upper_bound is not None
        assert len(planning.plans) <= planning.upper_bound


def test_a_plan_contains_each_pod_of_the_node_once() -> None:
    cluster = snapshot(random_cluster(7))
    for plan in Planner(cluster, Policy()).plan_each(CIRCUMSTANCES).plans:
        assert isinstance(plan, Plan)
        assert sorted(str(placement.pod) for placement in plan.placements) == sorted(cluster.pods_on[plan.node])


def test_a_pod_has_all_its_blockers() -> None:
    cache = {"name": "cache", "emptyDir": {}}
    bare = pod("a", "od", owner=None, annotations={"karpenter.sh/do-not-disrupt": "true"}, volumes=[cache])
    verdict = Planner(snapshot([node("od", ON_DEMAND), node("s"), bare]), Policy()).plan_each(CIRCUMSTANCES).verdicts[0]
    assert isinstance(verdict, Rejected)
    assert [blocker.reason for blocker in verdict.blockers] == [
        Reason.DO_NOT_DISRUPT,
        Reason.NO_CONTROLLER,
        Reason.LOCAL_STORAGE,
    ]


def test_replicas_that_repel_each_other_do_not_go_to_one_new_node() -> None:
    """The new node takes the last free row of the node table."""
    ods = [node(f"o{number}", ON_DEMAND) for number in range(6)]
    homes = {"web-1": "o0", "web-2": "o0", "web-9": "s0"}
    web = [pod(name, on, cpu="100m", affinity=repels("web")) for name, on in homes.items()]
    cluster = ChangingCluster([*ods, node("s0"), *web])
    planner = Planner(cluster.snapshot, policy())
    planner.plan_each(CIRCUMSTANCES)
    cluster.put(node("s1"))
    assert summary(planner.plan_each(CIRCUMSTANCES))["o0"] == ["no-room-on-spot"]


def test_a_node_is_drained_after_another_that_must_go_first() -> None:
    objects = [
        *(node("s0", cpu="8", zone="c"), node("o0", ON_DEMAND, cpu="16", zone="c"), node("o2", ON_DEMAND, cpu="16")),
        pod("a-1", "o0", cpu="3", affinity=seeks("a", ZONE)),
        pod("a-7", "o2", cpu="3", affinity=seeks("a", ZONE)),
    ]
    found = summary(Planner(snapshot(objects), policy()).plan_all(CIRCUMSTANCES))
    assert found == {"o2": {"a-7": "s0"}, "o0": {"a-1": "s0"}}


def test_room_that_one_node_takes_from_others_is_open_for_the_next() -> None:
    objects = [
        *(node("s1"), node("o0", ON_DEMAND, cpu="16"), node("o1", ON_DEMAND, cpu="16")),
        pod("pause-1", "s1", cpu="4", priority=-10),
        *(pod("p-1", "o0", cpu="2"), pod("q-1", "o1", cpu="2", preemptionPolicy="Never")),
    ]
    found = summary(Planner(snapshot(objects), policy()).plan_all(CIRCUMSTANCES))
    assert found == {"o0": {"p-1": "s1"}, "o1": {"q-1": "s1"}}


def test_pods_of_a_limited_share_take_room_from_others() -> None:
    objects = [
        *(node("od-1", ON_DEMAND), node("s1", cpu="2", zone="a"), node("s2", cpu="2", zone="b")),
        *(pod(f"pause-{number}", f"s{number}", cpu="2", priority=-10) for number in (1, 2)),
        *(pod(f"web-{number}", "od-1", cpu="2") for number in (1, 2)),
    ]
    planner = Planner(snapshot(objects), policy(max_share_per_spot_pool=50))
    assert summary(planner.plan_all(CIRCUMSTANCES)) == {"od-1": {"web-1": "s1", "web-2": "s2"}}


def test_drains_that_the_search_has_shown_stay_in_its_trial() -> None:
    """Otherwise they would be carried out a second time."""
    nodes = [node("s", cpu="8"), *(node(f"od-{number}", ON_DEMAND) for number in range(3))]
    pods = [pod(f"p{number}-1", f"od-{number}") for number in range(3)]
    shared = Planner(snapshot([*nodes, *pods]), policy()).round(CIRCUMSTANCES)
    examined = [examine(name, shared) for name in shared.groups.on_demand]
    candidates = [each.candidate for each in examined]
    evictions = {each.candidate.node: each.evictions for each in examined}
    with opened(shared, Effort(0), shared.pending) as attempt:
        search = Search(shared.room, attempt.trial, candidates, evictions, shared.remaining, 3, Effort(100))
        found, drained = search.run(keep_drained=True)
        assert ([each.candidate.node for each in found], drained) == (["od-0", "od-1", "od-2"], 3)
