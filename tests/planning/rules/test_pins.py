"""Tests of pods that no spot node could ever accept, and of nodes with obstacles of several kinds."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Planning, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.changes import changed
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, budget, node, pod, short, snapshot, summary

TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
OTHER = {"key": "gpu", "effect": "NoExecute"}
TOLERATED = [{"key": "spot", "operator": "Exists"}]
CI: dict[str, Any] = {"labels": {"pool": "ci"}}
PREEMPTION = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}


def requires(*terms: dict[str, Any]) -> dict[str, Any]:
    """Return a required node affinity with these terms; each maps a key to an operator and its values."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": key, "operator": op, "values": values}]}
                    for term in terms
                    for key, (op, values) in term.items()
                ]
            }
        }
    }


TEXTS: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "no spot node has a label of the nodeSelector": (
        [node("s", **CI)],
        {"nodeSelector": {"pool": "ci", "disk": "ssd"}},
        "its nodeSelector disk=ssd matches no spot node",
    ),
    "no spot node has all labels of the nodeSelector": (
        [node("s", **CI), node("t", labels={"disk": "ssd"})],
        {"nodeSelector": {"pool": "ci", "disk": "ssd"}},
        "its nodeSelector disk=ssd,pool=ci matches no spot node",
    ),
    "no spot node matches the required affinity": (
        [node("s")],
        {"affinity": requires({"pool": ("In", ["ci", "cd"])}, {"disk": ("Exists", [])})},
        "its required node affinity (pool in [ci, cd]) or (disk) matches no spot node",
    ),
    "no spot node matches both the nodeSelector and the affinity": (
        [node("s", **CI)],
        {"nodeSelector": {"pool": "ci"}, "affinity": requires({"pool": ("NotIn", ["ci"])})},
        "its required node affinity (pool not in [ci]) matches no spot node",
    ),
    "different spot nodes match the nodeSelector and the affinity": (
        [node("s", **CI), node("t", labels={"pool": "cd"})],
        {"nodeSelector": {"pool": "ci"}, "affinity": requires({"pool": ("In", ["cd"])})},
        "its nodeSelector pool=ci and its required node affinity (pool in [cd]) match no spot node together",
    ),
    "all spot nodes have a taint": (
        [node("s", taints=[TAINT]), node("t", taints=[TAINT])],
        {},
        "it does not tolerate the taint spot=true:NoSchedule of 2 of 2 spot nodes",
    ),
    "all spot nodes have one of two taints": (
        [node("s", taints=[TAINT]), node("t", taints=[TAINT]), node("u", taints=[OTHER])],
        {},
        "it does not tolerate the taints of 3 spot nodes: spot=true:NoSchedule (of 2), gpu:NoExecute (of 1)",
    ),
    "the only matching spot node has a taint": (
        [node("s", **CI, taints=[TAINT]), node("t")],
        {"nodeSelector": {"pool": "ci"}},
        "it does not tolerate the taint spot=true:NoSchedule of 1 of 1 matching spot node",
    ),
    "neither the selector nor the tolerations": (
        [node("s", taints=[TAINT])],
        {"nodeSelector": {"pool": "ci"}},
        (
            "its nodeSelector pool=ci matches no spot node; "
            "it does not tolerate the taint spot=true:NoSchedule of 1 of 1 spot node"
        ),
    ),
    "a full spot node changes nothing": (
        [node("s", cpu="1"), pod("full", "s")],
        {"nodeSelector": {"pool": "ci"}},
        "its nodeSelector pool=ci matches no spot node",
    ),
}


@pytest.mark.parametrize(("objects", "spec", "text"), TEXTS.values(), ids=TEXTS)
def test_a_pinned_pod_is_reported_with_the_rule_that_pins_it(
    objects: list[Any], spec: dict[str, Any], text: str
) -> None:
    planner = Planner(snapshot([node("od", ON_DEMAND), *objects, pod("a", "od", **spec)]), Policy())
    blockers = [(Reason.PINNED, "default/a", text)]
    for verdict in (
        planner.plan_node("od", CIRCUMSTANCES),
        planner.plan_all(CIRCUMSTANCES).verdicts[0],
        planner.first_plan(CIRCUMSTANCES).verdicts[0],
    ):
        assert isinstance(verdict, Rejected)
        assert [(blocker.reason, blocker.pod, blocker.detail) for blocker in verdict.blockers] == blockers


