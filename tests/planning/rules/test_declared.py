"""Rules are right wherever they are used because of their declaration: alone, in pairs, and when one is added."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.objects import Node, Pod, PodClass
from predicates.objects.pods import DO_NOT_DISRUPT
from rescheduler.planning import planning_round
from rescheduler.planning.examined import Examined, NodeAndPods
from rescheduler.planning.forms import instant
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Circumstances, MoveJobs, Now, Policy, namespace_scope
from rescheduler.planning.question import Attempt
from rescheduler.planning.rules import declared
from rescheduler.planning.rules.declared import (
    Facts,
    Fate,
    Kind,
    NodeContext,
    PodRules,
    Rule,
    RuleResult,
    class_rule,
    drain_rule,
    node_rule,
    plan_rule,
    pod_rule,
    timed_node_rule,
    timed_rule,
)
from rescheduler.planning.rules.lifts import removing
from rescheduler.planning.rules.pod_rules import LIQO_COMPONENT, RULES
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT
from rescheduler.planning.what_if.levers import rank_levers
from tests.planning.builders import ON_DEMAND, Manifest, node, pod, snapshot
from tests.planning.changing import ON_DEMAND_NODES, Change, ChangingCluster, at, clock_steps, stamp
from tests.proxy.planning import POLICY

#: All rules apply under it.
STRICT = Policy(
    skip_single_replicas=True,
    judge_controllers=True,
    skip_nodes_with_custom_controller_pods=True,
    move_jobs=MoveJobs.NEVER,
    namespaces=namespace_scope((), (), "team!=none"),
    planning_timeout=1000.0,  # no forecast is left out
)

#: The fields that all pods of one history have: they are of one class, or of two if some of them terminate.
CLASSES: dict[str, Manifest] = {
    "plain": {},
    "a workflow with a volume": {"restartPolicy": "Never", "volumes": [{"name": "scratch", "emptyDir": {}}]},
    "of another scheduler": {"schedulerName": "volcano"},
    "labeled": {"labels": {"app": "web", "spotinst.io/restrict-scale-down": "true"}},
    "expendable": {"priority": -11},
    "with a long grace period": {"terminationGracePeriodSeconds": 3600},
    "with a responder": {"evictionResponders": [{"name": "acme.io/migrator"}]},
    "of Liqo": {"labels": {"app": "web", LIQO_COMPONENT: "virtual-kubelet"}},
}
NAMESPACES = ("default", "kube-system")
OWNERS = ("apps/v1/ReplicaSet", "batch/v1/Job", "argoproj.io/v1alpha1/Workflow", "apps/v1/DaemonSet", None)
PERIODS = ("true", "false", "1m", "20s", "6m", "nonsense")
KEYS = (
    SAFE_TO_EVICT,
    DO_NOT_DISRUPT,
    "spot-rescheduler/do-not-evict",
    "autoscaling.cast.ai/removal-disabled",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
    "kubernetes.io/config.mirror",
)


@st.composite
def puts(draw: st.DrawFn, namespace: str, fields: Manifest, keys: Collection[str]) -> Change:
    """Return a change that creates a pod, or replaces it by another pod of the same class.

    Its annotations are often some of *keys*.
    """
    annotations = st.dictionaries(
        st.sampled_from((*KEYS, *sorted(keys) * 9)), st.sampled_from((*PERIODS, "scratch")), max_size=2
    )
    owner, seconds = draw(st.sampled_from(OWNERS)), draw(st.sampled_from((-400.0, -55.0, -10.0)))
    more: Manifest = {"deleted": stamp(draw(st.sampled_from((-40.0, -10.0, 20.0))))} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        more = {}
    manifest = pod(
        f"{namespace}/web-{draw(st.integers(0, 4))}",
        draw(st.sampled_from(ON_DEMAND_NODES)),
        cpu="10m",
        owner=owner,
        annotations=draw(annotations),
        created=stamp(seconds),
        **{key: dict(value) if isinstance(value, dict) else value for key, value in fields.items()},
        **more,
    )
    manifest["metadata"]["uid"] += draw(st.sampled_from(("", "-again")))
    return lambda cluster: cluster.put(manifest)


@st.composite
def histories(draw: st.DrawFn, keys: Collection[str] = ()) -> list[tuple[list[Change], float]]:
    """Return rounds: changes of pods of one class, and a step of the clock."""
    change = puts(draw(st.sampled_from(NAMESPACES)), draw(st.sampled_from(list(CLASSES.values()))), keys)
    first = draw(st.lists(change, min_size=5, max_size=8))
    rounds = draw(st.lists(st.tuples(st.lists(change, max_size=1), clock_steps), min_size=2, max_size=4))
    return [(first, 0.0), *rounds]


class Independent(PodRules):
    """Rules that are evaluated for each pod by itself: by its declaration a rule is neither skipped nor reused."""

    def fate(self, pod: Pod) -> Fate | Blocker:
        return next((result for result in self._results(pod) if result is not None), Fate.MOVES)

    def blockers(self, pod: Pod) -> tuple[Blocker, ...]:
        results: list[Blocker] = []
        for result in self._results(pod):
            if isinstance(result, Fate) or (results and pod.cls.terminating):
                break
            results += [] if result is None else [result]
        return tuple(results)

    def _results(self, pod: Pod) -> Iterator[RuleResult]:
        for rule in self.enabled:
            if rule.when is not None and not rule.when(pod.cls):
                continue
            if rule.owned is not None and not rule.owned(pod.owner):
                continue
            inputs: dict[str, Any] = {
                "PodClass": pod.cls,
                "Policy": self.facts.policy,
                "Pod": pod,
                "Facts": self.facts,
                "Now": self.now,
            }
            result: RuleResult = rule.function(*(inputs[kind] for kind in rule.kind.value))
            assert not isinstance(result, Blocker) or result.reason in rule.reasons, rule.name
            yield replace(result, pod=pod.key) if isinstance(result, Blocker) else result


def independent(rules: tuple[Rule, ...], facts: Facts, now: Now) -> PodRules:
    made = declared.pod_rules(rules, facts, now)
    return Independent(made.facts, made.now, made.enabled)


@contextmanager
def applied(rules: tuple[Rule, ...], *, reuse: bool = True) -> Iterator[None]:
    """Plan with *rules* only. Without *reuse*, each result is computed for each pod by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning_round, "RULES", rules)
        if not reuse:
            patch.setattr(planning_round, "pod_rules", independent)
        yield


