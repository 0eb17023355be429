"""Whether the pods of a lost pool would run again: the certificate of a state, before and after plans."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import FallbackHeadroom, Policy, Survive
from tests.planning.builders import (
    CIRCUMSTANCES,
    HOST,
    NOW,
    ON_DEMAND,
    ZONE,
    Manifest,
    node,
    pod,
    repels,
    seeks,
    snapshot,
    summary,
)

TYPE = "node.kubernetes.io/instance-type"


def spot(name: str, zone: str = "a", kind: str = "m", **fields: Any) -> Manifest:
    labels = fields.pop("labels", {}) | {TYPE: kind}
    return node(name, zone=zone, labels=labels, **fields)


def certified(objects: Iterable[Manifest], survive: Survive = Survive.POOL, *, planned: bool = False) -> Certificate:
    planner = Planner(snapshot(objects), Policy())
    plans = planner.plan_all(CIRCUMSTANCES).plans if planned else ()
    return planner.certificate(CIRCUMSTANCES, survive, plans)


def homeless(certificate: Certificate) -> dict[str, list[str]]:
    """Return the homeless pods of each pool whose loss is not survived."""
    return {
        pool.pool: [key.removeprefix("default/") for each in pool.homeless for key in each.pods]
        for pool in certificate.worst
    }


def spread(app: str, key: str = ZONE) -> Manifest:
    selector = {"matchLabels": {"app": app}}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}


def listening(port: int, cpu: str) -> Manifest:
    """Return a container with a host port."""
    ports = [{"containerPort": port, "hostPort": port}]
    return {"name": "main", "image": "app:1", "ports": ports, "resources": {"requests": {"cpu": cpu}}}


TWO = [spot("s1", "a"), spot("s2", "b")]


def volume_in(zone: str, mode: str = "ReadWriteOnce") -> list[Manifest]:
    """Return a bound claim, and its volume, which nodes of one zone can attach."""
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]
    volume = {
        "accessModes": [mode],
        "csi": {"driver": "d", "volumeHandle": "h"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        "claimRef": {"namespace": "default", "name": "c"},
    }
    claim = {"volumeName": "pv", "accessModes": [mode]}
    return [
        {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": volume, "status": {"phase": "Bound"}},
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "c",
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": claim,
            "status": {"phase": "Bound"},
        },
    ]


CLAIMING: Manifest = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
SET: Manifest = {"owner": "apps/v1/StatefulSet", "topologySpreadConstraints": [spread("p")]}
MARKED = {"key": "aws-node-termination-handler/spot-itn", "value": "1", "effect": "NoSchedule"}

CASES: dict[str, tuple[list[Manifest], dict[str, list[str]]]] = {
    "no spot nodes": ([node("o", ON_DEMAND)], {}),
    "empty pools": (TWO, {}),
    "room in the other pool": ([*TWO, pod("p", "s1", cpu="3")], {}),
    "no room in the other pool": (
        [*TWO, pod("p", "s1", cpu="3"), pod("q", "s2", cpu="2")],
        {"a/m": ["p"], "b/m": ["q"]},
    ),
    "the rest of the pool goes, too": ([spot("s1"), spot("s2"), pod("p", "s1", cpu="3")], {"a/m": ["p"]}),
    "another type in the zone stays": ([spot("s1"), spot("s2", kind="c"), pod("p", "s1", cpu="3")], {}),
    "an on-demand node has room": ([spot("s1"), node("o", ON_DEMAND), pod("p", "s1", cpu="3")], {}),
    "a node of neither label has room": ([spot("s1"), node("n", "other"), pod("p", "s1", cpu="3")], {}),
    "a cordoned node has none": (
        [spot("s1"), node("o", ON_DEMAND, unschedulable=True), pod("p", "s1", cpu="3")],
        {"a/m": ["p"]},
    ),
    "a cordoned node that accepts the pod attracts it, and then goes": (
        [
            spot("s1"),
            *(node(name, ON_DEMAND, unschedulable=name == "o2") for name in ("o1", "o2")),
            pod("p", "s1", cpu="1", tolerations=[{"operator": "Exists"}]),
            pod("q", "o1", cpu="2"),
        ],
        {"a/m": ["p"]},
    ),
    "a node that is not Ready has none": (
        [spot("s1"), node("o", ON_DEMAND, ready="False"), pod("p", "s1", cpu="3")],
        {"a/m": ["p"]},
    ),
    "pods of a DaemonSet end with the node": ([spot("s1"), pod("d", "s1", owner="apps/v1/DaemonSet")], {}),
    "mirror pods end with the node": (
        [spot("s1"), pod("d", "s1", annotations={"kubernetes.io/config.mirror": "x"})],
        {},
    ),
    "expendable pods need no place": ([spot("s1"), pod("p", "s1", priority=-11)], {}),
    "terminating pods need no place": ([spot("s1"), pod("p", "s1", deleted=True)], {}),
    "finished pods need no place": ([spot("s1"), pod("p", "s1", status={"phase": "Succeeded"})], {}),
    "nothing creates a pod without a controller again": ([*TWO, pod("p", "s1", owner=None, cpu="3")], {}),
    "a higher priority takes the room": (
        [*TWO, pod("low", "s1", cpu="3"), pod("high", "s1", cpu="1", priority=5), pod("q", "s2", cpu="1")],
        {"a/m": ["low"], "b/m": ["q"]},
    ),
    "a pending pod of higher priority takes the room": (
        [*TWO, pod("low", "s1", cpu="3"), pod("q", "s2", cpu="1"), pod("w", cpu="2", priority=5)],
        {"a/m": ["low"]},
    ),
    "pending pods of equal priority take the room first": (
        [*TWO, pod("p", "s1", cpu="100m"), *(pod(f"w-{n}", cpu="100m") for n in range(40))],
        {"a/m": ["p"]},
    ),
    "pending pods of lower priority leave the room": (
        [*TWO, pod("p", "s1", cpu="100m"), *(pod(f"w-{n}", cpu="100m", priority=-1) for n in range(40))],
        {},
    ),
    "pending pods that find no place take none": (
        [*TWO, pod("p", "s1", cpu="3500m"), *(pod(f"w-{n}", cpu="3900m", nodeSelector={"a": "b"}) for n in range(9))],
        {},
    ),
    "anti-affinity to pending pods of equal priority, which take all nodes first": (
        [
            spot("s1"),
            *(spot(f"t{n}", "b") for n in range(12)),
            pod("p", "s1", cpu="10m", affinity=repels("w")),
            *(pod(f"w-{n}", containers=[listening(80, "10m")]) for n in range(12)),
        ],
        {"a/m": ["p"]},
    ),
    "anti-affinity of a pending pod, which takes a node that smaller pods may fill": (
        [
            spot("s1", cpu="16"),
            *(spot(f"t{n}", "b") for n in range(6)),
            pod("p", "s1", cpu="10m"),
            *(pod(f"q-{n}", "s1", cpu="100m") for n in range(60)),
            pod("w", cpu="3900m", affinity=repels("p", ZONE), priority=100),
        ],
        {"a/m": ["p"]},
    ),
    "anti-affinity to pending pods of lower priority": (
        [
            spot("s1"),
            *(spot(f"t{n}", "b") for n in range(12)),
            pod("p", "s1", cpu="10m", affinity=repels("w")),
            *(pod(f"w-{n}", priority=-1, containers=[listening(80, "10m")]) for n in range(12)),
        ],
        {},
    ),
    "anti-affinity to a pod that stays": (
        [*TWO, pod("p-1", "s1", affinity=repels("p")), pod("p-2", "s2", affinity=repels("p"))],
        {"a/m": ["p-1"], "b/m": ["p-2"]},
    ),
    "anti-affinity to a pod that is lost": (
        [spot("s1"), spot("s2"), spot("t", "b"), *(pod(f"p-{n}", f"s{n}", affinity=repels("p")) for n in (1, 2))],
        {"a/m": ["p-2"]},
    ),
    "anti-affinity of a pod that stays": (
        [*TWO, pod("p", "s1"), pod("q", "s2", affinity=repels("p"))],
        {"a/m": ["p"], "b/m": ["q"]},
    ),
    "anti-affinity by zone": (
        [
            spot("s1", "a"),
            spot("s2", "b"),
            spot("s3", "b", "c"),
            pod("p-1", "s1", affinity=repels("p", ZONE)),
            pod("p-2", "s2", affinity=repels("p", ZONE)),
        ],
        {"a/m": ["p-1"]},
    ),
    "affinity to a pod that stays": (
        [
            *TWO,
            spot("s3", "b", "c"),
            pod("p", "s1", affinity=seeks("q", ZONE)),
            pod("q", "s3", cpu="3500m"),
            pod("r", "s2", cpu="3500m"),
        ],
        {"a/m": ["p"], "b/c": ["q"], "b/m": ["r"]},
    ),
    "affinity to a pod of the lost pool": (
        [*TWO, pod("p", "s1", affinity=seeks("q")), pod("q", "s1")],
        {},
    ),
    "affinity of a series whose first pod is lost": (
        [*TWO, *(pod(f"p-{n}", "s1", affinity=seeks("p")) for n in (1, 2))],
        {},
    ),
    "spread over zones that stay": (
        [
            spot("s1", "a"),
            spot("s2", "b"),
            spot("s3", "c"),
            *(pod(f"p-{n}", f"s{n}", cpu="2", topologySpreadConstraints=[spread("p")]) for n in (1, 2, 3)),
        ],
        {},
    ),
    "spread to a full zone": (
        [
            spot("s1", "a"),
            spot("s2", "b"),
            spot("s4", "a", "c"),
            spot("s3", "c"),
            pod("full", "s4", cpu="3"),
            *(pod(f"p-{n}", f"s{n}", cpu="2", topologySpreadConstraints=[spread("p")]) for n in (1, 2, 3)),
        ],
        {"a/m": ["p-1"], "a/c": ["full"]},
    ),
    "a node selector": (
        [*TWO, spot("s3", "b", "c", labels={"disk": "ssd"}), pod("p", "s3", nodeSelector={"disk": "ssd"})],
        {"b/c": ["p"]},
    ),
    "a volume of the zone that is lost": ([*TWO, *volume_in("a"), pod("p", "s1", **CLAIMING)], {"a/m": ["p"]}),
    "a volume of the zone, of which another pool stays": (
        [*TWO, spot("s3", "a", "c"), *volume_in("a"), pod("p", "s1", **CLAIMING)],
        {},
    ),
    "a volume of the zone, in which the pool that stays is full": (
        [*TWO, spot("s3", "a", "c"), *volume_in("a"), pod("p", "s1", **CLAIMING), pod("q", "s3", cpu="3500m")],
        {"a/m": ["p"]},
    ),
    "the only pool": ([spot("s1"), spot("s2"), pod("p", "s1"), pod("q", "s2")], {"a/m": ["p", "q"]}),
    "nodes without the labels are a pool": (
        [node("s1", zone=""), node("s2", zone=""), pod("p", "s1"), spot("t", "b", cpu="500m")],
        {"no-zone/no-instance-type": ["p"]},
    ),
    "nobody is preempted for a lost pod": (
        [*TWO, pod("p", "s1", cpu="3", priority=1000), pod("q", "s2", cpu="3", priority=5)],
        {"a/m": ["p"], "b/m": ["q"]},
    ),
    **{
        f"room of pods of priority {priority} is taken": (
            [*TWO, pod("p", "s1", cpu="3"), pod("q", "s2", cpu="3", priority=priority)],
            {},
        )
        for priority in (-1, -20)
    },
    "pods that yield their room need no place": (
        [*TWO, pod("p", "s1", priority=-1), pod("q", "s2", cpu="4")],
        {},
    ),
    "pods that preempt nothing do not take it": (
        [*TWO, pod("p", "s1", cpu="3", preemptionPolicy="Never"), pod("q", "s2", cpu="3", priority=-20)],
        {"a/m": ["p"]},
    ),
    "a StatefulSet over zones, two of which stay": (
        [spot(f"s{n}", zone) for n, zone in enumerate("abc")] + [pod(f"p-{n}", f"s{n}", **dict(SET)) for n in range(3)],
        {},
    ),
    "a StatefulSet over zones, the other one of which is full": (
        [*TWO, pod("p-0", "s1", **dict(SET)), pod("p-1", "s2", cpu="3500m", **dict(SET))],
        {"a/m": ["p-0"], "b/m": ["p-1"]},
    ),
    "a StatefulSet that needs as many domains as there are": (
        [
            *TWO,
            *(
                pod(
                    f"p-{n}",
                    f"s{n}",
                    owner="apps/v1/StatefulSet",
                    topologySpreadConstraints=[{**spread("p"), "minDomains": 2}],
                )
                for n in (1, 2)
            ),
        ],
        {"a/m": ["p-1"], "b/m": ["p-2"]},
    ),
    "a node with the taint of an interruption notice has no place": (
        [spot("s1"), spot("s2", "b", taints=[MARKED]), pod("p", "s1")],
        {"a/m": ["p"]},
    ),
    "a host port": (
        [
            *TWO,
            *(
                pod(
                    f"p-{n}",
                    f"s{n}",
                    containers=[{"name": "m", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}],
                )
                for n in (1, 2)
            ),
        ],
        {"a/m": ["p-1"], "b/m": ["p-2"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_homeless_pods(case: str) -> None:
    objects, expected = CASES[case]
    found = homeless(certified(objects))
    assert found == expected
    first = Planner(snapshot(objects), Policy()).certificate(CIRCUMSTANCES, Survive.POOL, to_first=True)
    assert homeless(first).items() <= expected.items()
    assert (first.holds, len(first.worst)) == (not expected, min(1, len(expected)))


def test_the_pool_with_the_most_nodes_is_lost_first() -> None:
    objects = [spot("s1"), spot("s2", "b"), spot("s3", "b"), *(pod(f"p{each}", f"s{each}", cpu="3") for each in "123")]
    found = Planner(snapshot(objects), Policy()).certificate(CIRCUMSTANCES, Survive.POOL, to_first=True)
    assert [pool.pool for pool in found.pools] == ["b/m"]


#: case: nodes besides s1 and s2 → the settling pools, and the homeless pods of s1
SETTLING_CASES: dict[str, tuple[list[Manifest], list[str], list[str]]] = {
    "none": ([], [], []),
    "the only other pool": ([], ["b/m"], ["p"]),
    "a pool with the best score, and another one": ([spot("s3", "c", cpu="4")], ["b/m"], []),
    "both other pools": ([spot("s3", "c")], ["b/m", "c/m"], ["p"]),
    "an on-demand node stays": ([node("o", ON_DEMAND, cpu="4")], ["b/m"], []),
    "a pool without nodes": ([], ["z/m"], []),
    "the lost pool itself": ([], ["a/m"], []),
    "nodes of other labels are not of the pool": ([node("o", ON_DEMAND, zone="b", labels={TYPE: "m"})], ["b/m"], []),
}


@pytest.mark.parametrize("case", SETTLING_CASES)
@pytest.mark.parametrize("full", [False, True])
def test_a_settling_pool_has_no_place_for_homeless_pods(case: str, full: bool) -> None:
    """It has the most room, and with the labels of zones only it is a whole zone. Proof and simulation agree."""
    more, settling, expected = SETTLING_CASES[case]
    others = [pod("t", "s1", cpu="1")] if full else []  # without a proof for all, the scheduler is simulated
    objects = [spot("s1"), spot("s2", "b", cpu="32"), *more, pod("p", "s1", cpu="3"), *others]
    circumstances = replace(CIRCUMSTANCES, settling={pool: NOW + timedelta(minutes=1) for pool in settling})
    certificate = Planner(snapshot(objects), Policy()).certificate(circumstances, Survive.POOL)
    found = homeless(certificate).get("a/m", [])
    assert [key for key in found if key != "t"] == expected


def test_a_node_is_left_while_the_pool_that_would_save_its_pods_is_settling() -> None:
    objects = [node("o", ON_DEMAND), spot("s1"), spot("s2", "b"), pod("p", "o", cpu="3"), pod("q", "s1", cpu="500m")]
    planner = Planner(snapshot(objects), Policy(survive=Survive.POOL))
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"o": {"p": "s1"}}
    circumstances = replace(CIRCUMSTANCES, settling={"b/m": NOW + timedelta(minutes=1)})
    assert summary(planner.plan_each(circumstances)) == {"o": ["would-not-survive"]}


def test_a_plan_that_breaks_the_certificate() -> None:
    """Its pods go to one pool, and the node on which they would find a place is gone."""
    objects = [node("o", ON_DEMAND), spot("s1"), spot("s2", "b"), pod("p", "o", cpu="3"), pod("q", "s2", cpu="2")]
    before, after = certified(objects), certified(objects, planned=True)
    assert before.holds
    assert homeless(after) == {"a/m": ["p"], "b/m": ["q"]}


def test_pools_and_zones() -> None:
    """Two pools of a zone have room for the pods of the other one; the zone as a whole has not."""
    objects = [spot("s1"), spot("s2", kind="c"), pod("p-1", "s1", cpu="2"), pod("p-2", "s2", cpu="2")]
    assert certified(objects).holds
    zone = certified(objects, Survive.ZONE)
    assert [(pool.pool, pool.nodes, pool.pods) for pool in zone.worst] == [("a", 2, 2)]
    needed = zone.worst[0].needed
    assert needed is not None
    assert (needed.cpu, needed.nodes, needed.like) == (4000, 1, "s2")


def kept(objects: Iterable[Manifest], survive: Survive = Survive.POOL, **fields: Any) -> tuple[dict[str, Any], Planner]:
    """Return the verdicts on each node by itself as short forms, with the certificate kept."""
    planner = Planner(snapshot(objects), Policy(survive=survive, **fields))
    return summary(planner.plan_each(CIRCUMSTANCES)), planner


#: The pod of s1 fits nowhere else than on o0.
CHOICE = [
    node("o0", ON_DEMAND, cpu="12"),
    node("o1", ON_DEMAND),
    node("o2", ON_DEMAND),
    spot("s1", cpu="8"),
    spot("s2", "b", cpu="8"),
    pod("tiny", "o0", cpu="500m"),
    pod("big", "o1", cpu="3"),
    pod("small", "o2", cpu="1"),
    pod("a", "s1", cpu="5"),
    pod("b", "s2", cpu="4"),
]


def test_a_node_whose_drain_would_break_the_certificate_is_left_and_another_is_chosen() -> None:
    assert certified(CHOICE).holds
    found, planner = kept(CHOICE, allow_returning_plans=True)
    assert found == {"o0": ["would-not-survive"], "o1": {"big": "s1"}, "o2": {"small": "s1"}}
    first = planner.first_plan(CIRCUMSTANCES)
    assert [plan.node for plan in first.plans] == ["o2"]
    rejected = next(verdict for verdict in planner.plan_each(CIRCUMSTANCES).rejected)
    assert rejected.blockers[0].detail.startswith("after its drain, the loss of pool a/m (1 node) would leave 1 pod")


def test_what_is_not_survived_anyway_holds_no_node_back() -> None:
    objects = [node("o", ON_DEMAND), spot("s1"), pod("p", "o"), pod("q", "s1", cpu="2", nodeSelector={HOST: "s1"})]
    assert not certified(objects).holds
    assert kept(objects)[0] == {"o": {"p": "s1"}}


def test_a_plan_of_all_nodes_drains_as_many_as_the_certificate_allows() -> None:
    """The pods of six nodes fit two pools; only the room of the nodes that stay is left when a pool goes."""
    objects = [spot("s1", cpu="16"), spot("s2", "b", cpu="16")]
    for number in range(6):
        objects += [node(f"o{number}", ON_DEMAND), pod(f"p{number}", f"o{number}", cpu="3")]
    without = Planner(snapshot(objects), Policy())
    assert len(without.plan_all(CIRCUMSTANCES).plans) == 6
    planner = Planner(snapshot(objects), Policy(survive=Survive.POOL))
    planning = planner.plan_all(CIRCUMSTANCES)
    assert len(planning.plans) == 5
    assert [verdict.reason for verdict in planning.rejected] == [Reason.WOULD_NOT_SURVIVE]
    assert planner.certificate(CIRCUMSTANCES, Survive.POOL, planning.plans).holds


def test_a_plan_goes_on_without_the_node_that_breaks_the_certificate() -> None:
    """The pod of o1 may only run in one pool and on on-demand nodes; the others have room in both."""
    objects = [
        node("o1", ON_DEMAND, labels={"disk": "ssd"}),
        *(node(f"o{number}", ON_DEMAND) for number in (2, 3)),
        spot("s1", cpu="8", labels={"disk": "ssd"}),
        spot("s2", "b", cpu="8"),
        pod("p1", "o1", cpu="500m", nodeSelector={"disk": "ssd"}),
        *(pod(f"p{number}", f"o{number}", cpu="1") for number in (2, 3)),
    ]
    planner = Planner(snapshot(objects), Policy(survive=Survive.POOL))
    planning = planner.plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in planning.plans] == ["o2", "o3"]
    assert [(verdict.node, verdict.reason) for verdict in planning.rejected] == [("o1", Reason.WOULD_NOT_SURVIVE)]


def test_an_empty_node_is_left_if_its_room_is_needed() -> None:
    objects = [node("o", ON_DEMAND), spot("s1"), pod("p", "s1", cpu="3")]
    assert kept(objects, Survive.OFF)[0] == {"o": {}}
    assert kept(objects)[0] == {"o": ["would-not-survive"]}


def test_changes_of_the_cluster_change_the_certificate() -> None:
    """Certificates are kept while nothing changes; a pod that comes or goes is noticed."""
    table = snapshot([spot("s1"), spot("s2", "b"), pod("p", "s1", cpu="3")])
    planner = Planner(table, Policy(survive=Survive.POOL))
    assert planner.certificate(CIRCUMSTANCES, Survive.POOL).holds
    other = snapshot([spot("s2", "b"), pod("q", "s2", cpu="2")]).pods["default/q"]
    table.upsert("Pod", other)
    assert homeless(planner.certificate(CIRCUMSTANCES, Survive.POOL)) == {"a/m": ["p"], "b/m": ["q"]}
    table.delete("Pod", "default/q")
    assert planner.certificate(CIRCUMSTANCES, Survive.POOL).holds


def test_a_single_zone_is_all_spot_nodes() -> None:
    """Only the on-demand nodes stay, whatever the pools are."""
    objects = [spot("s1"), spot("s2", kind="c"), pod("p", "s1", cpu="3"), pod("q", "s2", cpu="500m")]
    assert homeless(certified(objects)) == {}
    assert homeless(certified(objects, Survive.ZONE)) == {"a": ["p", "q"]}
    assert homeless(certified([*objects, node("o", ON_DEMAND)], Survive.ZONE)) == {}


EMPTIED = [
    node("o1", ON_DEMAND),
    node("o2", ON_DEMAND),
    spot("s1"),
    spot("s2", "b"),
    pod("p", "o2", cpu="3"),
    pod("q", "s2", cpu="2"),
]
KEPT_EMPTY = [node("o1", ON_DEMAND, annotations={"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"})]


def test_nodes_that_were_emptied_before_are_no_places_for_lost_pods() -> None:
    """An autoscaler removes them after a while. Until then they would let every drain pass, one after the other."""
    found, planner = kept(EMPTIED)
    assert found == {"o1": {}, "o2": ["would-not-survive"]}
    (rejected,) = planner.plan_each(CIRCUMSTANCES).rejected
    assert rejected.blockers[0].detail.startswith(
        "after its drain and the removal of 1 on-demand node without pods, the loss of pool "
    )
    assert [plan.node for plan in planner.plan_all(CIRCUMSTANCES).plans] == ["o1"]
    daemonset = pod("d", "o1", owner="apps/v1/DaemonSet")
    assert kept([*EMPTIED, daemonset])[0]["o2"] == ["would-not-survive"]
    assert kept(EMPTIED[1:])[0] == {"o2": ["would-not-survive"]}


def test_nodes_without_pods_that_no_autoscaler_removes_are_places() -> None:
    assert kept([*KEPT_EMPTY, *EMPTIED[1:]])[0]["o2"] == {"p": "s1"}


def test_a_pool_with_more_pods_than_the_effort_allows_is_not_judged() -> None:
    crowded = [*TWO, *(pod(f"web-{number}", "s1", cpu="0.5") for number in range(8)), pod("x", "s2", cpu="3")]
    planner = Planner(snapshot(crowded), Policy())
    certificates = [planner.certificate(CIRCUMSTANCES, Survive.POOL, seconds=seconds) for seconds in (1e-9, 10)]
    short, whole = (next(pool for pool in each.worst if pool.pool == "a/m") for each in certificates)
    assert (short.judged, short.homeless_pods, short.survived) == (False, 0, False)
    assert (whole.judged, whole.homeless_pods, whole.survived) == (True, 6, False)


def test_a_smaller_pool_is_judged_with_the_effort_that_a_larger_one_would_exceed() -> None:
    crowded = [*TWO, *(pod(f"web-{number}", "s1", cpu="0.5") for number in range(8)), pod("x", "s2", cpu="3")]
    certificate = Planner(snapshot(crowded), Policy()).certificate(CIRCUMSTANCES, Survive.POOL, seconds=1e-9)
    assert {pool.pool: (pool.judged, pool.homeless_pods) for pool in certificate.worst} == {
        "a/m": (False, 0),
        "b/m": (True, 1),
    }


def test_the_effort_suffices_for_each_of_many_losses() -> None:
    """A loss of few pods is simulated more often only if the losses after it can be judged as well."""
    full = [
        each
        for zone in "abcd"
        for each in (spot(f"s-{zone}", zone), *(pod(f"{zone}-{n}", f"s-{zone}", cpu="1.9") for n in range(2)))
    ]
    reserve = [each for n in range(2) for each in (node(f"o{n}", ON_DEMAND), pod(f"x-{n}", f"o{n}", cpu="2"))]
    planner = Planner(snapshot([*full, *reserve]), Policy())
    pods = 4 * (1 + 8) * 2  # one attempt to place only pods in doubt, and the fewest simulations
    seconds = (pods + 0.5) / planner.round(CIRCUMSTANCES).forecaster.effort(1).left
    certificate = planner.certificate(CIRCUMSTANCES, Survive.POOL, seconds=seconds)
    assert [pool.judged for pool in certificate.pools] == [True] * 4
    assert certificate.holds
    short = planner.certificate(CIRCUMSTANCES, Survive.POOL, seconds=seconds / 2)
    assert [pool.judged for pool in short.pools] == [True, True, False, False]


def test_what_holds_now_is_found_again_after_a_change() -> None:
    """The loss of s1 is survived on o0 at first. Once o0 takes no pods, it is not, and so holds o0 no longer back."""
    table = snapshot(CHOICE)
    planner = Planner(table, Policy(survive=Survive.POOL, allow_returning_plans=True))
    assert summary(planner.plan_each(CIRCUMSTANCES))["o0"] == ["would-not-survive"]
    [cordoned] = snapshot([node("o0", ON_DEMAND, cpu="12", unschedulable=True)]).nodes
    table.upsert("Node", cordoned)
    assert summary(planner.plan_each(CIRCUMSTANCES))["o0"] == {"tiny": "s1"}


def test_pods_that_yield_on_several_nodes_leave_each_of_them() -> None:
    """After the drain, neither spot node of type m has room for the pod of the other one."""
    objects = [
        node("od", ON_DEMAND),
        spot("s-1", cpu="2"),
        spot("s-2", "b", cpu="2"),
        node("t", cpu="2", zone="a", labels={TYPE: "x"}),
        *(pod(f"pause-{number}", name, cpu="2", priority=-1) for number, name in enumerate(("s-1", "s-2", "t"))),
        pod("a-1", "od", cpu="2", nodeSelector={TYPE: "m"}),
        pod("b-1", "od", cpu="2", nodeSelector={TYPE: "m"}),
    ]
    [plan] = Planner(snapshot(objects), Policy(allow_returning_plans=True)).plan_all(CIRCUMSTANCES).plans
    assert sorted(map(str, plan.preempts)) == ["default/pause-0", "default/pause-1"]
    after = Planner(snapshot(objects), Policy()).certificate(CIRCUMSTANCES, Survive.POOL, [plan])
    assert sorted(homeless(after)) == ["a/m", "b/m"]
    kept = Planner(snapshot(objects), Policy(survive=Survive.POOL, allow_returning_plans=True))
    assert kept.first_plan(CIRCUMSTANCES).plans == ()
    [rejected] = kept.plan_all(CIRCUMSTANCES).rejected
    assert [blocker.reason for blocker in rejected.blockers] == [Reason.WOULD_NOT_SURVIVE]


@pytest.mark.parametrize(
    "policy", [{"survive": Survive.POOL}, {"fallback_headroom": FallbackHeadroom(largest_pool=True)}]
)
def test_plans_in_room_that_pods_yield_keep_what_is_enforced(policy: dict[str, Any]) -> None:
    """The search does not know that room: the nodes are judged after it, each with those before."""
    objects = [
        *(node(f"od-{number}", ON_DEMAND, cpu="2") for number in range(3)),
        *(spot(f"s-{number}", "ab"[number % 2], cpu="2") for number in range(3)),
        *(pod(f"pause-{number}", f"s-{number}", cpu="2", priority=-1) for number in range(3)),
        *(pod(f"a-{number}", f"od-{number}", cpu="2") for number in range(2)),
    ]
    free = Planner(snapshot(objects), Policy(allow_returning_plans=True))
    assert [plan.node for plan in free.plan_all(CIRCUMSTANCES).plans if plan.preempts] == ["od-0", "od-1"]
    kept = Planner(snapshot(objects), Policy(allow_returning_plans=True, **policy))
    planning = kept.plan_all(CIRCUMSTANCES)
    assert len(planning.plans) < len(free.plan_all(CIRCUMSTANCES).plans)
    shared = kept.round(CIRCUMSTANCES)
    for number in range(1, len(planning.plans) + 1):
        assert kept._survival.against(shared, planning.plans[:number]) is None