NOT_PINNED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "there is no spot node": ([], {"nodeSelector": {"pool": "ci"}}),
    "the matching spot node is full": (
        [node("s", **CI, cpu="1"), pod("full", "s")],
        {"nodeSelector": {"pool": "ci"}},
    ),
    "the pod is too large": ([node("s")], {"cpu": "5"}),
    "the spot nodes are cordoned": ([node("s", unschedulable=True)], {}),
    "the taint of a node condition is temporary": (
        [node("s", taints=[{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])],
        {},
    ),
    "the taint of a preemption is temporary": ([node("s", taints=[PREEMPTION])], {}),
    **{
        f"the start-up taint {key}": ([node("s", taints=[{"key": key, "effect": effect}])], {})
        for key, effect in (
            ("node.cilium.io/agent-not-ready", "NoExecute"),
            ("ebs.csi.aws.com/agent-not-ready", "NoExecute"),
            ("efs.csi.aws.com/agent-not-ready", "NoSchedule"),
            ("nvidia.com/gpu-operator-not-ready", "NoSchedule"),
            ("startup-taint.cluster-autoscaler.kubernetes.io/network", "NoSchedule"),
            ("ignore-taint.cluster-autoscaler.kubernetes.io/x", "NoExecute"),
        )
    },
    "the taint is tolerated": ([node("s", taints=[TAINT], cpu="500m")], {"tolerations": TOLERATED}),
}


@pytest.mark.parametrize(("objects", "spec"), NOT_PINNED.values(), ids=NOT_PINNED)
def test_lack_of_room_and_temporary_taints_do_not_pin(objects: list[Any], spec: dict[str, Any]) -> None:
    planner = Planner(snapshot([node("od", ON_DEMAND, cpu="8"), *objects, pod("a", "od", **spec)]), Policy())
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == ["no-room-on-spot"]


def test_a_start_up_taint_of_a_flag_does_not_pin() -> None:
    taint = {"key": "example.com/warming-up", "effect": "NoSchedule"}
    objects = [node("od", ON_DEMAND), node("s", taints=[taint]), pod("a", "od")]
    reasons = [
        short(Planner(snapshot(objects), Policy(startup_taints=keys)).plan_node("od", CIRCUMSTANCES))
        for keys in ((), ("example.com/warming-up",))
    ]
    assert reasons == [["pinned-to-on-demand"], ["no-room-on-spot"]]


def test_added_spot_nodes_do_not_have_start_up_taints() -> None:
    taints = [{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}, TAINT]
    after, _ = changed(snapshot([node("s", taints=taints)]), Policy(), [AddSpot(1, like="s")])
    [added] = [each for each in after.nodes if each.name != "s"]
    assert [taint.key for taint in added.spec.taints] == ["spot"]