def assert_same_rounds(history: list[tuple[list[Change], float]], rules: tuple[Rule, ...]) -> None:
    cluster = ChangingCluster()
    reusing, seconds = Planner(cluster.snapshot, STRICT), 0.0
    for changes, step in history:
        for change in changes:
            change(cluster)
        seconds += step
        now = Circumstances(at(seconds))
        with applied(rules):
            ours: Planning = reusing.plan_each(now)
            first = reusing.first_plan(now)
        with applied(rules, reuse=False):
            assert ours == Planner(cluster.snapshot, STRICT).plan_each(now)
            assert first == Planner(cluster.snapshot, STRICT).first_plan(now)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_alone_equals_a_planner_that_reuses_nothing(rule: Rule) -> None:
    @settings(max_examples=20)
    @given(histories(rule.annotations))
    def run(history: list[tuple[list[Change], float]]) -> None:
        assert_same_rounds(history, (rule,))

    run()


@pytest.mark.slow
@pytest.mark.parametrize("first", RULES, ids=[rule.name for rule in RULES])
def test_a_rule_with_each_other_one_equals_a_planner_that_reuses_nothing(first: Rule) -> None:
    @settings(max_examples=2)
    @given(histories(first.annotations))
    def run(history: list[tuple[list[Change], float]]) -> None:
        for other in RULES[RULES.index(first) + 1 :]:
            assert_same_rounds(history, (first, other))

    run()


@settings(max_examples=60)
@given(histories())
def test_all_rules_together_equal_a_planner_that_reuses_nothing(history: list[tuple[list[Change], float]]) -> None:
    assert_same_rounds(history, RULES)


