"""Tests of changes to a cluster: equal to planning a cluster that had the change from the start."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.errors import UsageError
from rescheduler.planning.controllers import ControllerName
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.changes import (
    BudgetChange,
    Change,
    Lift,
    SettingChange,
    Unpin,
    Untaint,
    changed,
)
from rescheduler.planning.what_if.lifting import OF_PODS
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, SPOT, ZONE, Manifest, budget, node, pod, snapshot

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
CACHE: dict[str, Any] = {"volumes": [{"name": "cache", "emptyDir": {}}]}
A = ControllerName("default", "replicaset", "a")
NODES = [node("od", ON_DEMAND), node("s", taints=[{"key": "spot", "effect": "NoSchedule"}])]
TOLERANT: dict[str, Any] = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
#: What an Unpin adds to pods that do not tolerate the taint of the spot node.
ADDED: dict[str, Any] = {"tolerations": [{"key": "spot", "operator": "Equal", "value": "", "effect": "NoSchedule"}]}


def planned(objects: list[Manifest], policy: Policy, *changes: Change) -> Any:
    """Return the plan as text, without the parts that differ between equal plans."""
    cluster, policy = changed(snapshot(objects), policy, changes)
    return msgspec.to_builtins(Planner(cluster, policy).plan_all(CIRCUMSTANCES))


#: By name: the pods and budgets, the change, and the pods and budgets with the change from the start.
EQUAL: dict[str, tuple[list[Manifest], Change, list[Manifest]]] = {
    "nodeSelector that no spot node matches": (
        [pod("a", "od", nodeSelector={"pool": "x", ZONE: "a"}, **TOLERANT)],
        Unpin(A),
        [pod("a", "od", nodeSelector={ZONE: "a"}, **TOLERANT)],
    ),
    "tolerations": ([pod("a", "od")], Unpin(A), [pod("a", "od", **ADDED)]),
    "only the pods of the controller": (
        [pod("a", "od"), pod("b", "od")],
        Unpin(A),
        [pod("a", "od", **ADDED), pod("b", "od")],
    ),
    "all rules of pods that are not pinned": (
        [pod("a", "od", nodeSelector={ZONE: "a"}, **TOLERANT)],
        Unpin(A),
        [pod("a", "od", **TOLERANT)],
    ),
    "local storage": (
        [pod("a", "od", **CACHE, **TOLERANT)],
        Lift(A, Reason.LOCAL_STORAGE),
        [pod("a", "od", annotations={SAFE_LOCAL_VOLUMES: "cache"}, **CACHE, **TOLERANT)],
    ),
    "safe-to-evict": (
        [pod("a", "od", annotations={SAFE_TO_EVICT: "false"}, **TOLERANT)],
        Lift(A, Reason.NOT_SAFE_TO_EVICT),
        [pod("a", "od", **TOLERANT)],
    ),
    "do-not-disrupt": (
        [pod("a", "od", annotations={DO_NOT_DISRUPT: "true"}, **TOLERANT)],
        Lift(A, Reason.DO_NOT_DISRUPT),
        [pod("a", "od", **TOLERANT)],
    ),
    "maxUnavailable": (
        [pod("a", "od", **TOLERANT), budget("b", "a", allowed=0)],
        BudgetChange("default/b", "maxUnavailable", 1),
        [pod("a", "od", **TOLERANT), budget("b", "a", allowed=1, desired=0)],
    ),
    "minAvailable": (
        [pod("a", "od", **TOLERANT), budget("b", "a", allowed=1)],
        BudgetChange("default/b", "minAvailable", "100%"),
        [pod("a", "od", **TOLERANT), budget("b", "a", allowed=0, minAvailable="100%", expected=1)],
    ),
}


@pytest.mark.parametrize("case", EQUAL)
@pytest.mark.parametrize("in_steps", [True, False])
def test_a_change_equals_the_changed_cluster(case: str, *, in_steps: bool) -> None:
    objects, change, expected = EQUAL[case]
    policy = Policy(budgets_in_steps=in_steps)
    after = planned([*NODES, *expected], policy)
    if isinstance(change, BudgetChange):  # the text of a blocker names the numbers only
        assert [verdict["node"] for verdict in after["verdicts"]] == ["od"]
    assert planned([*NODES, *objects], policy, change) == after


def test_a_changed_setting_equals_a_policy_with_it() -> None:
    objects = [*NODES, pod("a", "od", **CACHE, **TOLERANT)]
    change = SettingChange("skip_nodes_with_local_storage", value=False)
    assert planned(objects, Policy(), change) == planned(objects, Policy(skip_nodes_with_local_storage=False))


OS = "kubernetes.io/os"
TYPE = "node.kubernetes.io/instance-type"
ZONE_ID = "topology.k8s.aws/zone-id"
#: Labels that do not follow from a machine: of spot nodes, and of on-demand nodes.
OF_SPOT = {"team": "x", "pool": "spot", "eks.amazonaws.com/nodegroup": "spot"}
OF_OD = {"team": "x", "pool": "od", "eks.amazonaws.com/nodegroup": "db", "tier": "db"}
MODEL = {"cpu": "4", "memory": "16Gi", "pods": "110"}
EITHER = NodeLabels.any_of(map(NodeLabels.parse, ("e=SPOT", "k=spot")))


def taint(key: str) -> Manifest:
    return {"key": key, "effect": "NoSchedule"}


#: By name: the nodes, the policy, the change, and the added nodes by name with labels, taints and allocatable.
ADDED_NODES: dict[str, tuple[list[Manifest], Policy, AddSpot, dict[str, tuple[Any, Any, Any]]]] = {
    "like a spot node": (
        [node("s", zone="b", cpu="8", labels={"type": "x"}, taints=[{"key": "spot", "effect": "NoSchedule"}])],
        Policy(),
        AddSpot(1, like="s"),
        {
            "added-spot-1": (
                {SPOT: "", HOST: "added-spot-1", ZONE: "b", "type": "x"},
                ["spot"],
                {"cpu": "8", "memory": "16Gi", "pods": "110"},
            )
        },
    ),
    "like an on-demand node, without any spot node": (
        [node("od", ON_DEMAND, cpu="8")],
        Policy(spot_label=NodeLabels.parse("capacity=spot")),
        AddSpot(1, like="od"),
        {
            "added-spot-1": (
                {"capacity": "spot", HOST: "added-spot-1", ZONE: "a"},
                [],
                {"cpu": "8", "memory": "16Gi", "pods": "110"},
            )
        },
    ),
    "like a node of one of two families, without any spot node": (
        [node("od", "role", zone="b", labels={"k": "on-demand"})],
        Policy(on_demand_label=NodeLabels.parse("k=on-demand"), spot_label=EITHER),
        AddSpot(1, like="od"),
        {"added-spot-1": ({"k": "spot", HOST: "added-spot-1", ZONE: "b"}, [], MODEL)},
    ),
    "like an on-demand node: what follows from its machine, and what spot nodes have in common": (
        [
            node(
                "s1",
                zone="a",
                labels=OF_SPOT | {TYPE: "c5", ZONE_ID: "a1"},
                taints=[{"key": "t", "effect": "NoExecute"}],
            ),
            node("s2", zone="a", labels=OF_SPOT | {TYPE: "c5", ZONE_ID: "a1", "n": "2"}),
            node(
                "od",
                ON_DEMAND,
                zone="b",
                labels=OF_OD | {TYPE: "m5", OS: "linux"},
                taints=[{"key": "db", "effect": "NoExecute"}],
            ),
        ],
        Policy(),
        AddSpot(1, like="od"),
        {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "b", TYPE: "m5", OS: "linux"} | OF_SPOT, [], MODEL)},
    ),
    "of the type of an on-demand node, in another zone": (
        [node("s1", zone="a", labels=OF_SPOT | {TYPE: "c5"}), node("od", ON_DEMAND, labels=OF_OD | {TYPE: "m5"})],
        Policy(),
        AddSpot(1, type="m5", zone="b"),
        {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "b", TYPE: "m5"} | OF_SPOT, [], MODEL)},
    ),
    "of a size, where spot nodes are those without a label": (
        [node("s1", "any", labels=OF_SPOT), node("od", ON_DEMAND, labels=OF_OD)],
        Policy(spot_label=NodeLabels.parse(f"!{ON_DEMAND}")),
        AddSpot(1, cpu="4", memory="16Gi"),
        {"added-spot-1": ({"any": "", HOST: "added-spot-1", ZONE: "a"} | OF_SPOT, [], MODEL)},
    ),
    "like an on-demand node, where spot nodes are those without a label": (
        [node("s1", "any", labels=OF_SPOT), node("od", ON_DEMAND, labels=OF_OD)],
        Policy(spot_label=NodeLabels.parse(f"!{ON_DEMAND}")),
        AddSpot(1, like="od"),
        {"added-spot-1": ({"any": "", HOST: "added-spot-1", ZONE: "a"} | OF_SPOT, [], MODEL)},
    ),
    **{
        f"like the only spot node, which {why}": (
            [node("s", labels=OF_SPOT, **fields, taints=[*passing, {"key": "spot", "effect": "NoSchedule"}])],
            Policy(),
            AddSpot(1, like="s"),
            {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "a"} | OF_SPOT, ["spot"], MODEL)},
        )
        for why, fields, passing in (
            ("is cordoned", {"unschedulable": True}, [taint("node.kubernetes.io/unschedulable")]),
            ("is not Ready", {"ready": "False"}, [taint("node.kubernetes.io/not-ready")]),
            ("lacks memory", {}, [taint("node.kubernetes.io/memory-pressure")]),
            ("will be reclaimed", {}, [taint("aws-node-termination-handler/spot-itn")]),
            ("will be removed", {}, [taint("ToBeDeletedByClusterAutoscaler")]),
        )
    },
    "of a size, where no spot node takes pods": (
        [
            node("s", labels=OF_SPOT, unschedulable=True, taints=[taint("spot")]),
            node("od", ON_DEMAND, zone="b", labels=OF_OD, taints=[taint("db")]),
        ],
        Policy(),
        AddSpot(1, cpu="4", memory="16Gi"),
        {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "a"} | OF_SPOT, ["spot"], MODEL)},
    ),
    "like an on-demand node, where no spot node takes pods": (
        [
            node("s", labels=OF_SPOT, ready="False", taints=[taint("spot")]),
            node("od", ON_DEMAND, zone="b", labels=OF_OD, taints=[taint("db")]),
        ],
        Policy(),
        AddSpot(1, like="od"),
        {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "b"} | OF_SPOT, ["spot"], MODEL)},
    ),
    "like a spot node that takes no pods now": (
        [node("s1", labels=OF_SPOT), node("s2", labels={"pool": "x"}, unschedulable=True)],
        Policy(),
        AddSpot(1, like="s2"),
        {"added-spot-1": ({SPOT: "", HOST: "added-spot-1", ZONE: "a", "pool": "x"}, [], MODEL)},
    ),
    "of a size, without any spot node: in the zones of the on-demand nodes": (
        [
            node(
                "od-1",
                ON_DEMAND,
                zone="b",
                labels={OS: "linux", "team": "x"},
                taints=[{"key": "t", "effect": "NoExecute"}],
            ),
            node("od-2", ON_DEMAND, zone="a", labels={OS: "linux", "team": "x"}),
            node("other", "role", zone="c"),
        ],
        Policy(),
        AddSpot(3, cpu="2", memory="4Gi", pods=20),
        {
            f"added-spot-{number}": (
                {SPOT: "", OS: "linux", HOST: f"added-spot-{number}", ZONE: zone},
                [],
                {"cpu": "2", "memory": "4Gi", "pods": "20"},
            )
            for number, zone in ((1, "a"), (2, "b"), (3, "a"))
        },
    ),
    "of a size, over the zones of the spot nodes, with what they have in common": (
        [
            node(
                "added-spot-1", zone="a", labels={"team": "x", "n": "1"}, taints=[{"key": "t", "effect": "NoExecute"}]
            ),
            node(
                "s2",
                zone="b",
                labels={"team": "x", "n": "2"},
                taints=[{"key": "t", "effect": "NoExecute"}, {"key": "u", "effect": "NoSchedule"}],
            ),
            node("s3", zone="c", ready="False"),
        ],
        Policy(),
        AddSpot(2, cpu="2", memory="4Gi", pods=20),
        {
            f"added-spot-{number}": (
                {SPOT: "", HOST: f"added-spot-{number}", ZONE: zone, "team": "x"},
                ["t"],
                {"cpu": "2", "memory": "4Gi", "pods": "20"},
            )
            for number, zone in ((2, "a"), (3, "b"))
        },
    ),
}


@pytest.mark.parametrize("case", ADDED_NODES)
def test_added_nodes_resemble_their_model(case: str) -> None:
    objects, policy, change, expected = ADDED_NODES[case]
    before = snapshot(objects)
    after, _ = changed(before, policy, [change])
    added = [item for item in after.nodes if item.name not in before.nodes.row]
    assert {
        item.name: (item.metadata.labels, [taint.key for taint in item.spec.taints], item.status.allocatable)
        for item in added
    } == expected


def test_added_nodes_run_the_daemon_sets_of_their_model() -> None:
    objects = [node("s"), pod("proxy", "s", cpu="500m", owner="DaemonSet"), pod("web", "s")]
    after, _ = changed(snapshot(objects), Policy(), [AddSpot(1, like="s")])
    assert [*after.pods_on["added-spot-1"]] == ["default/proxy-added-spot-1"]
    assert after.nodes.free[after.nodes.row["added-spot-1"], after.nodes.resources["cpu"]] == 3500


def test_added_nodes_take_pods() -> None:
    objects = [node("od", ON_DEMAND), node("s", cpu="1"), pod("a", "od", cpu="2")]
    before, after = (planned(objects, Policy(), *changes) for changes in ([], [AddSpot(1, cpu="4", memory="8Gi")]))
    assert [len(plan["placements"]) for plan in after["verdicts"]] == [1]
    assert "placements" not in before["verdicts"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Unpin(ControllerName("default", "deployment", "a")), "no pod of default/deployment/a: expected"),
        (BudgetChange("default/x", "maxUnavailable", 1), "no PodDisruptionBudget default/x: expected namespace/name"),
        (AddSpot(1, like="nowhere"), "add-spot: there is no node nowhere"),
    ],
)
def test_unknown_objects_are_usage_errors(change: Change, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        changed(snapshot([*NODES, pod("a", "od")]), Policy(), [change])


#: Changes that concern different objects.
INDEPENDENT: list[Change] = [
    Unpin(A),
    Lift(ControllerName("default", "replicaset", "b"), Reason.LOCAL_STORAGE),
    Lift(ControllerName("default", "replicaset", "c"), Reason.DO_NOT_DISRUPT),
    BudgetChange("default/d", "maxUnavailable", "50%"),
    SettingChange("min_on_demand_nodes", 1),
]
MIXED = [
    *(node(f"od-{app}", ON_DEMAND) for app in "abcd"),
    *(node(f"s-{number}", cpu="3") for number in range(2)),
    pod("a", "od-a", nodeSelector={"pool": "x"}),
    pod("b", "od-b", **CACHE),
    pod("c", "od-c", annotations={DO_NOT_DISRUPT: "true"}),
    pod("d", "od-d"),
    budget("d", "d", allowed=0),
]


@settings(max_examples=15, deadline=None)
@given(st.permutations(INDEPENDENT), st.integers(0, len(INDEPENDENT)))
def test_independent_changes_commute_and_leave_the_original_unchanged(changes: list[Change], count: int) -> None:
    original = snapshot(MIXED)
    chosen = changes[:count]
    clusters = [changed(original, Policy(), order) for order in (chosen, chosen[::-1])]
    plans = [Planner(cluster, policy).plan_all(CIRCUMSTANCES) for cluster, policy in clusters]
    assert plans[0] == plans[1]
    again = snapshot(MIXED)
    assert [pod.annotations for pod in original.pods.values()] == [pod.annotations for pod in again.pods.values()]
    assert Planner(original, Policy()).plan_all(CIRCUMSTANCES) == Planner(again, Policy()).plan_all(CIRCUMSTANCES)


@pytest.mark.parametrize("reason", sorted(OF_PODS))
def test_every_liftable_reason_can_be_lifted_from_pods_without_it(reason: Reason) -> None:
    cluster = [*NODES, pod("a", "od", **TOLERANT)]
    assert planned(cluster, Policy(), Lift(A, reason)) == planned(cluster, Policy())


def test_the_policy_is_a_new_value() -> None:
    policy = Policy()
    _, after = changed(snapshot(NODES), policy, [SettingChange("min_on_demand_nodes", 2)])
    assert (after, policy) == (replace(policy, min_on_demand_nodes=2), Policy())


def test_untainted_spot_nodes_keep_their_other_taints() -> None:
    taints = [{"key": "spot", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    other = {"key": "other", "effect": "NoSchedule"}
    pods = [pod("a", "od"), pod("b", "od", tolerations=[{"key": "other", "operator": "Exists"}])]
    before = [node("od", ON_DEMAND, taints=taints), node("s", taints=[*taints, other]), node("t", taints=taints), *pods]
    after = [node("od", ON_DEMAND, taints=taints), node("s", taints=[other]), node("t"), *pods]
    policy = Policy()
    assert planned(before, policy, Untaint("spot")) == planned(after, policy)
    assert planned(before, policy) != planned(after, policy)


def test_removing_a_taint_that_no_spot_node_has_is_a_usage_error() -> None:
    objects = [node("od", ON_DEMAND, taints=[{"key": "a", "effect": "NoSchedule"}]), NODES[1]]
    with pytest.raises(UsageError, match=r"^untaint: no spot node has the taint a; taints of the spot nodes: spot$"):
        planned(objects, Policy(), Untaint("a"))
