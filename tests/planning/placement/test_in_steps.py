"""Tests of plans that are played through in the steps of a drain, and of pods that would return to the drained node."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates.objects import Pod, TopologySpreadConstraint
from predicates.scheduler import Scheduler, default_profile
from predicates.versions import NEWEST
from rescheduler.planning.outcome import Plan, Planning, Rejected, Verdict
from rescheduler.planning.placement.in_steps import eviction_steps, keep_in_steps
from rescheduler.planning.placement.packing import Placed
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, repels, seeks, snapshot
from tests.proxy.planning import choose

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
OD: Final = node("od", ON_DEMAND)
TWO_ZONES: Final = [node("od", ON_DEMAND, zone="a"), node("s1", zone="b"), node("s2", zone="b")]
EVERYTHING: Final[dict[str, Any]] = {"tolerations": [{"operator": "Exists"}]}
HARD: Final = "DoNotSchedule"
#: How many nodes a cluster may have for its plans to be shown with forecasts.
LOOK_AHEAD: Final = "rescheduler.planning.placement.forecast._NODES_TO_LOOK_AHEAD"
SPREAD: Final[dict[str, Any]] = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": HARD,
}


#: A term that a new pod matches, but not one that the API server has labeled with the region of its node.
SEEKS_OTHER_REGIONS: Final[dict[str, Any]] = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "rack",
                "labelSelector": {"matchExpressions": [{"key": REGION, "operator": "NotIn", "values": ["r1"]}]},
            }
        ]
    }
}


def spread(app: str) -> dict[str, Any]:
    constraint = {**SPREAD, "labelSelector": {"matchLabels": {"app": app}}}
    return {"topologySpreadConstraints": [constraint]}


def app(name: str, label: str, **fields: Any) -> Manifest:
    """Return a pod on od whose label ``app`` is *label*."""
    return pod(name, "od", labels={"app": label}, **fields)


STUCK: dict[str, list[Manifest]] = {
    "two replicas that must share a node": [
        OD,
        node("s"),
        app("a-1", "a", affinity=seeks("a")),
        app("a-2", "a", affinity=seeks("a")),
    ],
    "three Deployments with one group label": [
        OD,
        node("s1"),
        node("s2"),
        *(app(name, "group", affinity=seeks("group")) for name in ("a", "b", "c")),
    ],
    "replicas that must share a zone, with spot nodes in another zone": [
        *TWO_ZONES,
        app("a-1", "a", affinity=seeks("a", ZONE)),
        app("a-2", "a", affinity=seeks("a", ZONE)),
    ],
    "a replica that does not match its own terms where it runs": [
        node("od", ON_DEMAND, labels={REGION: "r1", "rack": "1"}),
        node("s1", labels={"rack": "2"}),
        node("s2"),
        pod("a", "od", labels={"app": "a", REGION: "r1"}, affinity=SEEKS_OTHER_REGIONS),
    ],
}


def verdicts(objects: list[Manifest]) -> list[Verdict]:
    """Return the verdicts on od: in sequence with others, by itself, and as the daemon judges it."""
    planner = Planner(snapshot(objects), Policy())
    plannings = planner.plan_all(CIRCUMSTANCES), planner.plan_each(CIRCUMSTANCES), planner.first_plan(CIRCUMSTANCES)
    return [verdict for planning in plannings for verdict in planning.verdicts if verdict.node == "od"]


@pytest.mark.parametrize("objects", STUCK.values(), ids=STUCK)
def test_a_pod_that_must_run_beside_one_that_has_not_moved_keeps_the_node(objects: list[Manifest]) -> None:
    results = verdicts(objects)
    assert len(results) == 3
    for verdict in results:
        assert isinstance(verdict, Rejected)
        [blocker] = verdict.blockers
        assert blocker.reason == "cannot-move-in-steps"
        assert "didn't match pod affinity rules" in blocker.detail


MOVABLE: dict[str, tuple[list[Manifest], tuple[str, ...]]] = {
    "a pod follows the one that it must run beside": (
        [OD, node("s"), app("app", "app", affinity=seeks("cache")), app("cache", "cache")],
        ("cache", "app"),
    ),
    "a group whose third member already runs on spot": (
        [
            OD,
            node("s"),
            app("a-1", "a", affinity=seeks("a")),
            app("a-2", "a", affinity=seeks("a")),
            pod("a-3", "s", labels={"app": "a"}),
        ],
        ("a-1", "a-2"),
    ),
    "replicas that must share a zone, with spot nodes in that zone": (
        [OD, node("s"), app("a-1", "a", affinity=seeks("a", ZONE)), app("a-2", "a", affinity=seeks("a", ZONE))],
        ("a-1", "a-2"),
    ),
    "replicas that repel each other's node": (
        [OD, node("s1"), node("s2"), app("a-1", "a", affinity=repels("a")), app("a-2", "a", affinity=repels("a"))],
        ("a-1", "a-2"),
    ),
}


@pytest.mark.parametrize(("objects", "order"), MOVABLE.values(), ids=MOVABLE)
def test_a_plan_lists_the_pods_in_an_order_in_which_each_has_a_place(
    objects: list[Manifest], order: tuple[str, ...]
) -> None:
    for plan in verdicts(objects):
        assert isinstance(plan, Plan)
        assert tuple(placement.pod.name for placement in plan.placements) == order
        assert plan.robust


def test_pods_that_only_have_a_place_in_one_order_are_moved_one_by_one() -> None:
    """Waves would take the first pod of each owner: ``b`` repels the zone of both pods of ``a``, which moves first."""
    objects = [
        node("od", ON_DEMAND, zone="a"),
        node("s1", zone="a"),
        node("s2", zone="b"),
        app("a-1", "a", nodeSelector={ZONE: "b"}),
        app("a-2", "a", nodeSelector={ZONE: "b"}),
        app("b-1", "b", affinity=repels("a", ZONE), nodeSelector={ZONE: "a"}),
    ]
    for plan in verdicts(objects):
        assert isinstance(plan, Plan)
        assert plan.one_by_one
        assert [placement.pod.name for placement in plan.placements] == ["a-1", "a-2", "b-1"]


def test_pods_that_follow_one_of_a_statefulset_move_after_it() -> None:
    """Waves would take pods of StatefulSets last."""
    cache = pod("cache-0", "od", owner="StatefulSet", labels={"app": "cache"})
    objects = [OD, node("s"), app("app-1", "app", affinity=seeks("cache")), cache]
    for plan in verdicts(objects):
        assert isinstance(plan, Plan)
        assert plan.one_by_one
        assert [placement.pod.name for placement in plan.placements] == ["cache-0", "app-1"]


def test_the_next_step_is_planned_as_it_is_and_if_it_has_no_place_in_another_order() -> None:
    cluster = snapshot([OD, node("s"), app("app", "app", affinity=seeks("cache")), app("cache", "cache")])
    uids = {each.name: each.uid for each in cluster.pods.values()}
    for step, alone in (("cache", False), ("app", True)):
        plan = Planner(cluster, Policy()).follow("od", CIRCUMSTANCES, (), step={uids[step]})
        assert isinstance(plan, Plan)
        assert plan.one_by_one is alone
        assert [placement.pod.name for placement in plan.placements] == ["cache", "app"]


OF_PROFILE: Final = replace(default_profile(NEWEST), spread_defaults=(TopologySpreadConstraint(1, ZONE, HARD),))
#: As a constraint of the pods, and as one of their profile.
OVER_ZONES: dict[str, tuple[dict[str, Any], Scheduler]] = {
    "of the pods": (spread("w"), Scheduler()),
    "of the profile": (
        {},
        Scheduler(
            profiles=[replace(default_profile(NEWEST), spread_defaults=(TopologySpreadConstraint(1, ZONE, HARD),))]
        ),
    ),
}


@pytest.mark.parametrize(("fields", "scheduler"), OVER_ZONES.values(), ids=OVER_ZONES)
def test_a_hard_constraint_holds_in_each_step(fields: dict[str, Any], scheduler: Scheduler) -> None:
    """The first spot node accepts the first pod only after the second one has left the zone, so it gets the second."""
    nodes = [node("od", ON_DEMAND, zone="a"), node("s1", zone="a"), node("s2", zone="b")]
    cluster = snapshot([*nodes, app("w-1", "w", **fields), app("w-2", "w", **fields)])
    cluster.use(scheduler)
    plan = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(plan, Plan)
    placed = [(placement.pod.name, placement.node) for placement in plan.placements]
    assert placed == [("w-1", "s2"), ("w-2", "s1")]


RETURNING: dict[str, list[Manifest]] = {
    "the drained node is the emptiest": [OD, node("s"), pod("x", "s"), app("a", "a", **EVERYTHING)],
    "it tolerates any value of our taint": [
        OD,
        node("s"),
        pod("x", "s"),
        app(
            "a",
            "a",
            tolerations=[
                {"key": "status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining", "operator": "Exists"}
            ],
        ),
    ],
    "an empty spot node has the same score": [OD, node("s"), app("a", "a", **EVERYTHING)],
    "it is one of several pods": [
        OD,
        node("s", cpu="32"),
        pod("x", "s", cpu="16"),
        app("a", "a", **EVERYTHING),
        *(app(f"b-{number}", "b", cpu="500m") for number in range(4)),
    ],
}


@pytest.mark.parametrize("objects", RETURNING.values(), ids=RETURNING)
@pytest.mark.parametrize("forecasts", [True, False])
def test_one_pod_that_could_return_to_the_drained_node_keeps_it(
    objects: list[Manifest], monkeypatch: pytest.MonkeyPatch, *, forecasts: bool
) -> None:
    if not forecasts:
        monkeypatch.setattr(LOOK_AHEAD, 0)
    for verdict in verdicts(objects):
        assert isinstance(verdict, Rejected)
        assert [(blocker.reason, blocker.pod) for blocker in verdict.blockers] == [
            ("returns-to-drained-node", "default/a")
        ]


def test_a_pod_that_tolerates_the_taint_but_selects_spot_nodes_moves() -> None:
    objects = [OD, node("s", labels={"pool": "spot"}), app("a", "a", nodeSelector={"pool": "spot"}, **EVERYTHING)]
    assert all(isinstance(verdict, Plan) for verdict in verdicts(objects))


def test_steps_of_an_eviction() -> None:
    """One pod, one of each other namespace, then owners in steps of 1, 2, …, then the rest of each owner.

    In each step, the pods of a namespace leave one after the other.
    """
    pods = [
        *(pod(f"a-{number}", "od") for number in range(8)),
        *(pod(f"{name}-0", "od") for name in "bcd"),
        *(pod(f"db-{number}", "od", owner="StatefulSet") for number in range(3)),
        pod("other/x-0", "od"),
        pod("bare", "od", owner=None),
    ]
    by_name = {each.name: each for each in snapshot([OD, *pods]).pods.values()}
    steps = eviction_steps([by_name[manifest["metadata"]["name"]] for manifest in pods])
    assert [[each.name for each in step] for step in steps] == [
        ["a-0"],
        ["x-0"],
        ["b-0"],
        *(["c-0"], ["d-0"]),
        ["db-0"],
        *(["a-1"], ["db-1"]),
        *(["a-2"], ["a-3"], ["db-2"]),
        *(["a-4"], ["a-5"], ["a-6"], ["a-7"]),
        ["bare"],
    ]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.booleans()), max_size=12))
def test_each_pod_is_in_one_step(spec: list[tuple[str, str, bool]]) -> None:
    manifests = [
        pod(f"{space}/{owner}-{number}", "od", owner="StatefulSet" if ordered else "ReplicaSet")
        for number, (space, owner, ordered) in enumerate(spec)
    ]
    pods: list[Pod] = list(snapshot([OD, *manifests]).pods.values())
    steps = eviction_steps(pods)
    assert sorted(each.key for step in steps for each in step) == sorted(each.key for each in pods)
    assert all(steps)


# Pods that keep their places in steps are recognized without moving all others: the same as moving one after the other.


def random_cluster(rng: Random) -> list[Manifest]:
    """Return nodes in three zones, with pods that must be beside, apart from, or spread over others."""
    zones, apps = "abc", "uvwxy"
    objects = [node(f"od-{n}", ON_DEMAND, zone=rng.choice(zones), cpu="8") for n in range(4)]
    objects += [node(f"s-{n}", zone=rng.choice(zones), cpu=rng.choice(("2", "4"))) for n in range(8)]
    for number in range(rng.randint(12, 30)):
        other, key = rng.choice(apps), rng.choice((ZONE, "kubernetes.io/hostname"))
        fields: dict[str, Any] = rng.choice(
            ({}, {}, {}, {"affinity": repels(other, key)}, {"affinity": seeks(other, key)}, spread(other), port(number))
        )
        where = rng.choice([each["metadata"]["name"] for each in objects if each["kind"] == "Node"])
        labels, cpu = {"app": rng.choice(apps)}, f"{rng.randrange(100, 900, 100)}m"
        owner = f"apps/v1/{rng.choice(('ReplicaSet', 'StatefulSet'))}"
        objects.append(pod(f"p-{number}", where, labels=labels, cpu=cpu, owner=owner, **fields))
    return objects


def all_planned(objects: list[Manifest]) -> Planning:
    return Planner(snapshot(objects), Policy()).plan_all(CIRCUMSTANCES)


def all_removed(objects: list[Manifest]) -> Planning:
    """Plan to remove all on-demand nodes, as the proxy does."""
    return choose(snapshot(objects), (f"od-{number}" for number in range(4)), 4)


def port(number: int) -> dict[str, Any]:
    ports = [{"containerPort": 80, "hostPort": 80 + number % 2}]
    return {"containers": [{"name": "m", "image": "i", "ports": ports, "resources": {"requests": {"cpu": "100m"}}}]}


def test_places_that_are_kept_in_steps_are_those_of_moving_one_pod_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = 0

    def counted(*args: Any) -> Placed | None:
        nonlocal kept
        result = keep_in_steps(*args)
        kept += result is not None
        return result

    for seed in range(40):
        objects = random_cluster(Random(seed))
        with monkeypatch.context() as patch:
            patch.setattr("rescheduler.planning.placement.search.keep_in_steps", lambda *_: None)
            moved = plans(objects)
        with monkeypatch.context() as patch:
            patch.setattr("rescheduler.planning.placement.search.keep_in_steps", counted)
            assert plans(objects) == moved, seed
    assert kept > 40


@pytest.mark.parametrize("seed", [*range(20), 111, 169, 271, 364, 366, 448])
@pytest.mark.parametrize("planned", [all_planned, all_removed])
def test_a_drain_that_places_pods_elsewhere_takes_no_room_from_the_drains_after_it(
    planned: Callable[[list[Manifest]], Planning], seed: int
) -> None:
    """All pods have rows together. In steps, pods of a node get other rows, which may be those of the next node."""
    objects = random_cluster(Random(seed))
    cluster = snapshot(objects)
    nodes = cluster.nodes
    with cluster.trial() as trial:
        for plan in planned(objects).plans:
            moving = [cluster.pods[str(placement.pod)] for placement in plan.placements]
            trial.evict(*moving)
            for each, placement in zip(moving, plan.placements, strict=True):
                trial.place(each.cls, nodes.row[placement.node])
                assert (nodes.free[nodes.row[placement.node]] >= 0).all(), (plan.node, placement)


def plans(objects: list[Manifest]) -> list[str]:
    planner = Planner(snapshot(objects), Policy())
    planned = [repr(planner.plan_each(CIRCUMSTANCES)), repr(planner.plan_all(CIRCUMSTANCES))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOOK_AHEAD, 0)  # then the search already carries out the drains that need no other places
        return [*planned, repr(planner.plan_all(CIRCUMSTANCES))]
