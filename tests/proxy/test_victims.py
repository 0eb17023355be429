"""Selection of victims: all rules of the original, without its defects."""

from typing import Any

import pytest

from predicates.objects import Unreadable
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.outcome import Plan, Planning, Reason, Rejected
from rescheduler.planning.rules.candidates import PROXIES
from tests.planning.builders import ZONE, Manifest, budget, pod, repels, snapshot
from tests.planning.builders import node as build_node
from tests.proxy.planning import choose, judge

WORKER = "role"
LOCAL: dict[str, Any] = {"volumes": [{"name": "data", "emptyDir": {}}]}
MEMORY: dict[str, Any] = {"volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}]}
HOST_PATH: dict[str, Any] = {"volumes": [{"name": "data", "hostPath": {"path": "/x"}}]}
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
UNDERUSED: dict[str, Any] = {
    "taints": [{"key": "DeletionCandidateOfClusterAutoscaler", "value": "1700000000", "effect": "PreferNoSchedule"}]
}
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


def node(name: str, **fields: Any) -> Manifest:
    return build_node(name, WORKER, **fields)


def test_the_node_of_the_proxy_itself_is_not_a_victim() -> None:
    choice = choose(snapshot([node("v"), node("w"), node("x")]), ["v", "w"], 2, own="v")
    assert ([plan.node for plan in choice.plans], [verdict.node for verdict in choice.rejected]) == (["w"], ["v"])
    assert [verdict.reason for verdict in choice.rejected[0].blockers] == [Reason.HOSTS_LEADER]


def chosen(objects: list[Manifest], nodes: list[str], limit: int = 99) -> Planning:
    return choose(snapshot(objects), nodes, limit)


def judged(*objects: Manifest, unreadable: tuple[Unreadable, ...] = ()) -> list[str] | dict[str, str]:
    """Return the placements of the pods of the node "v", or the reasons why it stays."""
    cluster = snapshot(objects)
    cluster.unreadable = unreadable
    verdict = judge(cluster, "v")
    if isinstance(verdict, Plan):
        return {placement.pod.name: placement.node for placement in verdict.placements}
    return [str(blocker.reason) for blocker in verdict.blockers]


#: fact: (objects; verdict about the node "v")
JUDGED: dict[str, tuple[list[Manifest], list[str] | dict[str, str]]] = {
    "an empty node and another node": ([node("v"), node("w")], {}),
    "the last node": ([node("v")], [Reason.NO_ROOM]),
    "the others are not Ready": ([node("v"), node("w", ready="False")], [Reason.NO_ROOM]),
    "the others have no condition": ([node("v"), node("w", ready="Unknown")], [Reason.NO_ROOM]),
    "the others are cordoned": ([node("v"), node("w", unschedulable=True)], [Reason.NO_ROOM]),
    "the others are masters by label": (
        [node("v"), node("m", labels={"node-role.kubernetes.io/control-plane": ""})],
        [Reason.NO_ROOM],
    ),
    "the others are masters by their API server": (
        [node("v"), node("m"), pod("kube-system/kube-apiserver-m", "m", owner="Node")],
        [Reason.NO_ROOM],
    ),
    "the others are masters by the label of their API server": (
        [node("v"), node("m"), pod("kube-system/api", "m", owner="Node", labels={"component": "kube-apiserver"})],
        [Reason.NO_ROOM],
    ),
    "itself a master": (
        [node("v"), node("w"), pod("kube-system/kube-apiserver-v", "v", owner="Node")],
        [Reason.CONTROL_PLANE],
    ),
    "protected": ([node("v", annotations={DISABLED: "true"}), node("w")], [Reason.SCALE_DOWN_DISABLED]),
    "protected with another value": ([node("v", annotations={DISABLED: "yes"}), node("w")], {}),
    "a pod that fits": ([node("v"), node("w"), pod("a-1", "v")], {"a-1": "w"}),
    "a pod without a controller": ([node("v"), node("w"), pod("a-1", "v", owner=None)], [Reason.NO_CONTROLLER]),
    "a pod without a controller that may be evicted": (
        [node("v"), node("w"), pod("a-1", "v", owner=None, annotations={SAFE: "true"})],
        {"a-1": "w"},
    ),
    "a pod that must not be evicted": (
        [node("v"), node("w"), pod("a-1", "v", annotations={SAFE: "false"})],
        [Reason.NOT_SAFE_TO_EVICT],
    ),
    "an emptyDir": ([node("v"), node("w"), pod("a-1", "v", **LOCAL)], [Reason.LOCAL_STORAGE]),
    "an emptyDir in memory": ([node("v"), node("w"), pod("a-1", "v", **MEMORY)], [Reason.LOCAL_STORAGE]),
    "a hostPath": ([node("v"), node("w"), pod("a-1", "v", **HOST_PATH)], [Reason.LOCAL_STORAGE]),
    "an emptyDir that may be lost": (
        [node("v"), node("w"), pod("a-1", "v", annotations={SAFE_VOLUMES: "data"}, **LOCAL)],
        {"a-1": "w"},
    ),
    "local storage is reported before a missing controller": (
        [node("v"), node("w"), pod("a-1", "v", owner=None, **LOCAL)],
        [Reason.LOCAL_STORAGE],
    ),
    "a pod of kube-system with any properties": (
        [node("v"), node("w"), pod("kube-system/a-1", "v", owner=None, **LOCAL)],
        {},
    ),
    "a DaemonSet's pod": ([node("v"), node("w"), pod("a-1", "v", owner="DaemonSet", **HOST_PATH)], {}),
    "a mirror pod": (
        [node("v"), node("w"), pod("a-1", "v", owner=None, annotations={"kubernetes.io/config.mirror": "x"})],
        {},
    ),
    "a finished pod": ([node("v"), node("w"), pod("a-1", "v", owner=None, status={"phase": "Succeeded"})], {}),
    "a failed pod": ([node("v"), node("w"), pod("a-1", "v", owner=None, status={"phase": "Failed"})], {}),
    "a pod that is being deleted": ([node("v"), node("w"), pod("a-1", "v", owner=None, deleted=True)], {}),
    "a pod past its deletion deadline": (
        [node("v"), node("w"), pod("a-1", "v", deleted="2026-01-01T11:00:00Z")],
        [Reason.POD_STUCK_TERMINATING],
    ),
    "a pod of kube-system past its deletion deadline": (
        [node("v"), node("w"), pod("kube-system/a-1", "v", deleted="2026-01-01T11:00:00Z")],
        {},
    ),
    "a pod of another scheduler": ([node("v"), node("w"), pod("a-1", "v", schedulerName="volcano")], {"a-1": "w"}),
    "Cluster Autoscaler finds the others underused": (
        [node("v"), node("w", **UNDERUSED), pod("a-1", "v")],
        {"a-1": "w"},
    ),
    "Cluster Autoscaler finds one of the others underused": (
        [node("v"), node("w", **UNDERUSED), node("x"), pod("z-1", "w"), pod("a-1", "v")],
        {"a-1": "x"},
    ),
    "the others are about to be interrupted": (
        [node("v"), node("w", conditions=[{"type": "PreemptScheduled", "status": "True"}])],
        [Reason.NO_ROOM],
    ),
    "too little cpu on each": (
        [node("v"), node("w", cpu="0.2"), node("x", cpu="0.25"), pod("a-1", "v", cpu="300m")],
        [Reason.NO_ROOM],
    ),
    "no more pods on the other": ([node("v"), node("w", pods=0), pod("a-1", "v")], [Reason.NO_ROOM]),
    "a finished pod on the other takes no room": (
        [node("v"), node("w", cpu="1"), pod("a-1", "v"), pod("b-1", "w", status={"phase": "Succeeded"})],
        {"a-1": "w"},
    ),
    "a budget that allows one of two": (
        [node("v"), node("w"), pod("a-1", "v"), pod("a-2", "v"), budget("a", "a", allowed=1)],
        {"a-1": "w", "a-2": "w"},
    ),
    "a budget that allows none of two": (
        [node("v"), node("w"), pod("a-1", "v"), pod("a-2", "v"), budget("a", "a", allowed=0)],
        [Reason.BUDGET, Reason.BUDGET],
    ),
    "two budgets that each allow one of two": (
        [
            *(node("v"), node("w")),
            *(pod(name, "v", cpu="100m") for name in ("a-1", "a-2", "b-1", "b-2")),
            *(budget(app, app, allowed=1) for app in "ab"),
        ],
        {"a-1": "w", "a-2": "w", "b-1": "w", "b-2": "w"},
    ),
    "a budget that allows one of two pods, which terminate slowly": (
        [
            *(node("v"), node("w")),
            *(pod(f"a-{n}", "v", terminationGracePeriodSeconds=100) for n in (1, 2)),
            budget("a", "a", allowed=1),
        ],
        [Reason.BUDGET_TOO_SLOW],
    ),
    "a budget that allows both": (
        [node("v"), node("w"), pod("a-1", "v"), pod("a-2", "v"), budget("a", "a", allowed=2)],
        {"a-1": "w", "a-2": "w"},
    ),
    "a budget of another namespace": (
        [node("v"), node("w"), pod("a-1", "v"), budget("a", "a", allowed=0, namespace="other")],
        {"a-1": "w"},
    ),
    "a node with pods that is not Ready": (
        [node("v", ready="False"), node("w"), pod("a-1", "v")],
        [Reason.NODE_NOT_READY],
    ),
    "an empty node that is not Ready": ([node("v", ready="False"), node("w")], {}),
    "selector, affinity, budget and a tight fit at once": (
        [
            node("v"),
            node("w", cpu="1", labels={"disk": "ssd"}),
            node("x", cpu="2"),
            pod("a-1", "v", cpu="1", nodeSelector={"disk": "ssd"}),
            pod("b-1", "v", cpu="2"),
            budget("a", "a", allowed=1),
        ],
        {"a-1": "w", "b-1": "x"},
    ),
    "a node without allocatable has no effect": ([node("v"), node("w"), node("z", cpu="0", pods=0)], {}),
}


@pytest.mark.parametrize("fact", JUDGED)
def test_a_node_is_removable_or_has_reasons(fact: str) -> None:
    objects, expected = JUDGED[fact]
    assert judged(*objects) == expected


ABC = [node("a"), node("b"), node("c")]
SMALL = [node("a", cpu="2"), node("b", cpu="2"), node("c", cpu="2")]

#: fact: (objects, candidates, number of victims to choose; victims in order)
CHOSEN: dict[str, tuple[list[Manifest], list[str], int, list[str]]] = {
    "fewest pods to move first": (
        [
            node("a"),
            node("b"),
            node("c"),
            pod("x-1", "a", cpu="10m"),
            pod("x-2", "a", cpu="10m"),
            pod("y-1", "b", cpu="3"),
        ],
        ["a", "b"],
        1,
        ["b"],
    ),
    "then the smaller share of requests": (
        [node("a"), node("b"), node("c"), pod("x-1", "a", cpu="2"), pod("y-1", "b", cpu="1")],
        ["a", "b"],
        1,
        ["b"],
    ),
    "what stays counts in the share": (
        [node("a"), node("b"), node("c"), pod("kube-system/x-1", "a", cpu="2")],
        ["a", "b"],
        1,
        ["b"],
    ),
    "then the name": ([node("b"), node("a"), node("c")], ["b", "a"], 1, ["a"]),
    "several, in order": ([node("a"), node("b"), node("c"), pod("x-1", "a")], ["a", "b"], 2, ["b", "a"]),
    "never the last node, although each alone could be drained": (
        [node("a"), node("b"), node("c")],
        ["a", "b", "c"],
        3,
        ["a", "b"],
    ),
    "pods of the first do not go to the second": (
        [*SMALL, pod("x-1", "a"), pod("y-1", "b")],
        ["a", "b"],
        2,
        ["a", "b"],
    ),
    "the second has no room left": (
        [
            node("a", cpu="2"),
            node("b", cpu="2"),
            node("c", cpu="2"),
            pod("x-1", "a", cpu="2"),
            pod("y-1", "b", cpu="2"),
        ],
        ["a", "b"],
        2,
        ["a"],
    ),
    "a rejected node is skipped": (
        [node("a", annotations={DISABLED: "true"}), node("b"), node("c"), node("d")],
        ["a", "b", "c"],
        2,
        ["b", "c"],
    ),
    "a shared budget allows both, one after the other": (
        [node("a"), node("b"), node("c"), pod("x-1", "a"), pod("x-2", "b"), budget("x", "x", allowed=1)],
        ["a", "b"],
        2,
        ["a", "b"],
    ),
    "a shared budget allows one of two on each, in steps": (
        [*ABC, *(pod(f"x-{n}", "aabb"[n], cpu="500m") for n in range(4)), budget("x", "x", allowed=1)],
        ["a", "b"],
        2,
        ["a", "b"],
    ),
    "a pending pod keeps the last node that accepts it": (
        [*(node(name, labels={"for": "p"}) for name in "ab"), node("c"), pod("p-1", nodeSelector={"for": "p"})],
        ["a", "b"],
        2,
        ["a"],
    ),
    "a pending pod that fits elsewhere keeps no node": (
        [node("a"), node("b"), pod("p-1")],
        ["a"],
        1,
        ["a"],
    ),
    "a pending pod takes the room of the pods of the second": (
        [*SMALL, pod("x-1", "a"), pod("y-1", "b"), pod("p-1", cpu="500m")],
        ["a", "b"],
        2,
        ["a"],
    ),
    "replicas that must stay on-demand leave one node, but not two": (
        [
            *(node(name) for name in "abc"),
            build_node("s"),
            *(
                pod(f"x-{number}", on, annotations={"spot-rescheduler/min-on-demand-replicas": "1"})
                for number, on in enumerate("ab")
            ),
        ],
        ["a", "b"],
        2,
        ["a"],
    ),
    "nobody": ([node("a"), node("b")], [], 2, []),
}


@pytest.mark.parametrize("fact", CHOSEN)
def test_victims_are_chosen_in_order_of_cost(fact: str) -> None:
    objects, candidates, limit, expected = CHOSEN[fact]
    choice = chosen(objects, candidates, limit)
    assert [plan.node for plan in choice.plans] == expected
    assert not {plan.node for plan in choice.plans} & {verdict.node for verdict in choice.rejected}


def test_a_drain_waits_for_its_evicted_pods() -> None:
    pods = [pod("a-1", "v", deleted="2026-01-01T11:00:00Z"), pod("a-2", "v")]
    verdict = judge(snapshot([node("v"), node("w"), *pods]), "v", ["uid-a-1"])
    assert isinstance(verdict, Plan)
    assert [str(pod_ref) for pod_ref in verdict.leaving] == ["default/a-1"]


#: fact: (undecodable object; verdict about the node "v", whose pod fits "w" and "x")
UNREADABLE: dict[str, tuple[Unreadable, list[str] | dict[str, str]]] = {
    "a pod on it": (Unreadable("Pod", "default/b", "broken", "v"), [Reason.UNREADABLE_OBJECT]),
    "a pod anywhere": (Unreadable("Pod", "default/b", "broken"), [Reason.UNREADABLE_OBJECT]),
    "a pod on the fuller of the others": (Unreadable("Pod", "default/b", "broken", "w"), {"a-1": "x"}),
    "a budget of the pod's namespace": (
        Unreadable("PodDisruptionBudget", "default/b", "broken"),
        [Reason.UNREADABLE_OBJECT],
    ),
    "a budget of another namespace": (Unreadable("PodDisruptionBudget", "other/b", "broken"), {"a-1": "w"}),
}


@pytest.mark.parametrize("fact", UNREADABLE)
def test_undecodable_objects_keep_the_nodes_they_affect(fact: str) -> None:
    unreadable, expected = UNREADABLE[fact]
    objects = [node("v"), node("w"), node("x"), pod("a-1", "v"), pod("c-1", "w")]
    assert judged(*objects, unreadable=(unreadable,)) == expected


def test_no_pod_is_placed_on_a_victim() -> None:
    objects = [node(name, cpu="4") for name in "abcd"] + [pod(f"{name}-1", name) for name in "abc"]
    choice = chosen(objects, ["a", "b", "c"], 3)
    victims = {plan.node for plan in choice.plans}
    assert {placement.node for plan in choice.plans for placement in plan.placements}.isdisjoint(victims)


def test_the_pods_of_several_victims_are_counted_where_they_leave() -> None:
    """One pod repels all others of its app in its zone, where it runs alone."""
    objects = [
        node("v-1", zone="a"),
        node("v-2", zone="b"),
        node("w", zone="b"),
        pod("x-1", "v-1"),
        pod("b-1", "v-2", affinity=repels("b", ZONE)),
    ]
    assert {plan.node for plan in chosen(objects, ["v-1", "v-2"], 9).plans} == {"v-1", "v-2"}


def test_all_blockers_are_reported() -> None:
    verdict = judge(snapshot([node("v"), node("w"), pod("a-1", "v", owner=None), pod("b-1", "v", **LOCAL)]), "v")
    assert isinstance(verdict, Rejected)
    assert [(blocker.reason, blocker.pod) for blocker in verdict.blockers] == [
        (Reason.NO_CONTROLLER, "default/a-1"),
        (Reason.LOCAL_STORAGE, "default/b-1"),
    ]


@pytest.mark.parametrize(("holder", "reasons"), [(f"{PROXIES}1", []), (f"{PROXIES}2", [Reason.BEING_DRAINED])])
def test_a_proxy_resumes_only_its_own_victims(holder: str, reasons: list[Reason]) -> None:
    taints = [{"key": DRAIN_TAINT.key, "value": f"{PROXIES}1", "effect": DRAIN_TAINT.effect}]
    choice = choose(snapshot([node("v", taints=taints), node("w")]), ["v"], 1, holder=holder)
    assert [blocker.reason for verdict in choice.rejected for blocker in verdict.blockers] == reasons


def test_the_snapshot_is_unchanged() -> None:
    made_ = snapshot([node("a"), node("b"), node("c"), pod("x-1", "a"), pod("y-1", "b")])
    before = made_.nodes.requested.copy(), dict(made_.draining_rows)
    choose(made_, ["a", "b"], 2)
    assert (made_.nodes.requested == before[0]).all()
    assert dict(made_.draining_rows) == before[1]


def test_a_removal_that_is_too_slow_names_the_setting_of_the_proxy() -> None:
    slow = [pod(f"a-{n}", "v", terminationGracePeriodSeconds=100) for n in (1, 2)]
    verdict = judge(snapshot([node("v"), node("w"), *slow, budget("a", "a", allowed=1)]), "v")
    assert isinstance(verdict, Rejected)
    assert [each.detail.rpartition("; ")[2] for each in verdict.blockers] == ["drain.evictionTimeout is 120 s"]
