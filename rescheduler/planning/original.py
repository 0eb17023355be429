"""Which nodes stay for guards that k8s-spot-rescheduler does not have."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, MoveJobs, Policy

#: Reasons of guards that k8s-spot-rescheduler does not have.
GUARDS: Final = frozenset(
    {
        Reason.LOCAL_STORAGE,
        Reason.KUBE_SYSTEM,
        Reason.OTHER_SCHEDULER,
        Reason.JOB_WOULD_FAIL,
        Reason.FRAGILE,
        Reason.RETURNS_TO_ON_DEMAND,
    }
)


def original_policy(policy: Policy) -> Policy:
    """*policy* with the guards of k8s-spot-rescheduler only. Evictions still respect PodDisruptionBudgets."""
    return replace(
        policy,
        skip_nodes_with_local_storage=False,
        skip_nodes_with_system_pods=False,
        allow_fragile_plans=True,
        allow_returning_plans=True,
        move_jobs=MoveJobs.ALWAYS,
        scheduler_names=(),
    )


def kept_by_guards(snapshot: Snapshot, policy: Policy, circumstances: Circumstances) -> Mapping[Reason, int]:
    """How many nodes stay that k8s-spot-rescheduler would drain, by the first guard that keeps them.

    Each node is judged by itself, as :meth:`~rescheduler.planning.planner.Planner.first_plan` does.
    """
    theirs = original_policy(policy)
    if theirs == policy:
        return {}
    ours, original = Planner(snapshot, policy), Planner(snapshot, theirs)
    drained = [plan.node for plan in original.plan_each(circumstances).plans if plan.placements]
    guards = (_guard(ours.look_again(node, circumstances)) for node in drained)
    return Counter(guard for guard in guards if guard is not None)


def _guard(verdict: Verdict) -> Reason | None:
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    return next((blocker.reason for blocker in blockers if blocker.reason in GUARDS), None)
