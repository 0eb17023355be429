"""Which nodes are kept because of guards that k8s-spot-rescheduler does not have."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict
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
    """Return *policy* with only the guards of k8s-spot-rescheduler. Evictions still respect PodDisruptionBudgets."""
    return replace(
        policy,
        skip_nodes_with_local_storage=False,
        skip_nodes_with_system_pods=False,
        allow_fragile_plans=True,
        allow_returning_plans=True,
        move_jobs=MoveJobs.ALWAYS,
        scheduler_names=(),
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The nodes that are kept because of guards that k8s-spot-rescheduler does not have."""

    nodes: Mapping[Reason, int]  #: by the first guard that keeps them
    complete: bool  #: False if not all nodes were judged, so that there may be more


def kept_by_guards(
    snapshot: Snapshot, policy: Policy, circumstances: Circumstances, time_is_up: Callable[[], bool]
) -> Kept:
    """Return the nodes that are kept although k8s-spot-rescheduler would drain them.

    All nodes are judged by their pods first. Forecasts take about a hundred times as long, so they come last.
    *time_is_up* is called before each step; once it returns True, the result contains the nodes found so far.
    """
    original = original_policy(policy)
    if original == policy:
        return Kept({}, complete=True)
    kept: Counter[Reason] = Counter()
    for guard in _judged(Planner(snapshot, policy), Planner(snapshot, original), circumstances):
        if time_is_up():
            return Kept(kept, complete=False)
        if guard is not None:
            kept[guard] += 1
    return Kept(kept, complete=True)


def _judged(current: Planner, original: Planner, circumstances: Circumstances) -> Iterator[Reason | None]:
    """Yield, step by step, the guard that keeps one more node, or None if the step found none."""
    plans: list[Plan] = []
    for node in current.on_demand(circumstances):
        verdict = current.plan_node(node, circumstances, every_obstacle=False)
        guard = _guard(verdict)
        if isinstance(verdict, Plan) and verdict.placements:
            plans.append(verdict)
        yield (
            guard
            if guard is not None and _drained(original.plan_node(node, circumstances, every_obstacle=False))
            else None
        )
    for plan in plans:
        yield _guard(current.look_again(plan.node, circumstances))


def _drained(verdict: Verdict) -> bool:
    return isinstance(verdict, Plan) and bool(verdict.placements)


def _guard(verdict: Verdict) -> Reason | None:
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    return next((blocker.reason for blocker in blockers if blocker.reason in GUARDS), None)
