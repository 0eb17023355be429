"""Tests of levers: obstacles that the owners of pods can remove, and the nodes that a plan then frees as well."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.cli.plan import command
from rescheduler.cli.what_if import parse
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_labels import NodeLabel
from rescheduler.planning.outcome import Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.minimum import MIN_ON_DEMAND_REPLICAS
from rescheduler.planning.what_if.changes import UnpinSelector
from rescheduler.planning.what_if.comparison import what_if
from rescheduler.planning.what_if.levers import rank_levers
from rescheduler.planning.what_if.overview import Lever, RankedLevers
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, snapshot
from tests.planning.test_replacements import container, replica_set, running

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
REMOVAL_DISABLED = "autoscaling.cast.ai/removal-disabled"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
TYPE = "node.kubernetes.io/instance-type"


def ranked(
    objects: list[Manifest],
    policy: Policy | None = None,
    prices: PriceList | None = None,
    over: Callable[[], bool] = lambda: False,
) -> RankedLevers:
    cluster, policy = snapshot(objects), policy or Policy(budgets_in_steps=True)
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    return rank_levers(planning, planner.round(CIRCUMSTANCES), prices or PriceList(), over)


def deployed(name: str, on: str, **fields: Any) -> Manifest:
    """Return a pod of the Deployment *name* (``namespace/name``) on node *on*, with the fields of real ones."""
    manifest = pod(f"{name}-6d4cf56db6-{on}", on, **fields)
    manifest["metadata"]["labels"]["pod-template-hash"] = "6d4cf56db6"
    [owner] = manifest["metadata"]["ownerReferences"]
    owner["name"] = f"{name.partition('/')[2]}-6d4cf56db6"
    return manifest


CI: dict[str, Any] = {"nodeSelector": {"pool": "ci"}}
CACHE: dict[str, Any] = {"volumes": [{"name": "cache", "emptyDir": {}}]}
DATA: dict[str, Any] = {"volumes": [{"name": "data", "emptyDir": {}}]}

#: Eight nodes that ci-cache pins. Two of them also have an emptyDir of data/api, five have a pod with devices.
PINNED = [
    *(node(f"od-{n}", ON_DEMAND, labels={"pool": "ci", TYPE: "m5.2xlarge"}) for n in range(8)),
    node("spot-1"),
    *(deployed("ci/ci-cache", f"od-{n}", **CI) for n in range(8)),
    *(deployed("data/api", f"od-{n}", cpu="100m", **CACHE) for n in (1, 2)),
    *(deployed("data/db", f"od-{n}", resourceClaims=[{"name": "gpu"}]) for n in range(3, 8)),
]


SPOT_TAINT = {"key": "example.com/priority", "value": "spot", "effect": "NoSchedule"}

#: Three nodes whose pods do not tolerate the taint of the spot nodes. od-1 has an emptyDir as well, od-2 a selector.
TAINTED = [
    *(node(f"od-{n}", ON_DEMAND, labels={TYPE: "m5.large"}) for n in range(3)),
    *(node(f"spot-{n}", taints=[SPOT_TAINT]) for n in range(2)),
    deployed("shop/cart", "od-0"),
    deployed("shop/search", "od-0"),
    deployed("data/api", "od-1", **CACHE),
    deployed("ci/ci-cache", "od-2", nodeSelector={TYPE: "m5.large"}),
]


def test_a_taint_that_pods_of_several_controllers_do_not_tolerate_is_one_lever() -> None:
    result = ranked(TAINTED)
    assert result.levers[0] == Lever(
        controller="Taint example.com/priority=spot:NoSchedule",
        reason=Reason.PINNED,
        obstacle="pods of 3 controllers do not tolerate it",
        nodes=("od-1", "od-0"),
        frees=("od-0",),
        together_with=("Deployment data/api: emptyDir cache",),
        frees_together=("od-1", "od-0"),
    )
    missing = "no toleration of example.com/priority=spot:NoSchedule"
    assert [(lever.controller, lever.obstacle, lever.frees) for lever in result.levers[1:]] == [
        ("Deployment ci/ci-cache", f"nodeSelector {TYPE}=m5.large, {missing}", ("od-2",)),
        ("Deployment data/api", "emptyDir cache", ()),
    ]


def test_a_taint_that_only_one_controller_does_not_tolerate_is_a_lever_of_the_controller() -> None:
    objects = [*TAINTED[:5], deployed("shop/cart", "od-0"), deployed("shop/cart", "od-1")]
    [lever] = ranked(objects).levers
    assert (lever.controller, lever.frees) == ("Deployment shop/cart", ("od-0", "od-1"))


def test_several_taints_are_one_lever() -> None:
    other = {"key": "a", "effect": "NoExecute"}
    spot = [node(f"spot-{n}", taints=[SPOT_TAINT, other]) for n in range(2)]
    objects = [*TAINTED[:3], *spot, deployed("shop/cart", "od-0"), deployed("shop/search", "od-1")]
    assert ranked(objects).levers[0].controller == "Taint a:NoExecute,example.com/priority=spot:NoSchedule"
    assert ranked(objects).levers[0].frees == ("od-0", "od-1")


def test_pods_lack_only_the_tolerations_for_the_spot_nodes_with_the_fewest_taints() -> None:
    other = {"key": "batch", "effect": "NoSchedule"}
    spot = [node("spot-0", taints=[SPOT_TAINT, other]), node("spot-1", taints=[SPOT_TAINT])]
    pods = [deployed("shop/cart", "od-0"), deployed("shop/search", "od-1", tolerations=[{"key": "batch"}])]
    levers = ranked([*TAINTED[:3], *spot, *pods]).levers
    assert [(lever.controller, lever.frees) for lever in levers] == [
        ("Taint example.com/priority=spot:NoSchedule", ("od-0", "od-1")),
    ]


@pytest.mark.parametrize(
    ("known", "first"),
    [([], "a"), ([Commitment("m5.2xlarge", nodes=1)], "b"), ([Commitment("m5.large", nodes=1)], "a")],
)
def test_nodes_that_commitments_pay_anyway_count_for_nothing(known: list[Commitment], first: str) -> None:
    prices = PriceList(
        {("m5.2xlarge", "", False): Decimal("0.4"), ("m5.large", "", False): Decimal("0.1")}, commitments=tuple(known)
    )
    nodes = [
        node(f"od-{name}", ON_DEMAND, labels={TYPE: kind}) for name, kind in (("a", "m5.2xlarge"), ("b", "m5.large"))
    ]
    pinned = [deployed(f"shop/{name}", f"od-{name}", nodeSelector={"only": name}) for name in ("a", "b")]
    levers = ranked([*nodes, node("spot"), *pinned], prices=prices).levers
    assert levers[0].frees == (f"od-{first}",)


def test_the_biggest_lever_is_named_with_the_one_that_completes_it() -> None:
    prices = PriceList({("m5.2xlarge", "", False): Decimal("0.384")})
    assert ranked(PINNED, prices=prices) == RankedLevers(
        (
            Lever(
                controller="Deployment ci/ci-cache",
                reason=Reason.PINNED,
                obstacle="nodeSelector pool=ci",
                nodes=tuple(f"od-{n}" for n in range(8)),
                frees=("od-0",),
                together_with=("Deployment data/api: emptyDir cache",),
                frees_together=("od-0", "od-1", "od-2"),
            ),
            Lever(
                controller="Deployment data/api",
                reason=Reason.LOCAL_STORAGE,
                obstacle="emptyDir cache",
                nodes=("od-1", "od-2"),
                together_with=("Deployment ci/ci-cache: nodeSelector pool=ci",),
                frees_together=("od-0", "od-1", "od-2"),
            ),
        ),
        complete=True,
    )


#: By obstacle: the objects besides od and a spot node, and the only lever: its owner, reason, and the part to change.
SINGLE: dict[str, tuple[list[Manifest], Policy, tuple[str, Reason, str]]] = {
    "node affinity": (
        [
            pod(
                "a",
                "od",
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["ci", "cd"]}]},
                                {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                            ]
                        }
                    }
                },
            )
        ],
        Policy(),
        ("ReplicaSet default/a", Reason.PINNED, "node affinity pool In (ci, cd) or gpu Exists"),
    ),
    "only the label that no spot node has is named": (
        [pod("a", "od", nodeSelector={ON_DEMAND: "", "topology.kubernetes.io/zone": "a"})],
        Policy(),
        ("ReplicaSet default/a", Reason.PINNED, f"nodeSelector {ON_DEMAND}="),
    ),
    "safe-to-evict": (
        [pod("a", "od", annotations={SAFE_TO_EVICT: "false"})],
        Policy(),
        ("ReplicaSet default/a", Reason.NOT_SAFE_TO_EVICT, f"annotation {SAFE_TO_EVICT}: false"),
    ),
    "do-not-disrupt": (
        [pod("a", "od", owner="apps/v1/StatefulSet", annotations={DO_NOT_DISRUPT: "true"})],
        Policy(),
        ("StatefulSet default/a", Reason.DO_NOT_DISRUPT, f"annotation {DO_NOT_DISRUPT}: true"),
    ),
    "do-not-evict": (
        [pod("a", "od", annotations={"spot-rescheduler/do-not-evict": "later"})],
        Policy(),
        ("ReplicaSet default/a", Reason.DO_NOT_EVICT, "annotation spot-rescheduler/do-not-evict: later"),
    ),
    "Descheduler": (
        [pod("a", "od", annotations={"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""})],
        Policy(),
        (
            "ReplicaSet default/a",
            Reason.PREFER_NO_EVICTION,
            "annotation descheduler.alpha.kubernetes.io/prefer-no-eviction: ",
        ),
    ),
    "a component that handles evictions": (
        [pod("a", "od", evictionResponders=[{"name": "acme.io/migrator", "priority": 10000}])],
        Policy(),
        ("ReplicaSet default/a", Reason.EVICTION_RESPONDER, "evictionResponders"),
    ),
    "Spot Ocean": (
        [pod("a", "od", labels={"spotinst.io/restrict-scale-down": "true"})],
        Policy(),
        ("ReplicaSet default/a", Reason.RESTRICT_SCALE_DOWN, "label spotinst.io/restrict-scale-down: true"),
    ),
    "CAST AI, annotation and label": (
        [pod("a", "od", annotations={REMOVAL_DISABLED: "true"}, labels={REMOVAL_DISABLED: "true"})],
        Policy(),
        (
            "ReplicaSet default/a",
            Reason.REMOVAL_DISABLED,
            f"annotation {REMOVAL_DISABLED}: true, label {REMOVAL_DISABLED}: true",
        ),
    ),
    "CAST AI, annotation": (
        [pod("a", "od", annotations={REMOVAL_DISABLED: "true"}, labels={REMOVAL_DISABLED: "false"})],
        Policy(),
        ("ReplicaSet default/a", Reason.REMOVAL_DISABLED, f"annotation {REMOVAL_DISABLED}: true"),
    ),
    "no controller": (
        [pod("a", "od", owner=None)],
        Policy(),
        ("Pod default/a", Reason.NO_CONTROLLER, "no controller"),
    ),
    "a run to completion, whose local storage is no lever": (
        [
            pod(
                "a",
                "od",
                owner="tekton.dev/v1/TaskRun",
                restartPolicy="Never",
                volumes=[{"name": "workspace", "emptyDir": {}}],
            )
        ],
        Policy(),
        ("TaskRun default/a", Reason.RUNS_TO_COMPLETION, "runs to completion"),
    ),
    "a Spark executor, named instead of its driver": (
        [pod("a-exec-1", "od", owner="v1/Pod", restartPolicy="Never")],
        Policy(),
        ("Pod default/a-exec-1", Reason.RUNS_TO_COMPLETION, "runs to completion"),
    ),
    "an owner that is not built in": (
        [pod("a", "od", owner="apps.kruise.io/v1alpha1/CloneSet")],
        Policy(skip_nodes_with_custom_controller_pods=True),
        ("CloneSet default/a", Reason.CUSTOM_CONTROLLER, "owner that is not a built-in controller"),
    ),
    "Karpenter, both names of the annotation": (
        [pod("a", "od", annotations={DO_NOT_DISRUPT: "true", "karpenter.sh/do-not-evict": "true"})],
        Policy(),
        (
            "ReplicaSet default/a",
            Reason.DO_NOT_DISRUPT,
            "annotation karpenter.sh/do-not-disrupt: true, annotation karpenter.sh/do-not-evict: true",
        ),
    ),
    "kube-system": (
        [pod("kube-system/a", "od")],
        Policy(),
        ("ReplicaSet kube-system/a", Reason.KUBE_SYSTEM, "a kube-system pod without a PodDisruptionBudget"),
    ),
    "scheduler": (
        [pod("a", "od", schedulerName="volcano")],
        Policy(),
        ("ReplicaSet default/a", Reason.OTHER_SCHEDULER, "schedulerName volcano"),
    ),
    "local volumes of which one is allowed": (
        [
            pod(
                "a",
                "od",
                annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": "tmp"},
                volumes=[
                    {"name": "tmp", "emptyDir": {}},
                    {"name": "data", "emptyDir": {}},
                    {"name": "logs", "hostPath": {"path": "/var/log"}},
                ],
            )
        ],
        Policy(),
        ("ReplicaSet default/a", Reason.LOCAL_STORAGE, "emptyDir data, hostPath logs"),
    ),
    "a budget": (
        [pod("a", "od"), budget("b", "a", allowed=0)],
        Policy(budgets_in_steps=True),
        ("PodDisruptionBudget default/b", Reason.BUDGET, "it allows 0 evictions now"),
    ),
    "a budget of which two evictions are needed at once": (
        [pod("a-1", "od"), pod("a-2", "od"), budget("b", "a", allowed=1)],
        Policy(budgets_in_steps=False),
        ("PodDisruptionBudget default/b", Reason.BUDGET, "it allows 1 eviction now"),
    ),
    "a budget that is too slow": (
        [
            pod("a-1", "od", terminationGracePeriodSeconds=100),
            pod("a-2", "od", terminationGracePeriodSeconds=100),
            budget("b", "a", allowed=1),
        ],
        Policy(budgets_in_steps=True),
        ("PodDisruptionBudget default/b", Reason.BUDGET, "it allows 1 eviction now"),
    ),
}


@pytest.mark.parametrize("case", SINGLE)
def test_an_obstacle_is_lifted(case: str) -> None:
    objects, policy, (owner, reason, obstacle) = SINGLE[case]
    expected = Lever(owner, reason, obstacle, nodes=("od",), frees=("od",))
    assert ranked([node("od", ON_DEMAND), node("s"), *objects], policy) == RankedLevers((expected,), complete=True)


@pytest.mark.parametrize("annotation", [SCALE_DOWN_DISABLED, DO_NOT_DISRUPT, "spot-rescheduler/do-not-drain"])
def test_an_annotation_of_a_node_is_a_lever(annotation: str) -> None:
    kept = node("od", ON_DEMAND, annotations={annotation: "true"})
    [lever] = ranked([kept, node("s"), pod("a", "od")]).levers
    assert (lever.controller, lever.obstacle, lever.frees) == ("Node od", f"annotation {annotation}", ("od",))


def test_a_key_that_exempts_nodes_and_pods_is_lifted_from_both() -> None:
    kept = node("od", ON_DEMAND, labels={REMOVAL_DISABLED: "true"})
    [lever] = ranked([kept, node("s"), pod("a", "od", annotations={REMOVAL_DISABLED: "true"})]).levers
    assert (lever.what, lever.frees_together) == (
        (
            f"Node od: annotation or label {REMOVAL_DISABLED}, with ReplicaSet default/a: "
            f"annotation {REMOVAL_DISABLED}: true"
        ),
        ("od",),
    )


def test_a_taint_of_the_spot_nodes_is_a_lever() -> None:
    tainted = node("s", taints=[{"key": "spot", "value": "true", "effect": "NoSchedule"}])
    [lever] = ranked([node("od", ON_DEMAND), tainted, pod("a", "od")]).levers
    assert (lever.reason, lever.obstacle, lever.frees) == (
        Reason.PINNED,
        "no toleration of spot=true:NoSchedule",
        ("od",),
    )


#: By case: the objects, and for each lever its owner, the nodes with its obstacle, and those freed without it.
TRIALS: dict[str, tuple[list[Manifest], list[tuple[str, tuple[str, ...], tuple[str, ...]]]]] = {
    "the plan's own moves take room from the trial": (
        [
            *(node(name, ON_DEMAND) for name in ("od-1", "od-2")),
            node("s", cpu="4"),
            pod("free", "od-1", cpu="3"),
            pod("a", "od-2", cpu="3500m", **CACHE),
        ],
        [("ReplicaSet default/a", ("od-2",), ())],
    ),
    "each trial starts from the plan, not from the trial before": (
        [
            *(node(name, ON_DEMAND) for name in ("od-1", "od-2")),
            node("s", cpu="4"),
            pod("a", "od-1", cpu="3", **CACHE),
            pod("b", "od-2", cpu="3500m", **CACHE),
        ],
        [("ReplicaSet default/a", ("od-1",), ("od-1",)), ("ReplicaSet default/b", ("od-2",), ("od-2",))],
    ),
    "a node with another blocker has the obstacle, but is not freed": (
        [
            node("od-1", ON_DEMAND),
            node("od-2", ON_DEMAND, ready="False"),
            node("s"),
            pod("a-1", "od-1", **CACHE),
            pod("a-2", "od-2", **CACHE),
        ],
        [("ReplicaSet default/a", ("od-1", "od-2"), ("od-1",))],
    ),
    "a pod that is too large for every spot node is not a lever": (
        [node("od", ON_DEMAND, cpu="16"), node("s"), pod("a", "od", cpu="8", nodeSelector={ON_DEMAND: ""})],
        [],
    ),
    "a pod of a DaemonSet is not an obstacle": (
        [
            node("od", ON_DEMAND, ready="False"),
            node("s"),
            pod("a", "od", owner="DaemonSet", nodeSelector={ON_DEMAND: ""}),
        ],
        [],
    ),
}


@pytest.mark.parametrize("case", TRIALS)
def test_a_lever_frees_the_nodes_that_its_trial_drains(case: str) -> None:
    objects, expected = TRIALS[case]
    assert [(lever.controller, lever.nodes, lever.frees) for lever in ranked(objects).levers] == expected


def test_a_budget_that_the_plan_has_used_is_a_lever() -> None:
    objects = [
        *(node(name, ON_DEMAND) for name in ("od-1", "od-2", "od-3")),
        node("s"),
        *(pod(f"a-{number}", f"od-{number}") for number in (1, 2, 3)),
        budget("b", "a", allowed=1),
    ]
    [lever] = ranked(objects, Policy(budgets_in_steps=False)).levers
    assert (lever.obstacle, lever.nodes, lever.frees) == (
        "it allows 1 eviction now, of which the plan uses 1",
        ("od-2", "od-3"),
        ("od-2", "od-3"),
    )


def test_the_minimum_limits_what_a_lever_frees() -> None:
    nodes = [node(name, ON_DEMAND) for name in ("od-1", "od-2", "od-3")]
    pods = [pod("free", "od-1"), pod("a-2", "od-2", **CACHE), pod("a-3", "od-3", **CACHE)]
    [lever] = ranked([*nodes, node("s"), *pods], Policy(min_on_demand_nodes=1)).levers
    assert (lever.nodes, lever.frees) == (("od-2", "od-3"), ("od-2",))


def test_the_replicas_that_stay_on_on_demand_nodes_limit_what_a_lever_frees() -> None:
    nodes = [node(name, ON_DEMAND) for name in ("od-1", "od-2", "od-3")]
    kept: Manifest = {"annotations": {MIN_ON_DEMAND_REPLICAS: "2"}}
    pods = [pod(f"web-{number}", f"od-{number}", **kept, **CACHE) for number in (1, 2, 3)]
    [lever] = ranked([*nodes, node("s"), *pods]).levers
    assert (lever.nodes, lever.frees) == (("od-1", "od-2", "od-3"), ("od-1",))


@pytest.mark.parametrize(("cpu", "frees"), [("3", ("od",)), ("5", ())])
def test_a_lever_frees_a_node_if_the_pods_of_the_template_fit(cpu: str, frees: tuple[str, ...]) -> None:
    kept = running(2, annotations={SAFE_TO_EVICT: "false"})  # resized in place
    [lever] = ranked([node("od", ON_DEMAND, cpu="8"), node("s"), kept, replica_set(container(cpu=cpu))]).levers
    assert (lever.nodes, lever.frees) == (("od",), frees)


#: Obstacles that are only lifted together → the change that the one lever names, and its what-if.
BOTH: dict[str, tuple[list[Manifest], str, list[str]]] = {
    "of one pod": (
        [pod("a", "od", annotations={DO_NOT_DISRUPT: "true"}, **CACHE)],
        f"ReplicaSet default/a: annotation {DO_NOT_DISRUPT}: true, with emptyDir cache",
        ["allow default/replicaset/a do-not-disrupt", "allow default/replicaset/a local-storage"],
    ),
    "of one pod with another controller": (
        [deployed("shop/web", "od", owner="StatefulSet", annotations={DO_NOT_DISRUPT: "true"}, **CACHE)],
        f"StatefulSet shop/web-6d4cf56db6: annotation {DO_NOT_DISRUPT}: true, with emptyDir cache",
        [f"allow shop/statefulset/web-6d4cf56db6 {reason}" for reason in ("do-not-disrupt", "local-storage")],
    ),
    "of two pods": (
        [pod("a", "od", annotations={DO_NOT_DISRUPT: "true"}), pod("b", "od", **CACHE)],
        f"ReplicaSet default/a: annotation {DO_NOT_DISRUPT}: true, with ReplicaSet default/b: emptyDir cache",
        ["allow default/replicaset/a do-not-disrupt", "allow default/replicaset/b local-storage"],
    ),
    "of a pod and its budget": (
        [pod("a", "od", **CACHE), budget("b", "a", allowed=0)],
        "PodDisruptionBudget default/b: it allows 0 evictions now, with ReplicaSet default/a: emptyDir cache",
        ["budget default/b maxUnavailable=1", "allow default/replicaset/a local-storage"],
    ),
    "three of one pod": (
        [pod("a", "od", annotations={DO_NOT_DISRUPT: "true", SAFE_TO_EVICT: "false"}, **CACHE)],
        (
            f"ReplicaSet default/a: annotation {DO_NOT_DISRUPT}: true, with emptyDir cache; "
            f"annotation {SAFE_TO_EVICT}: false"
        ),
        [f"allow default/replicaset/a {reason}" for reason in ("do-not-disrupt", "local-storage", "not-safe-to-evict")],
    ),
}


@pytest.mark.parametrize("case", BOTH)
def test_obstacles_that_only_free_a_node_together_are_one_lever(case: str) -> None:
    objects, what, changes = BOTH[case]
    [lever] = ranked([node("od", ON_DEMAND), node("s"), *objects]).levers
    assert (lever.what, lever.frees, lever.frees_together, list(lever.to_try)) == (what, (), ("od",), changes)


def test_levers_that_need_different_others_stay() -> None:
    """od-1 needs two changes, od-2 a third one as well, which od-3 needs with another."""
    kept = {"a": {"annotations": {DO_NOT_DISRUPT: "true"}}, "b": CACHE, "c": {"owner": None}, "d": CI}
    pods = {1: "ab", 2: "abc", 3: "cd"}
    objects = [
        *(node(f"od-{number}", ON_DEMAND, labels={"pool": "ci"}) for number in pods),
        node("s"),
        *(pod(f"{app}-{on}", f"od-{on}", cpu="100m", **kept[app]) for on, apps in pods.items() for app in apps),
    ]
    levers = ranked(objects).levers
    assert len({frozenset(lever.edits) for lever in levers}) == len(levers)
    assert {lever.frees_together for lever in levers} == {("od-1", "od-2"), ("od-3",)}


def test_levers_are_ranked_by_money_and_without_prices_by_nodes() -> None:
    cheap, dear = {TYPE: "small"}, {TYPE: "large"}
    objects = [
        *(node(f"od-{n}", ON_DEMAND, labels=cheap) for n in range(2)),
        node("od-2", ON_DEMAND, labels=dear),
        node("s"),
        *(pod(f"a-{n}", f"od-{n}", **CACHE) for n in range(2)),
        pod("b-1", "od-2", **DATA),
    ]
    prices = PriceList({("small", "", False): Decimal("0.1"), ("large", "", False): Decimal(1)})
    assert [
        [lever.controller for lever in ranked(objects, prices=listed).levers] for listed in (PriceList(), prices)
    ] == [
        [ALL_VOLUMES, "ReplicaSet default/a", "ReplicaSet default/b"],
        [ALL_VOLUMES, "ReplicaSet default/b", "ReplicaSet default/a"],
    ]


def test_without_time_the_levers_are_named_without_trials() -> None:
    levers = ranked(PINNED, over=lambda: True)
    assert (levers.complete, [(len(lever.nodes), lever.frees, lever.frees_together) for lever in levers.levers]) == (
        False,
        [(8, (), ()), (2, (), ())],
    )


def test_a_lever_that_was_not_tried_for_lack_of_time_is_marked() -> None:
    objects = [node("od", ON_DEMAND), node("s"), pod("a", "od", owner=None)]
    assert [lever.tried for lever in ranked(objects, over=lambda: True).levers] == [False]
    assert [lever.tried for lever in ranked(objects).levers] == [True]


def test_the_snapshot_is_unchanged() -> None:
    cluster, policy = snapshot(PINNED), Policy()
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    free, pods = cluster.nodes.free.copy(), dict(cluster.pods)
    rank_levers(planning, planner.round(CIRCUMSTANCES), PriceList(), lambda: False)
    assert (cluster.nodes.free == free).all()
    assert (cluster.pods, cluster.draining_rows) == (pods, {})
    again = Planner(cluster, policy).plan_all(CIRCUMSTANCES)
    assert again == planning


#: By reason: the fields with which a pod has the obstacle.
OBSTACLES: dict[Reason | None, dict[str, Any]] = {
    None: {},
    Reason.PINNED: {"nodeSelector": {ON_DEMAND: ""}},
    Reason.LOCAL_STORAGE: CACHE,
    Reason.DO_NOT_DISRUPT: {"annotations": {DO_NOT_DISRUPT: "true"}},
    Reason.GRACE_PERIOD: {"terminationGracePeriodSeconds": 3600},
}

ALL_VOLUMES = "Setting --skip-nodes-with-local-storage=false"
CACHES = "Setting --ignore-local-volumes=cache"
GRACES = "Setting --max-graceful-termination=3600s"
PODS = st.tuples(
    st.sampled_from("abc"), st.sampled_from(["od-0", "od-1", "od-2"]), st.integers(1, 4), st.sampled_from([*OBSTACLES])
)


@settings(max_examples=30, deadline=None)
@given(st.lists(PODS, max_size=6), st.integers(1, 8))
def test_a_plan_with_the_change_frees_at_least_the_nodes_of_the_lever(
    pods: list[tuple[str, str, int, Reason | None]], room: int
) -> None:
    cluster = snapshot(
        [
            *(node(f"od-{number}", ON_DEMAND) for number in range(3)),
            *(node(f"s-{number}", cpu=str(room)) for number in range(2)),
            *(
                pod(f"{app}{reason or ''}-{number}", on, cpu=str(cpu), **OBSTACLES[reason])
                for number, (app, on, cpu, reason) in enumerate(pods)
            ),
        ]
    )
    policy = Policy()
    planner = Planner(cluster, policy)
    planning = planner.plan_all(CIRCUMSTANCES)
    ranking = rank_levers(planning, planner.round(CIRCUMSTANCES), PriceList(), lambda: False)
    for lever in ranking.levers:
        changes = [parse(text, policy, command.params) for text in lever.changes]
        after = what_if(cluster, policy, CIRCUMSTANCES, changes).planning
        assert len(after.plans) >= len(planning.plans) + len(lever.frees)
        assert not {plan.node for plan in planning.plans} & set(lever.frees)
        assert set(lever.frees) <= set(lever.nodes)
        assert not lever.together_with or len(lever.frees_together) > len(lever.frees)


#: The volumes that an injected proxy of Istio adds to a pod.
PROXY_VOLUMES: list[Manifest] = [
    {"name": name, "emptyDir": {}} for name in ("workload-socket", "credential-socket", "workload-certs")
]


def mesh(own: list[Manifest] = []) -> list[Manifest]:  # noqa: B006 - not changed
    """Return 20 nodes with a pod of each of several Deployments of a mesh, whose pods also have the volumes *own*."""
    nodes = [node(f"od-{n:02}", ON_DEMAND) for n in range(20)]
    pods = [
        deployed(f"mesh/app{(n + each) % 30:02}", f"od-{n:02}", cpu="100m", volumes=[*PROXY_VOLUMES, *own])
        for n in range(20)
        for each in (0, 7, 13)
    ]
    return [*nodes, node("spot", cpu="64"), *pods]


MESH_SETTING = "Setting --ignore-local-volumes=credential-socket,workload-certs,workload-socket"


def test_the_first_lever_of_a_mesh_is_the_setting_that_frees_all_nodes() -> None:
    found = ranked(mesh())
    first = found.levers[0]
    assert (first.controller, first.reason, len(first.frees)) == (MESH_SETTING, Reason.LOCAL_STORAGE, 20)
    assert [lever.controller for lever in found.levers] == [MESH_SETTING]


def test_the_setting_of_the_first_lever_frees_what_it_says() -> None:
    policy = Policy(budgets_in_steps=True, ignore_local_volumes=tuple(str(each["name"]) for each in PROXY_VOLUMES))
    planning = Planner(snapshot(mesh()), policy).plan_all(CIRCUMSTANCES)
    assert len(planning.plans) == 20


def test_volumes_of_one_controller_do_not_become_part_of_the_setting() -> None:
    """A Deployment of the mesh with data of its own keeps its nodes; the levers say which flag would free them too."""
    objects = mesh()
    objects += [deployed("mesh/db", "od-00", volumes=[*PROXY_VOLUMES, {"name": "data", "emptyDir": {}}])]
    first, second, *_ = ranked(objects).levers
    assert (first.controller, len(first.frees)) == (ALL_VOLUMES, 20)
    assert (second.controller, len(second.frees)) == (MESH_SETTING, 19)


def test_settings_for_owners_and_system_pods_are_levers() -> None:
    cluster = [node("od", ON_DEMAND), node("spot")]
    custom = [pod(f"c{n}", "od", owner="apps.kruise.io/v1alpha1/CloneSet") for n in range(2)]
    system = [pod(f"kube-system/s{n}", "od") for n in range(2)]
    strict = Policy(skip_nodes_with_custom_controller_pods=True)
    assert [
        ranked([*cluster, *custom], strict).levers[0].controller,
        ranked([*cluster, *system]).levers[0].controller,
    ] == ["Setting --skip-nodes-with-custom-controller-pods=false", "Setting --skip-nodes-with-system-pods=false"]


ON_DEMAND_ONLY: dict[str, Any] = {"nodeSelector": {"capacity-type": "on-demand"}}


def _affinity(value: str, operator: str = "In") -> dict[str, Any]:
    rule = {"key": "capacity-type", "operator": operator, "values": [value]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _nodes(number: int) -> list[Manifest]:
    nodes = [node(f"od-{n}", ON_DEMAND, labels={"capacity-type": "on-demand", TYPE: "m"}) for n in range(number)]
    return [*nodes, node("spot-1", cpu="32")]


def test_a_label_that_pods_of_several_controllers_demand_is_one_lever() -> None:
    pods = [deployed(f"shop/web{n}", f"od-{n}", **ON_DEMAND_ONLY) for n in range(3)]
    pods += [
        deployed("ci/runner", "od-3", **_affinity("on-demand")),
        deployed("ci/cache", "od-4", nodeSelector={"x": "y"}),
    ]
    levers = ranked([*_nodes(5), *pods]).levers
    assert [(lever.controller, lever.obstacle, lever.frees, lever.changes) for lever in levers] == [
        (
            "Selector capacity-type=on-demand",
            "pods of 4 controllers demand this label of a node",
            ("od-0", "od-1", "od-2", "od-3"),
            ("unpin selector capacity-type=on-demand",),
        ),
        ("Deployment ci/cache", "nodeSelector x=y", ("od-4",), ("unpin ci/deployment/cache",)),
    ]


def test_the_change_of_such_a_lever_frees_its_nodes_and_no_other_rule_is_lifted() -> None:
    pods = [deployed(f"shop/web{n}", f"od-{n}", **ON_DEMAND_ONLY) for n in range(2)]
    pods += [
        deployed("ci/runner", "od-2", **_affinity("on-demand")),
        deployed("ci/other", "od-3", **_affinity("spot", "NotIn")),
        deployed("ci/both", "od-4", nodeSelector={"capacity-type": "on-demand", "disk": "ssd"}),
    ]
    cluster = snapshot([*_nodes(5), *pods])
    change = UnpinSelector((NodeLabel("capacity-type", ("on-demand",)),))
    plans = what_if(cluster, Policy(), CIRCUMSTANCES, [change]).planning.plans
    assert {plan.node for plan in plans} == {"od-0", "od-1", "od-2", "od-3"} - {"od-3"} | {
        plan.node for plan in Planner(cluster, Policy()).plan_all(CIRCUMSTANCES).plans
    }


def test_a_label_that_only_one_controller_demands_is_a_lever_of_the_controller() -> None:
    pods = [deployed("shop/web", f"od-{n}", **ON_DEMAND_ONLY) for n in range(2)]
    [lever] = ranked([*_nodes(2), *pods]).levers
    assert (lever.controller, lever.changes) == ("Deployment shop/web", ("unpin shop/deployment/web",))


def _required(*terms: list[tuple[str, str, list[str]]]) -> dict[str, Any]:
    """Return a required node affinity of alternative *terms*, each of requirements: key, operator, values."""
    listed = [
        {"matchExpressions": [{"key": key, "operator": operator, "values": values} for key, operator, values in term]}
        for term in terms
    ]
    required = {"nodeSelectorTerms": listed}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _alike(*fields: dict[str, Any], **spot: Any) -> list[Manifest]:
    """Return an on-demand node for a pod of each of four owners of different kinds, with *fields* in turn."""
    owners = ("apps/v1/ReplicaSet", "apps/v1/StatefulSet", "v1/ReplicationController", "apps.kruise.io/v1/CloneSet")
    labels = {"capacity-type": "on-demand", "arch": "arm64", "pool": "web"}
    nodes = [node(f"od-{n}", ON_DEMAND, labels=labels) for n in range(4)]
    pods = [pod(f"shop/app{n}-1", f"od-{n}", owner=owner, **fields[n % len(fields)]) for n, owner in enumerate(owners)]
    return [*nodes, *pods, node("spot", cpu="32", labels={"capacity-type": "spot", "arch": "arm64"}, **spot)]


LIFECYCLE = "capacity-type"

#: By what pods of several controllers have in common: the cluster, the only lever, and its changes.
SHARED: dict[str, tuple[list[Manifest], str, tuple[str, ...]]] = {
    "a label": (
        _alike(ON_DEMAND_ONLY),
        "Selector capacity-type=on-demand",
        ("unpin selector capacity-type=on-demand",),
    ),
    "a label, and a taint of the spot nodes": (
        _alike(ON_DEMAND_ONLY, _required([(LIFECYCLE, "In", ["on-demand"])]), taints=[SPOT_TAINT]),
        "Selector capacity-type=on-demand, Taint example.com/priority=spot:NoSchedule",
        ("unpin selector capacity-type=on-demand", "untaint example.com/priority"),
    ),
    "a label besides others that spot nodes have": (
        _alike(
            _required([(LIFECYCLE, "In", ["on-demand"]), ("arch", "In", ["arm64"])]),
            {"nodeSelector": {"capacity-type": "on-demand", "arch": "arm64"}},
        ),
        "Selector capacity-type=on-demand",
        ("unpin selector capacity-type=on-demand",),
    ),
    "a label in all alternatives": (
        _alike(
            _required([(LIFECYCLE, "In", ["on-demand"]), ("arch", "Exists", [])], [(LIFECYCLE, "In", ["on-demand"])])
        ),
        "Selector capacity-type=on-demand",
        ("unpin selector capacity-type=on-demand",),
    ),
    "two labels": (
        _alike({"nodeSelector": {"capacity-type": "on-demand", "pool": "web"}}),
        "Selector capacity-type=on-demand,pool=web",
        ("unpin selector capacity-type=on-demand,pool=web",),
    ),
    "a label that is excluded": (
        _alike(_required([(LIFECYCLE, "NotIn", ["spot"])])),
        "Selector capacity-type!=spot",
        ("unpin selector capacity-type!=spot",),
    ),
    "one of several values": (
        _alike(_required([(LIFECYCLE, "In", ["reserved", "on-demand"])])),
        "Selector capacity-type in (on-demand,reserved)",
        ("unpin selector capacity-type in (on-demand,reserved)",),
    ),
    "any value": (_alike(_required([("pool", "Exists", [])])), "Selector pool", ("unpin selector pool",)),
    "no value": (
        _alike(_required([(LIFECYCLE, "DoesNotExist", [])]) | {"nodeSelector": {}}),
        "Selector !capacity-type",
        ("unpin selector !capacity-type",),
    ),
    "an annotation": (
        _alike({"annotations": {SAFE_TO_EVICT: "false"}}),
        f"Key {SAFE_TO_EVICT}",
        ("allow all not-safe-to-evict",),
    ),
    "an annotation under two names": (
        _alike({"annotations": {DO_NOT_DISRUPT: "true"}}, {"annotations": {"karpenter.sh/do-not-evict": "true"}}),
        f"Key {DO_NOT_DISRUPT}",
        ("allow all do-not-disrupt",),
    ),
    "an annotation of nodes": (
        [
            *(node(f"od-{n}", ON_DEMAND, annotations={SCALE_DOWN_DISABLED: "true"}) for n in range(3)),
            node("spot"),
            *(pod(f"a-{n}", f"od-{n}") for n in range(3)),
        ],
        f"NodeKey {SCALE_DOWN_DISABLED}",
        ("allow all scale-down-disabled",),
    ),
    "a volume": (_alike(CACHE), "Setting --ignore-local-volumes=cache", ("ignore-local-volumes=cache",)),
    "an injected container": (
        _alike({"volumes": PROXY_VOLUMES}),
        MESH_SETTING,
        (MESH_SETTING.partition("--")[2],),
    ),
}


def test_each_volume_that_controllers_share_is_a_lever() -> None:
    """Those of an injected container are one, and those of caches another: the data of caches is not lost with it."""
    fields = [{"volumes": PROXY_VOLUMES}, CACHE, {"volumes": PROXY_VOLUMES}, CACHE]
    found = ranked(_alike(*fields))
    assert [(lever.controller, lever.frees) for lever in found.levers] == [
        ("Setting --ignore-local-volumes=cache", ("od-1", "od-3")),
        (MESH_SETTING, ("od-0", "od-2")),
    ]


def test_volumes_that_keep_the_same_nodes_are_ignored_together() -> None:
    more = [pod(f"shop/more{n}-1", f"od-{n}", **CACHE) for n in range(4)]
    first, *_ = ranked([*_alike({"volumes": PROXY_VOLUMES}), *more]).levers
    assert (first.controller, len(first.frees)) == (
        "Setting --ignore-local-volumes=cache,credential-socket,workload-certs,workload-socket",
        4,
    )


def test_pods_that_lack_only_a_part_of_what_others_lack_are_freed_with_them() -> None:
    tolerant = ON_DEMAND_ONLY | {"tolerations": [{"operator": "Exists"}]}
    levers = ranked(_alike(ON_DEMAND_ONLY, tolerant, taints=[SPOT_TAINT])).levers
    assert [(lever.controller, len(lever.frees)) for lever in levers] == [
        ("Selector capacity-type=on-demand, Taint example.com/priority=spot:NoSchedule", 4),
        ("Selector capacity-type=on-demand", 2),
    ]


@pytest.mark.parametrize(
    ("fields", "owner", "risk"),
    [
        (CACHE, "apps/v1/ReplicaSet", "data"),
        ({}, None, "pod"),
        (ON_DEMAND_ONLY, "apps/v1/ReplicaSet", None),
        ({"annotations": {SAFE_TO_EVICT: "false"}}, "apps/v1/ReplicaSet", None),
        ({}, "argoproj.io/v1alpha1/Workflow", "work"),
    ],
    ids=["emptyDir", "no controller", "selector", "opt-out", "runs to completion"],
)
def test_the_risk_of_a_lever_is_what_is_lost_for_good(
    fields: dict[str, Any], owner: str | None, risk: str | None
) -> None:
    more = {"restartPolicy": "Never"} if owner and "argo" in owner else {}
    [lever] = ranked([*_nodes(1), pod("shop/a", "od-0", owner=owner, **fields, **more)]).levers
    assert (lever.risk, lever.frees) == (risk, ("od-0",))


def test_a_lever_with_others_has_the_worst_of_their_risks() -> None:
    pods = [
        deployed("shop/a", "od-0", **ON_DEMAND_ONLY),
        pod("ci/b", "od-0", owner=None),
        deployed("c/c", "od-0", **CACHE),
    ]
    [lever] = ranked([*_nodes(1), *pods]).levers
    assert (len(lever.edits), lever.frees, lever.risk) == (3, (), "data")
