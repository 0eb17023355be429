"""Planning that reuses verdicts gives the same results as planning from scratch, after each change and clock step."""

from datetime import datetime
from typing import Any, Final, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.objects import Unreadable
from rescheduler.planning.answers.node import all_obstacles
from rescheduler.planning.examined import Examined
from rescheduler.planning.outcome import Reason, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, DrainOrder, FallbackHeadroom, Policy, Surging, Survive
from rescheduler.planning.question import Attempt
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT
from rescheduler.planning.waits import Cooldown
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, budget, node, pod
from tests.planning.changing import (
    ON_DEMAND_NODES,
    SPOT_NODES,
    Change,
    ChangingCluster,
    at,
    changes,
    clock_steps,
    first_pods,
    stamp,
    unreadable,
)
from tests.planning.policies import VETO, circumstances, policies
from tests.planning.rules.test_volumes import claim
from tests.planning.test_replacements import DEPLOYMENT, container, workload
from tests.planning.test_surges import deployment, owned

#: What happens between two rounds: changes, a step of the clock, and new circumstances or None.
ROUNDS = st.lists(
    st.tuples(st.lists(changes, max_size=2), clock_steps, st.none() | circumstances, st.booleans()),
    min_size=1,
    max_size=8,
)


#: Policies with which a verdict depends on what happens to other nodes, or on the pods that run there.
OF_OTHERS: Final = st.sampled_from(
    (
        Policy(planning_timeout=1000.0, survive=Survive.POOL),
        Policy(planning_timeout=1000.0, survive=Survive.ZONE, spot_pool_labels=(HOST,)),
        Policy(planning_timeout=1000.0, fallback_headroom=FallbackHeadroom(100)),
        Policy(planning_timeout=1000.0, fallback_headroom=FallbackHeadroom(largest_pool=True)),
        Policy(planning_timeout=1000.0, surge=Surging.BLOCKED),
        Policy(planning_timeout=1000.0, expendable_pods_priority_cutoff=1),
        Policy(planning_timeout=1000.0, min_worth=5.0, drain_order=DrainOrder.WORTH),
    )
)
Rounds: TypeAlias = list[tuple[list[Change], float, dict[str, Any] | None, bool]]


@settings(max_examples=250)
@given(first_pods, ROUNDS, policies)
def test_each_round_equals_a_round_from_scratch(pods: list[Change], rounds: Rounds, policy: Policy) -> None:
    _plan_again_and_again(pods, rounds, policy)


@settings(max_examples=250)
@given(first_pods, ROUNDS, OF_OTHERS)
def test_each_round_that_depends_on_other_nodes_equals_one_from_scratch(
    pods: list[Change], rounds: Rounds, policy: Policy
) -> None:
    _plan_again_and_again(pods, rounds, policy)


def _plan_again_and_again(pods: list[Change], rounds: Rounds, policy: Policy) -> None:
    cluster = ChangingCluster()
    for put in pods:
        put(cluster)
    reusing, seconds, fields = Planner(cluster.snapshot, policy), 0.0, dict[str, Any]()
    for changed, step, new_fields, takes_empty in rounds:
        for change in changed:
            change(cluster)
        seconds += step
        fields = fields if new_fields is None else new_fields
        now = Circumstances(at(seconds), **fields)

        def take(node: str, takes: bool = takes_empty) -> bool:
            return takes and node != "od-1"

        scratch = Planner(cluster.snapshot, policy)
        assert reusing.plan_each(now) == scratch.plan_each(now)
        assert reusing.first_plan(now, take_empty=take) == scratch.first_plan(now, take_empty=take)
        assert reusing.plan_all(now) == scratch.plan_all(now)


def cluster_of(*manifests: dict[str, Any]) -> ChangingCluster:
    cluster = ChangingCluster()
    for manifest in manifests:
        cluster.put(manifest)
    return cluster


