"""``explain`` of a pod names what keeps it on its node, as ``plan`` does: both read one table of rules."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.objects import Unreadable
from predicates.snapshot import Snapshot
from rescheduler.planning.examined import examine
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, MoveJobs, Policy
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, snapshot
from tests.planning.changing import ON_DEMAND_NODES, Change, ChangingCluster, changes, first_pods
from tests.planning.policies import circumstances, policies
from tests.planning.rules.test_volumes import SHARED, claim
from tests.planning.test_quotas import quota
from tests.proxy.test_every_rule import OTHERS, PODS

WEB: list[Manifest] = [node("od", ON_DEMAND), node("s-1"), pod("web-1", "od"), pod("web-2", "od")]
#: Both pods use the volume, which only one spot node can attach.
SHARING: list[Manifest] = [
    node("od", ON_DEMAND),
    node("s-1"),
    *(pod(f"web-{number}", "od", **SHARED) for number in (1, 2)),
    *claim("ReadWriteOnce"),
]
STEPS = Policy(budgets_in_steps=True)


def missing(kind: str, key: str, on: str | None = None) -> tuple[Unreadable, ...]:
    return (Unreadable(kind, key, f"{kind} {key}: broken", on),)


#: The cluster, the policy, what cannot be decoded, and the reasons of plan and of explain for each pod.
CASES: dict[str, tuple[list[Manifest], Policy, tuple[Unreadable, ...], set[Reason]]] = {
    "nothing": (WEB, Policy(), (), set()),
    "a budget that cannot be decoded": (
        WEB, Policy(), missing("PodDisruptionBudget", "default/web"), {Reason.UNREADABLE_OBJECT},
    ),
    "a budget of another namespace": (WEB, Policy(), missing("PodDisruptionBudget", "shop/web"), set()),
    "a budget whose namespace is not known": (
        WEB, Policy(), missing("PodDisruptionBudget", ""), {Reason.UNREADABLE_OBJECT},
    ),
    "a claim that cannot be decoded": (
        WEB, Policy(), missing("PersistentVolumeClaim", "default/c"), {Reason.UNREADABLE_OBJECT},
    ),
    "a pod of the node that cannot be decoded": (
        WEB, Policy(), missing("Pod", "shop/x", "od"), {Reason.UNREADABLE_OBJECT},
    ),
    "a pod of another node that cannot be decoded": (WEB, Policy(), missing("Pod", "shop/x", "od-2"), set()),
    "a pod of an unknown node that cannot be decoded": (
        WEB, Policy(), missing("Pod", "shop/x"), {Reason.UNREADABLE_OBJECT},
    ),
    "pods that share a volume leave together": (SHARING, STEPS, (), set()),
    "a budget allows only one of the pods that share a volume": (
        [*SHARING, budget("web", "web", allowed=1)], STEPS, (), {Reason.BUDGET},
    ),
    "a budget allows both of the pods that share a volume": (
        [*SHARING, budget("web", "web", allowed=2)], STEPS, (), set(),
    ),
    "a pod on another node uses the volume": (
        [*SHARING, node("s-2"), pod("db-1", "s-2", **SHARED)], STEPS, (), {Reason.SHARED_VOLUME},
    ),
    "no quota for the replacement of either": (
        [*WEB, quota({"pods": "1"}, {"pods": "3"})], Policy(), (), {Reason.QUOTA_EXCEEDED},
    ),
    "Jobs stay": (
        [*WEB[:2], pod("job-1", "od", owner="Job")], Policy(move_jobs=MoveJobs.NEVER), (), {Reason.JOB_WOULD_FAIL},
    ),
}  # fmt: skip


def explained(planner: Planner, cluster: Snapshot, key: str, now: Circumstances = CIRCUMSTANCES) -> list[Blocker]:
    return list(planner.explain(cluster.pods[key], now).blockers)


@pytest.mark.parametrize(("objects", "policy", "unreadable", "expected"), CASES.values(), ids=CASES)
def test_explain_of_a_pod_has_the_reasons_of_the_plan(
    objects: list[Manifest], policy: Policy, unreadable: tuple[Unreadable, ...], expected: set[Reason]
) -> None:
    cluster = snapshot(objects)
    cluster.unreadable = unreadable
    planner = Planner(cluster, policy)
    [verdict] = planner.plan_each(CIRCUMSTANCES).verdicts
    of_plan = {blocker.reason for blocker in getattr(verdict, "blockers", ())}
    of_pods = [{blocker.reason for blocker in explained(planner, cluster, key)} for key in cluster.pods_on["od"]]
    assert [of_plan, *of_pods] == [expected] * (1 + len(of_pods))


@pytest.mark.parametrize("case", [*PODS, *OTHERS])
def test_explain_has_what_the_rules_find_for_a_pod(case: tuple[str, str]) -> None:
    cluster = snapshot([*(PODS | OTHERS)[case][0], node("w", cpu="64")])
    assert_all_explained(Planner(cluster, Policy()), cluster, "v")


def assert_all_explained(planner: Planner, cluster: Snapshot, name: str, now: Circumstances = CIRCUMSTANCES) -> None:
    """Check that explain has each blocker of the node *name* that names a pod, and what cannot be decoded."""
    found = examine(name, planner.round(now))
    for blocker in found.blockers:
        if blocker.pod in cluster.pods_on[name]:
            assert blocker in explained(planner, cluster, blocker.pod, now)
        elif blocker.reason is Reason.UNREADABLE_OBJECT:
            assert all(blocker in explained(planner, cluster, each.key, now) for each in found.candidate.movers)


@settings(max_examples=150)
@given(first_pods, st.lists(changes, max_size=6), policies, circumstances)
def test_explain_has_what_the_rules_find_on_random_clusters(
    pods: list[Change], changed: list[Change], policy: Policy, fields: dict[str, Any]
) -> None:
    cluster = ChangingCluster()
    for change in (*pods, *changed):
        change(cluster)
    planner, now = Planner(cluster.snapshot, policy), replace(CIRCUMSTANCES, **fields)
    for name in ON_DEMAND_NODES:
        if name in cluster.snapshot.nodes.row:
            assert_all_explained(planner, cluster.snapshot, name, now)


def test_a_pod_whose_node_is_not_known_is_explained() -> None:
    cluster = snapshot([*SHARING[1:], node("od-2", ON_DEMAND)])
    assert {blocker.reason for blocker in explained(Planner(cluster, STEPS), cluster, "default/web-1")} <= {
        Reason.SHARED_VOLUME
    }