def volume(*requirements: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a claim of pod ``db`` and its volume, which nodes that match all *requirements* can access."""
    terms = [{"matchExpressions": list(requirements)}]
    return [
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data",
                "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": "disk", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
        {
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
            "status": {"phase": "Bound"},
        },
    ]


DATA: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
VOLUMES: dict[str, tuple[dict[str, Any], str]] = {
    "of the node's own disk": ({"key": "kubernetes.io/hostname", "values": ["od"]}, "pinned-to-on-demand"),
    "of the driver's own node label": ({"key": "topology.topolvm.io/node", "values": ["od"]}, "pinned-to-on-demand"),
    "of a zone without spot nodes": ({"key": "topology.ebs.csi.aws.com/zone", "values": ["b"]}, "no-room-on-spot"),
}


@pytest.mark.parametrize(("requirement", "reason"), VOLUMES.values(), ids=VOLUMES)
def test_a_volume_that_only_exists_elsewhere_pins_its_pod(requirement: dict[str, Any], reason: str) -> None:
    objects = [
        node("od", ON_DEMAND, labels={"topology.topolvm.io/node": "od"}),
        node("s", labels={"topology.topolvm.io/node": "s", "topology.ebs.csi.aws.com/zone": "a"}),
        pod("db-0", "od", owner="StatefulSet", **DATA),
        *volume({"operator": "In", **requirement}),
    ]
    for planning in Planner(snapshot(objects), Policy()).plan_all(CIRCUMSTANCES), _independent(objects):
        [verdict] = planning.rejected
        assert [blocker.reason for blocker in verdict.blockers] == [reason]
        assert ("its volume disk only exists on nodes that are not spot" in verdict.blockers[0].detail) is (
            reason == "pinned-to-on-demand"
        )


def _independent(objects: list[dict[str, Any]]) -> Planning:
    return Planner(snapshot(objects), Policy()).plan_each(CIRCUMSTANCES)


#: Pods on the node, and all blockers: of the rules, then budgets, pinned pods, pods without room.
OBSTACLES: dict[str, tuple[list[Any], list[tuple[str, str]]]] = {
    "a pod that may not be evicted does not fit either": (
        [pod("bare", "od", owner=None, cpu="5")],
        [("no-controller", "bare"), ("no-room-on-spot", "bare")],
    ),
    "a pod that may not be evicted is pinned": (
        [pod("bare", "od", owner=None, nodeSelector={"pool": "ci"})],
        [("no-controller", "bare"), ("pinned-to-on-demand", "bare")],
    ),
    "each pod has a different obstacle": (
        [
            pod("bare", "od", owner=None),
            pod("ci", "od", nodeSelector={"pool": "ci"}),
            pod("large", "od", cpu="5"),
            pod("w-1", "od", labels={"app": "w"}),
        ],
        [
            ("no-controller", "bare"),
            ("pod-disruption-budget", "w-1"),
            ("pinned-to-on-demand", "ci"),
            ("no-room-on-spot", "large"),
        ],
    ),
    "the pods do not fit together": (
        [pod("bare", "od", owner=None), pod("x", "od", cpu="2"), pod("y", "od", cpu="2")],
        [("no-controller", "bare"), ("no-room-on-spot", "bare")],
    ),
    "several pods do not fit": (
        [pod("x", "od", cpu="5"), pod("y", "od", cpu="6")],
        [("no-room-on-spot", "y"), ("no-room-on-spot", "x")],
    ),
    "a pod that is being deleted needs no room": (
        [pod("gone", "od", cpu="5", deleted=True)],
        [("pod-terminating", "gone")],
    ),
}


@pytest.mark.parametrize(("pods", "expected"), OBSTACLES.values(), ids=OBSTACLES)
def test_all_obstacles_of_a_node_are_reported(pods: list[Any], expected: list[tuple[str, str]]) -> None:
    objects = [node("od", ON_DEMAND, cpu="32"), node("s"), *pods, budget("b", "w", allowed=0)]
    planner = Planner(snapshot(objects), Policy())
    for planning in (planner.plan_each(CIRCUMSTANCES), planner.plan_all(CIRCUMSTANCES)):
        [verdict] = planning.rejected
        assert [(blocker.reason, blocker.pod) for blocker in verdict.blockers] == [
            (reason, f"default/{name}") for reason, name in expected
        ]


def test_the_daemon_reports_the_first_step_with_an_obstacle() -> None:
    pods = [pod("bare", "od", owner=None), pod("ci", "od", nodeSelector={"pool": "ci"})]
    planner = Planner(snapshot([node("od", ON_DEMAND), node("s"), *pods]), Policy())
    assert summary(planner.first_plan(CIRCUMSTANCES)) == {"od": ["no-controller"]}
    assert short(planner.look_again("od", CIRCUMSTANCES)) == ["no-controller"]


BOUNDS: dict[str, tuple[list[Any], int]] = {
    "a pod is pinned": ([pod("a", "od1", nodeSelector={"pool": "ci"})], 1),
    "a pod may not be evicted": ([pod("a", "od1", owner=None)], 1),
    "a budget allows no eviction": ([pod("w-1", "od1", labels={"app": "w"})], 1),
    "no spot node has room for a pod": ([pod("x", "s", cpu="2"), pod("a", "od1", cpu="3")], 1),
    "the nodes compete for room": ([pod("a", "od1", cpu="3"), pod("c", "od2", cpu="3")], 1),
    "both can go": ([pod("a", "od1")], 2),
}


@pytest.mark.parametrize(("pods", "bound"), BOUNDS.values(), ids=BOUNDS)
def test_the_upper_bound_counts_only_nodes_that_could_be_drained(pods: list[Any], bound: int) -> None:
    objects = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s"), pod("b", "od2", cpu="100m"), *pods]
    planning = Planner(snapshot([*objects, budget("b", "w", allowed=0)]), Policy()).plan_all(CIRCUMSTANCES)
    assert (planning.upper_bound, len(planning.plans), planning.timed_out) == (bound, bound, False)


USED = {
    "the plan has used all evictions": (
        1,
        ["w-1"],
        ["w-2"],
        "the plan has used the 1 eviction that PodDisruptionBudget default/b allows now",
    ),
    "the plan has used some evictions": (
        2,
        ["w-1"],
        ["w-2", "w-3"],
        (
            "the plan has used 1 of the 2 evictions that PodDisruptionBudget default/b allows now, "
            "2 of its pods are on this node"
        ),
    ),
    "the budget allows nothing from the beginning": (
        0,
        [],
        ["w-2"],
        "PodDisruptionBudget default/b allows 0 evictions now, one of its pods is on this node",
    ),
}


@pytest.mark.parametrize(("allowed", "first", "second", "text"), USED.values(), ids=USED)
def test_a_budget_that_the_plan_has_used_is_the_reason(
    allowed: int, first: list[str], second: list[str], text: str
) -> None:
    pods = [pod(name, on, labels={"app": "w"}) for on, names in (("od1", first), ("od2", second)) for name in names]
    objects = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s", cpu="32"), *pods]
    planning = Planner(snapshot([*objects, budget("b", "w", allowed=allowed)]), Policy()).plan_all(CIRCUMSTANCES)
    [verdict] = planning.rejected
    assert (verdict.node, verdict.blockers[0].detail) == ("od2", text)


def test_a_node_without_room_does_not_use_a_budget() -> None:
    """The budget stays available for the next node."""
    pods = [pod("w-1", "od1", labels={"app": "w"}, cpu="4"), pod("w-2", "od2", labels={"app": "w"}, cpu="3")]
    objects = [node("od1", ON_DEMAND), node("od2", ON_DEMAND), node("s", cpu="3"), *pods, budget("b", "w", allowed=1)]
    assert summary(Planner(snapshot(objects), Policy()).plan_all(CIRCUMSTANCES)) == {
        "od2": {"w-2": "s"},
        "od1": ["pod-disruption-budget", "no-room-on-spot"],
    }