class Judged:
    """Counts the nodes that are judged and not reused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes: list[str] = []

        def counted(examined: Examined, attempt: Attempt) -> Verdict:
            self._nodes.append(examined.candidate.node)
            return all_obstacles(examined, attempt)

        monkeypatch.setattr("rescheduler.planning.answers.single.all_obstacles", counted)

    def take(self) -> list[str]:
        nodes, self._nodes = self._nodes, []
        return nodes


UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}
SAFE, UNSAFE = ({"cluster-autoscaler.kubernetes.io/safe-to-evict": value} for value in ("true", "false"))
THREE = (pod("web-1", "od-1"), pod("db-1", "od-2"), pod("db-2", "od-3"), pod("db-3", "spot-1"))


def _replaced(name: str, node_name: str, **fields: Any) -> Change:
    """Return a change: the pod is deleted, and its controller creates another one on the same node."""

    def change(cluster: ChangingCluster) -> None:
        cluster.delete("Pod", f"default/{name}")
        cluster.put(pod(f"{name}-next", node_name, **fields))

    return change


def _starts_and_ends(cluster: ChangingCluster) -> None:
    cluster.put(pod("new-1", "spot-2"))
    cluster.delete("Pod", "default/new-1")


#: What happens → the nodes that are judged again
AGAIN: dict[str, tuple[Change, Circumstances, list[str]]] = {
    "nothing": (lambda _: None, Circumstances(at(0)), []),
    "time passes": (lambda _: None, Circumstances(at(3600)), []),
    "a pod gets an annotation that no rule reads": (
        lambda cluster: cluster.put(pod("web-1", "od-1", annotations={"note": "a"})),
        Circumstances(at(10)),
        [],
    ),
    "a pod gets an annotation that forbids its eviction": (
        lambda cluster: cluster.put(pod("web-1", "od-1", annotations=UNSAFE)),
        Circumstances(at(10)),
        ["od-1"],
    ),
    "a pod gets an annotation that changes nothing": (
        lambda cluster: cluster.put(pod("web-1", "od-1", annotations=SAFE)),
        Circumstances(at(10)),
        [],
    ),
    "a pod is not Ready": (
        lambda cluster: cluster.put(pod("web-1", "od-1", status=UNREADY)),
        Circumstances(at(10)),
        [],
    ),
    "a pod on a spot node gets an annotation": (
        lambda cluster: cluster.put(pod("db-3", "spot-1", annotations=UNSAFE)),
        Circumstances(at(10)),
        [],
    ),
    "a node gets a cooldown": (
        lambda _: None,
        Circumstances(at(10), cooling={"od-2": Cooldown("uid", 1, at(60))}),
        ["od-2"],
    ),
    "a node gets a veto": (lambda _: None, Circumstances(at(10), vetoes={"od-3": VETO}), ["od-3"]),
    "a pod starts": (
        lambda cluster: cluster.put(pod("new-1", "spot-2")),
        Circumstances(at(10)),
        list(ON_DEMAND_NODES),
    ),
    "a pod on a spot node is replaced by an equal one": (
        _replaced("db-3", "spot-1"),
        Circumstances(at(10)),
        [],
    ),
    "a pod is replaced by an equal one": (
        _replaced("web-1", "od-1"),
        Circumstances(at(10)),
        ["od-1"],
    ),
    "a pod is replaced by one that requests more": (
        _replaced("web-1", "od-1", cpu="2"),
        Circumstances(at(10)),
        list(ON_DEMAND_NODES),
    ),
    "a pod appears and disappears": (
        _starts_and_ends,
        Circumstances(at(10)),
        [],
    ),
    "a budget is created": (
        lambda cluster: cluster.put(budget("web", "web", allowed=1)),
        Circumstances(at(10)),
        list(ON_DEMAND_NODES),
    ),
    "the status of a budget changes": (
        lambda cluster: cluster.put(budget("db", "db", allowed=0)),
        Circumstances(at(10)),
        ["od-2", "od-3"],
    ),
    "the status of a budget without pods on on-demand nodes changes": (
        lambda cluster: cluster.put(budget("other", "other", allowed=0)),
        Circumstances(at(10)),
        [],
    ),
    "a pod cannot be decoded": (
        unreadable((Unreadable("Pod", "default/x", "Pod default/x: broken", "od-1"),)),
        Circumstances(at(10)),
        list(ON_DEMAND_NODES),
    ),
    "a pending pod appears": (
        lambda cluster: cluster.put(pod("new-1")),
        Circumstances(at(10)),
        list(ON_DEMAND_NODES),
    ),
}


@pytest.mark.parametrize(("change", "later", "again"), AGAIN.values(), ids=AGAIN)
def test_only_nodes_near_a_change_are_judged_again(
    change: Change, later: Circumstances, again: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(*THREE, budget("db", "db", allowed=1), budget("other", "other", allowed=1))
    planner, judged = Planner(cluster.snapshot, Policy()), Judged(monkeypatch)
    planner.plan_each(Circumstances(at(0)))
    assert sorted(judged.take()) == list(ON_DEMAND_NODES)
    change(cluster)
    planner.plan_each(later)
    assert sorted(judged.take()) == again


def _again(name: str, node_name: str, **fields: Any) -> Change:
    """Return a change: the pod is replaced by an equal one with the same name."""

    def change(cluster: ChangingCluster) -> None:
        manifest = pod(name, node_name, **fields)
        manifest["metadata"]["uid"] += "-again"
        cluster.put(manifest)

    return change


def _put(*manifests: dict[str, Any]) -> Change:
    def change(cluster: ChangingCluster) -> None:
        for manifest in manifests:
            cluster.put(manifest)

    return change


PAUSE: Final[dict[str, Any]] = {"cpu": "6", "priority": -5}
PAUSES: Final = (pod("pause-1", "spot-1", **PAUSE), pod("pause-2", "spot-2", **PAUSE))
LARGE: Final = pod("web-1", "od-1", cpu="3")
SHARED: Final[dict[str, Any]] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
SHARING: Final = (pod("a-1", "od-1", **SHARED), pod("b-1", "od-2", **SHARED), *claim("ReadWriteOnce"))
FAILED: Final = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no controller"}
WAITS: Final = budget("web", "web", allowed=0)
SURGED: Final = (deployment(), owned("web-1"))
TEMPLATE: Final = workload("ReplicaSet", container(cpu="1"), name="web", owners=DEPLOYMENT)
BLOCKED: Final = Policy(surge=Surging.BLOCKED)
#: What a budget says besides how many evictions it allows.
OF_BUDGETS: Final[dict[str, dict[str, Any]]] = {
    "it can never allow one": {"expected": 1},
    "another message of its controller": {"conditions": [FAILED]},
    "its status is outdated": {"meta": {"generation": 2}},
}
NEVER: Final[dict[str, Any]] = {"allowed": 0, "expected": 1}
#: What the text about a budget that never allows an eviction says besides.
TEXTS: Final[dict[str, dict[str, Any]]] = {
    "its rule": {"minAvailable": 1},
    "its Helm release": {"meta": {"annotations": {"meta.helm.sh/release-name": "shop"}}},
    "its label": {"meta": {"labels": {"app.kubernetes.io/managed-by": "argocd"}}},
    "its owner": {"meta": {"ownerReferences": [{"apiVersion": "a.io/v1", "kind": "Shop", "name": "s", "uid": "u"}]}},
}

#: What happens → the objects, the policy, and the change.
NAMED: Final[dict[str, tuple[tuple[dict[str, Any], ...], Policy, list[Change]]]] = {
    "pods that would be preempted are replaced": (
        (LARGE, *PAUSES),
        Policy(),
        [_replaced("pause-1", "spot-1", **PAUSE), _replaced("pause-2", "spot-2", **PAUSE)],
    ),
    "pods that would be preempted are replaced under their names": (
        (LARGE, *PAUSES),
        Policy(),
        [_again("pause-1", "spot-1", **PAUSE), _again("pause-2", "spot-2", **PAUSE)],
    ),
    "pods that yield to others are replaced": (
        (pod("web-1", "od-1", cpu="3", preemptionPolicy="Never"), *PAUSES),
        Policy(),
        [_replaced("pause-1", "spot-1", **PAUSE), _replaced("pause-2", "spot-2", **PAUSE)],
    ),
    "a pod that shares a volume is replaced": (SHARING, Policy(), [_replaced("b-1", "od-2", **SHARED)]),
    "an annotation says why a pod requests more than its template": (
        (TEMPLATE, pod("web-1", "od-1", cpu="7", generation=1)),
        Policy(),
        [_put(pod("web-1", "od-1", cpu="7", generation=1, annotations={"vpaUpdates": "by the autoscaler"}))],
    ),
    "a pod moves by a rolling update because of a condition": (
        (*SURGED, WAITS),
        BLOCKED,
        [_put(budget("web", "web", allowed=0, conditions=[FAILED], maxUnavailable=1))],
    ),
    "no pod moves by a rolling update because a condition ended": (
        (*SURGED, budget("web", "web", allowed=0, conditions=[FAILED], maxUnavailable=1)),
        BLOCKED,
        [_put(WAITS)],
    ),
    **{
        f"a budget changes: {what}": ((pod("web-1", "od-1"), WAITS), Policy(), [_put(budget("web", "web", **fields))])
        for what, fields in ((what, {"allowed": 0} | fields) for what, fields in OF_BUDGETS.items())
    },
    **{
        f"the text about a budget changes: {what}": (
            (pod("web-1", "od-1"), budget("web", "web", **NEVER)),
            Policy(),
            [_put(budget("web", "web", **NEVER, **fields))],
        )
        for what, fields in TEXTS.items()
    },
}


@pytest.mark.parametrize(("objects", "policy", "changed"), NAMED.values(), ids=NAMED)
def test_verdicts_follow_what_they_name(
    objects: tuple[dict[str, Any], ...], policy: Policy, changed: list[Change]
) -> None:
    cluster = cluster_of(*objects)
    planner = Planner(cluster.snapshot, policy)
    before = planner.plan_each(CIRCUMSTANCES), planner.first_plan(CIRCUMSTANCES)
    for change in changed:
        change(cluster)
    scratch = Planner(cluster.snapshot, policy)
    after = planner.plan_each(CIRCUMSTANCES), planner.first_plan(CIRCUMSTANCES)
    assert after == (scratch.plan_each(CIRCUMSTANCES), scratch.first_plan(CIRCUMSTANCES))
    assert after != before


def test_a_planning_is_the_same_object_while_nothing_changes() -> None:
    cluster = cluster_of(*THREE)
    planner = Planner(cluster.snapshot, Policy())
    early, late = Circumstances(at(0), vetoes={"od-3": VETO}), Circumstances(at(3600), vetoes={"od-3": VETO})
    assert planner.plan_each(early) is planner.plan_each(late)
    assert planner.first_plan(early) is planner.first_plan(late)


def test_a_pod_with_the_name_of_another_one_is_another_pod() -> None:
    cluster = cluster_of(*THREE)
    planner = Planner(cluster.snapshot, Policy())
    again = pod("web-1", "od-1")
    again["metadata"]["uid"] = "another"
    uids = [_moved(planner)]
    cluster.put(again)
    uids.append(_moved(planner))
    assert uids == ["uid-web-1", "another"]


def _moved(planner: Planner) -> str:
    """Return the UID of the pod that leaves od-1."""
    plans = {plan.node: plan for plan in planner.plan_each(Circumstances(at(0))).plans}
    [placement] = plans["od-1"].placements
    return placement.pod.uid


def _ends(manifest: dict[str, Any], seconds: float) -> tuple[dict[str, Any], datetime]:
    return manifest, at(seconds)


#: an object, and when the verdict on its node changes
DEADLINES: dict[str, tuple[dict[str, Any], datetime]] = {
    "a terminating pod becomes overdue": _ends(pod("web-1", "od-1", deleted=stamp(20)), 50.001),
    "an annotation of a pod expires": _ends(
        pod("web-1", "od-1", annotations={"spot-rescheduler/do-not-evict": "1m"}, status={"startTime": stamp(-30)}), 30
    ),
    "an annotation of Karpenter expires": _ends(
        pod("web-1", "od-1", annotations={"karpenter.sh/do-not-disrupt": "1m"}, status={"startTime": stamp(-30)}), 30
    ),
    "an annotation of a node expires": _ends(
        node("od-1", ON_DEMAND, annotations={"spot-rescheduler/do-not-drain": "1m"}, created=stamp(-30)), 30
    ),
}


@pytest.mark.parametrize(("manifest", "ends"), DEADLINES.values(), ids=DEADLINES)
def test_a_verdict_changes_with_the_time(manifest: dict[str, Any], ends: datetime) -> None:
    cluster = cluster_of(*THREE, manifest)
    planner = Planner(cluster.snapshot, Policy())
    first = planner.plan_each(Circumstances(at(0)))
    just_before = Circumstances(ends - (at(0.002) - at(0)))
    assert planner.plan_each(just_before) is first
    last = planner.plan_each(Circumstances(ends))
    assert last != first
    assert last == Planner(cluster.snapshot, Policy()).plan_each(Circumstances(ends))


def test_estimates_of_steps_follow_the_pods_of_the_budget() -> None:
    """The time until a replacement is Ready is that of other pods of the budget, on any node."""
    pods = [
        pod(f"web-{number}", "od-1", created=stamp(-400), status=_ready(-390), terminationGracePeriodSeconds=30)
        for number in range(2)
    ]
    slow: dict[str, Any] = {"created": stamp(-400), "terminationGracePeriodSeconds": 30}
    cluster = cluster_of(*pods, pod("web-9", "spot-1", status=_ready(-390), **slow), budget("web", "web", allowed=1))
    policy = Policy(budgets_in_steps=True, pod_eviction_timeout=120)
    planner = Planner(cluster.snapshot, policy)
    first = planner.plan_each(Circumstances(at(0)))
    cluster.put(pod("web-9", "spot-1", status=_ready(-200), **slow))
    second = planner.plan_each(Circumstances(at(0)))
    assert second == Planner(cluster.snapshot, policy).plan_each(Circumstances(at(0)))
    assert [verdict.blockers[0].reason for verdict in second.rejected] == [Reason.BUDGET_TOO_SLOW]
    assert first.rejected == ()


def _ready(seconds: float) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(seconds)}]}


def test_a_round_without_time_for_all_forecasts_is_continued_by_the_next() -> None:
    """Each node's pods return to on-demand nodes in the forecast; there is time for one forecast in a round."""
    taint = [{"key": "spot", "effect": "PreferNoSchedule"}]
    cluster = cluster_of(*THREE, *(node(name, cpu="6", taints=taint) for name in SPOT_NODES))
    planner = Planner(cluster.snapshot, Policy(planning_timeout=0))
    reasons = []
    for number in range(5):
        planning = planner.first_plan(Circumstances(at(10 * number)))
        reasons.append([str(verdict.reason) for verdict in planning.rejected])
    returns, late = "returns-to-on-demand", "planning-timeout"
    assert reasons == [
        [returns, late, late],
        [returns, returns, late],
        [returns, returns, returns],
        [returns, returns, returns],
        [returns, returns, returns],
    ]
    assert planner.first_plan(Circumstances(at(50))) is planner.first_plan(Circumstances(at(60)))


def test_a_verdict_follows_the_annotation_that_allows_an_eviction_to_others_than_its_responders() -> None:
    """The pod may be evicted in both cases, but in one of them only by an EvictionRequest."""
    cluster = ChangingCluster()
    fields: dict[str, Any] = {"evictionResponders": [{"name": "acme.io/migrator"}], "cpu": "10m"}
    planner = Planner(cluster.snapshot, Policy(eviction_requests=True))
    for annotations in ({}, {SAFE_TO_EVICT: "true"}, {}):
        cluster.put(pod("web-0", "od-1", annotations=annotations, **fields))
        plans = {plan.node: plan for plan in planner.plan_each(CIRCUMSTANCES).plans}
        assert [placement.responders for placement in plans["od-1"].placements] == [not annotations]