#: Rules that somebody adds. Pods older than an hour, and those named "old", move.
@class_rule(Reason.FRAGILE)
def _by_label(cls: PodClass, _: Policy) -> RuleResult:
    return Blocker(Reason.FRAGILE, "it is young") if cls.labels.get("age") == "young" else None


@pod_rule(Reason.FRAGILE)
def _by_name(pod: Pod, _: Facts) -> RuleResult:
    return None if pod.name.startswith("old") else Blocker(Reason.FRAGILE, "it is young")


@timed_rule(Reason.FRAGILE)
def _by_age(pod: Pod, _: Facts, now: Now) -> RuleResult:
    created = instant(pod.creation_timestamp)
    if created is None or now.reached(created + timedelta(hours=1)):
        return None
    return Blocker(Reason.FRAGILE, "it is young")


@pod_rule(Reason.FRAGILE, owned=lambda owner: owner is not None and owner.name == "young")
def _by_owner(_: Pod, __: Facts) -> RuleResult:
    return Blocker(Reason.FRAGILE, "it is young")


ADDED: dict[str, tuple[Rule, Manifest, Manifest]] = {
    "a rule about owners": (_by_owner, {}, {}),
    "a rule about classes": (_by_label, {"labels": {"age": "young"}}, {}),
    "a rule about pods": (_by_name, {}, {}),
    "a rule about the age of pods": (_by_age, {"created": stamp(-60)}, {"created": stamp(-7200)}),
}


@pytest.mark.parametrize("case", ADDED)
@pytest.mark.parametrize("annotations", [{}, {"spot-rescheduler/x": "y"}], ids=["", "annotated"])
def test_a_rule_that_is_added_applies_everywhere(case: str, annotations: dict[str, str]) -> None:
    """The pods of both nodes are of one class, unless the rule is about classes."""
    rule, young, old = ADDED[case]
    labels: Manifest = {"labels": {"app": "a"}}
    pods = [
        pod("old-1", "v", annotations=annotations, **(labels | old)),
        pod("young-1", "u", annotations=annotations, **(labels | young)),
    ]
    cluster = snapshot([node("v", ON_DEMAND), node("u", ON_DEMAND), node("w", cpu="64"), *pods])
    circumstances, blocked = Circumstances(at(0)), Blocker(Reason.FRAGILE, "it is young", "default/young-1")
    with applied((*RULES, rule)):
        planner = Planner(cluster, Policy())
        for planning in (
            planner.plan_all(circumstances),
            planner.plan_each(circumstances),
            planner.plan_each(circumstances),
        ):
            assert [plan.node for plan in planning.plans] == ["v"]
            assert [verdict.blockers for verdict in planning.rejected] == [(blocked,)]
        assert planner.explain(cluster.pods["default/young-1"], circumstances).blockers == (blocked,)
        assert planner.explain(cluster.pods["default/old-1"], circumstances).blockers == ()
        assert isinstance(planner.look_again("u", circumstances), Rejected)
        assert isinstance(planner.follow("u", circumstances, ()), Rejected)
        assert [plan.node for plan in planner.first_plan(circumstances).plans] == ["v"]
        proxy = Planner(cluster, POLICY)
        assert [isinstance(proxy.look_again(name, circumstances), Plan) for name in ("v", "u")] == [True, False]
        planning = planner.plan_all(circumstances)
        assert rank_levers(planning, planner.round(circumstances), PriceList(), lambda: False).levers == ()


def test_an_added_rule_with_a_time_is_looked_at_again_when_it_ends() -> None:
    cluster = snapshot([node("v", ON_DEMAND), node("w"), pod("a-1", "v", created=stamp(-3500))])
    with applied((*RULES, _by_age)):
        planner = Planner(cluster, Policy())
        results = [len(planner.plan_each(Circumstances(at(seconds))).plans) for seconds in (0, 99, 100, 101)]
    assert results == [0, 0, 1, 1]


def reads_the_pod(pod: Pod, _: Policy) -> RuleResult:
    """A class rule that wants the pod."""


def reads_the_time(pod: Pod, _: Facts, now: Now) -> RuleResult:
    """A pod rule that wants the time."""


def reads_anything(pod, facts):  # type: ignore[no-untyped-def]
    """A rule that does not say what it reads."""


