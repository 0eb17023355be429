"""Nothing about plain pods is judged for each pod: a node's verdict is the same as if all of its pods were judged."""

import itertools
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.objects import Pod
from rescheduler.planning.forms import instant
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.plain_pods import PlainPods
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, MoveJobs, Now, Policy, Surging, namespace_scope
from rescheduler.planning.rules.declared import Facts, Rule, RuleResult, pod_rule, timed_rule
from rescheduler.planning.rules.pod_rules import RULES
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, budget, node, pod, repels, snapshot
from tests.planning.rules.test_volumes import RWO, SHARED, claim
from tests.planning.test_quotas import quota
from tests.planning.test_replacements import LIMITS, container, vpa, workload

#: The kinds of owners. What all pods of an app share is its owner and its template.
KINDS: Final = ("apps/v1/ReplicaSet", "apps/v1/StatefulSet", "batch/v1/Job", "argoproj.io/v1alpha1/Workflow", "")
#: What a pod may have of its own, by which it is not like the other pods of its owner.
OWN: Final[tuple[Manifest, ...]] = (
    {},
    {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    {"annotations": {"spot-rescheduler/surge": "true"}},
    {"annotations": {"karpenter.sh/disruption-cost": "5"}},
    {"annotations": {"karpenter.sh/disruption-cost": "5", "karpenter.sh/do-not-disrupt": "true"}},
    {"annotations": {"spot-rescheduler/min-on-demand-replicas": "1"}},
    {"annotations": {"kubernetes.io/config.mirror": "hash"}},
    {"deleted": True},
    {"generation": 2, "cpu": "700m"},
    {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    {"status": {"phase": "Pending"}},
)
#: What all pods of an app have in common.
COMMON: Final[tuple[Manifest, ...]] = (
    {},
    SHARED,
    {"volumes": [{"name": "scratch", "emptyDir": {}}]},
    {"volumes": [{"name": "secrets", "csi": {"driver": "secrets.example.com"}}]},
    {"nodeSelector": {"disk": "fast"}},
    {"affinity": repels("web")},
    {"schedulerName": "other"},
    {"restartPolicy": "Never"},
    {"priority": -11},
    {"evictionResponders": [{"name": "acme.io/migrator"}]},
    {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    {"labels": {"app": "web", "autoscaling.cast.ai/removal-disabled": "true"}},
)
DELETING: Final = {"deletionTimestamp": "2026-01-01T11:59:00Z"}
#: Objects beside the pods.
OBJECTS: Final[dict[str, Manifest]] = {
    "a ReplicaSet that asks for more": workload("ReplicaSet", container(cpu="2"), name="web", spec={"replicas": 3}),
    "a ReplicaSet that is being deleted": workload("ReplicaSet", container(cpu="1"), name="db")
    | {"metadata": {"name": "db", "namespace": "default", "uid": "uid-of-db"} | DELETING},
    "a template with a node": workload("ReplicaSet", container(cpu="1"), name="job", template={"nodeName": "od"}),
    "a StatefulSet": workload("StatefulSet", container(cpu="1"), name="web", spec={"replicas": 2}),
    "a Job": workload("Job", container(cpu="1"), name="job", spec={"backoffLimit": 0}),
    "a VerticalPodAutoscaler": vpa({"cpu": "3"}),
    "limits": LIMITS,
    "a quota": quota({"pods": "4"}, {"pods": "3"}),
    "a namespace with Pod Security admission": {
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    },
    "a budget": budget("web", "web", allowed=1, healthy=3, desired=2, expected=3),
    "a budget that allows nothing": budget("all", "", allowed=0, selector={}, healthy=1, desired=1),
}
POLICIES: Final = st.builds(
    Policy,
    judge_controllers=st.booleans(),
    budgets_in_steps=st.booleans(),
    skip_single_replicas=st.booleans(),
    delete_non_replicated_pods=st.booleans(),
    skip_nodes_with_custom_controller_pods=st.booleans(),
    skip_nodes_with_local_storage=st.booleans(),
    move_jobs=st.sampled_from(MoveJobs),
    surge=st.sampled_from(Surging),
    namespaces=st.sampled_from((namespace_scope((), (), ""), namespace_scope((), ("other",), ""))),
    planning_timeout=st.just(1000.0),
)


@st.composite
def clusters(draw: st.DrawFn) -> list[Manifest]:
    """Return nodes, apps with pods on the two on-demand nodes, and objects of their owners and their namespace."""
    objects = [node("od", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="8"), node("t", cpu="8", zone="b")]
    for app in ("web", "db", "job"):
        kind, common = draw(st.sampled_from(KINDS)), draw(st.sampled_from(({}, {}, *COMMON)))
        for number in range(draw(st.integers(0, 3))):
            fields: dict[str, Any] = {"cpu": "500m"} | common | draw(st.sampled_from(({}, *OWN)))
            objects.append(pod(f"{app}-{number}", draw(st.sampled_from(("od", "od-2"))), owner=kind or None, **fields))
    named = draw(st.lists(st.sampled_from(sorted(OBJECTS)), unique=True, max_size=4))
    return [*objects, *claim(RWO), *(OBJECTS[name] for name in named)]


def judge_all(_: PlainPods, pods: Iterable[Pod]) -> list[Pod]:
    return list(pods)


def assert_same_verdicts(objects: list[Manifest], policy: Policy) -> None:
    """Assert that the verdicts are the same as if each pod was judged."""
    planner = Planner(snapshot(objects), policy)
    ours = planner.plan_each(CIRCUMSTANCES), planner.plan_all(CIRCUMSTANCES), planner.first_plan(CIRCUMSTANCES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainPods, "others", judge_all)
        other = Planner(snapshot(objects), policy)
        assert ours[0] == other.plan_each(CIRCUMSTANCES)
        assert ours[1] == other.plan_all(CIRCUMSTANCES)
        assert ours[2] == other.first_plan(CIRCUMSTANCES)


@settings(max_examples=200)
@given(clusters(), POLICIES)
def test_verdicts_are_the_same_as_if_each_pod_was_judged(objects: list[Manifest], policy: Policy) -> None:
    assert_same_verdicts(objects, policy)


@pytest.mark.parametrize("kind", KINDS)
def test_one_pod_that_differs_beside_others(kind: str) -> None:
    """The second node has pods of the same app that do not differ."""
    nodes = [node("od", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="8"), *claim(RWO)]
    for common, own in itertools.product(COMMON, OWN):
        pods = [pod(f"web-{number}", "od", owner=kind or None, **common) for number in (1, 2)]
        differing = pod("web-0", "od", owner=kind or None, **common | own)
        others = [pod("web-3", "od-2", owner=kind or None, **common), pod("db-0", "od-2")]
        for policy in (Policy(judge_controllers=True), Policy(surge=Surging.BLOCKED)):
            assert_same_verdicts([*nodes, *pods, differing, *others], policy)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_concerns_one_app(name: str, kind: str) -> None:
    nodes = [node("od", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="8")]
    apps = ("web", "db", "job")
    pods = [pod(f"{app}-{number}", on, owner=kind or None) for app in apps for number, on in enumerate(("od", "od-2"))]
    assert_same_verdicts([*nodes, *pods, OBJECTS[name]], Policy(judge_controllers=True))


#: What one of three pods has → how many of them are not plain
COUNTS: Final[dict[str, tuple[Manifest, int]]] = {
    "all are alike": ({}, 0),
    "an annotation": ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, 1),
    "what its move costs": ({"annotations": {"karpenter.sh/disruption-cost": "5"}}, 0),
    "no controller": ({"owner": None}, 1),
    "a custom controller": ({"owner": "argoproj.io/v1alpha1/Workflow"}, 1),
    "a StatefulSet": ({"owner": "apps/v1/StatefulSet"}, 1),
    "a local volume": ({"volumes": [{"name": "scratch", "emptyDir": {}}]}, 1),
    "its node is the only one it accepts": ({"nodeSelector": {"disk": "fast"}}, 1),
}


@pytest.mark.parametrize("case", COUNTS)
def test_only_pods_that_something_concerns_are_judged_by_themselves(case: str) -> None:
    fields, count = COUNTS[case]
    pods = [pod("web-0", "od", **fields), pod("web-1", "od"), pod("web-2", "od")]
    cluster = snapshot([node("od", ON_DEMAND), node("s"), *pods])
    shared = Planner(cluster, Policy()).round(CIRCUMSTANCES)
    assert len(shared.plain.others(cluster.pods.values())) == count


@pod_rule(Reason.DO_NOT_EVICT)
def _odd(pod: Pod, _: Facts) -> RuleResult:
    """Keep the pods with odd numbers."""
    return Blocker(Reason.DO_NOT_EVICT, "odd") if int(pod.name[-1]) % 2 else None


@timed_rule(Reason.DO_NOT_EVICT)
def _young(pod: Pod, _: Facts, now: Now) -> RuleResult:
    created = instant(pod.creation_timestamp)
    old = created is None or now.reached(created + timedelta(hours=1))
    return None if old else Blocker(Reason.DO_NOT_EVICT, "young")


@pytest.mark.parametrize("rule", [_odd, _young], ids=["pod", "time"])
def test_a_rule_without_conditions_is_evaluated_for_each_pod_and_only_its_pods_are_judged(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rescheduler.planning.planning_round.RULES", (*RULES, rule))
    pods = [pod(f"web-{number}", "od", created=f"2026-01-01T1{number}:30:00Z") for number in (0, 1)]
    objects = [node("od", ON_DEMAND), node("s"), *pods]
    planner = Planner(snapshot(objects), Policy())
    shared = planner.round(CIRCUMSTANCES)
    assert [each.name for each in shared.plain.others(shared.snapshot.pods.values())] == ["web-1"]
    [rejected] = planner.plan_each(CIRCUMSTANCES).rejected
    assert [blocker.pod for blocker in rejected.blockers] == ["default/web-1"]
    assert_same_verdicts(objects, Policy())
    later = Circumstances(NOW + timedelta(hours=1))
    assert len(planner.plan_each(later).plans) == (rule is _young)