def reads_the_time_of_nodes(node: Node, _: NodeContext, now: Now) -> Blocker | None:
    """A node rule that wants the time."""


def finds_in_a_generator(subject: NodeAndPods, _: PlanningRound) -> Iterable[Blocker]:
    """A drain rule whose reason stands in a generator."""
    return (Blocker(Reason.FRAGILE, "", pod.key) for pod in subject.movers)


def reads_the_plans(_: Examined, __: Attempt) -> Iterable[Blocker]:
    """A drain rule that wants the plans made before."""
    return ()


FRAGILE: Final = "a constant with the name of a reason"


def finds_a_reason_named_like_a_constant(_: Pod, __: Facts) -> RuleResult:
    """A pod rule whose module has a constant of this name."""
    return Blocker(Reason.FRAGILE, FRAGILE)


NOT_LOADED: dict[str, Any] = {
    "a rule without parentheses": (
        lambda: pod_rule(cast("Any", reads_the_time)),
        "is not a Reason; a rule is declared",
    ),
    "a reason that is not declared, with a constant of its name": (
        lambda: pod_rule()(finds_a_reason_named_like_a_constant),
        "finds Reason.FRAGILE; add it to the reasons that it declares",
    ),
    "a class rule that reads the pod": (lambda: class_rule()(cast("Any", reads_the_pod)), "gets (Pod, Policy)"),
    "a pod rule that reads the time": (lambda: pod_rule()(cast("Any", reads_the_time)), "gets (Pod, Facts, Now)"),
    "a rule without types": (lambda: pod_rule()(cast("Any", reads_anything)), "gets ()"),
    "a node rule that reads the time": (lambda: node_rule()(cast("Any", reads_the_time_of_nodes)), "gets (Node"),
    "a timed node rule about pods": (lambda: timed_node_rule()(cast("Any", reads_the_time)), "gets (Pod"),
    "an annotation that is dropped": (
        lambda: pod_rule(Reason.FRAGILE, annotations=["example.com/key"])(_by_name.function),
        "rule _by_name reads the annotation example.com/key; add it to POD_ANNOTATIONS",
    ),
    "an annotation that nothing lifts": (
        lambda: pod_rule(Reason.FRAGILE, annotations=[SAFE_TO_EVICT])(_by_name.function),
        "rule _by_name reads an annotation; add what lifts Reason.FRAGILE: lifted_by",
    ),
    "a remedy for another reason": (
        lambda: pod_rule(Reason.FRAGILE, lifted_by={Reason.TIMEOUT: removing("x")})(_by_name.function),
        "rule _by_name says what lifts Reason.TIMEOUT, which it does not declare",
    ),
    "a reason that is not declared": (
        lambda: pod_rule(Reason.TIMEOUT)(_by_name.function),
        "rule _by_name finds Reason.FRAGILE; add it to the reasons that it declares",
    ),
    "a reason that is not declared, in a generator": (
        lambda: drain_rule()(cast("Any", finds_in_a_generator)),
        "rule finds_in_a_generator finds Reason.FRAGILE; add it to the reasons that it declares",
    ),
    "a drain rule that reads the plans": (
        lambda: drain_rule()(cast("Any", reads_the_plans)),
        "gets (Examined, Attempt); a rule of its kind gets (NodeAndPods, PlanningRound)",
    ),
    "a plan rule about pods": (lambda: plan_rule()(cast("Any", reads_the_time)), "gets (Pod, Facts, Now)"),
}


@pytest.mark.parametrize("case", NOT_LOADED)
def test_a_rule_that_reads_what_its_kind_may_not_read_does_not_load(case: str) -> None:
    declare, message = NOT_LOADED[case]
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        declare()


def test_a_rule_in_a_module_whose_rules_nobody_applies_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_the_time, "__module__", "rescheduler.planning.rules.pod_traits")
    with pytest.raises(TypeError, match=re.escape("is declared in rescheduler.planning.rules.pod_traits")):
        timed_rule()(cast("Any", reads_the_time))


def test_each_kind_is_declared_by_one_function() -> None:
    assert {rule.kind for rule in RULES} == {Kind.CLASS, Kind.POD, Kind.TIMED}
