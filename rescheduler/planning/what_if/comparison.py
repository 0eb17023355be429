"""Plans with hypothetical changes, and the effects of lost spot nodes on their pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.changes import Change, OtherScheduler, changed, copied
from rescheduler.planning.what_if.lost_spot import LoseSpot, UnplacedPod, carry_out, lose, lost_nodes
from rescheduler.planning.what_if.rehearsal import ChangedNode, ChangedPod, changed_nodes, changed_pods

#: A change, or a loss of spot nodes, which is applied after all changes.
Hypothesis: TypeAlias = Change | LoseSpot


@dataclass(frozen=True, slots=True)
class LostSpot:
    """The result of losing spot nodes: the pods that would not fit on the remaining nodes."""

    nodes: tuple[str, ...]
    unplaced: tuple[UnplacedPod, ...]  #: if they were lost now
    unplaced_after_drains: tuple[UnplacedPod, ...]  #: if they were lost after the drains of the plan


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of another scheduler: what it changes, by itself for pods, and with all changes for nodes."""

    nodes: tuple[ChangedNode, ...]
    pods: tuple[ChangedPod, ...]


@dataclass(frozen=True, slots=True)
class HypotheticalPlan:
    """The plan with all hypotheses applied. *snapshot* and *policy* are the inputs of the plan."""

    planning: Planning
    snapshot: Snapshot
    policy: Policy
    lost: LostSpot | None = None  #: None if no spot nodes are lost
    rehearsal: Rehearsal | None = None  #: None if the scheduler is the same


def what_if(
    snapshot: Snapshot,
    policy: Policy,
    circumstances: Circumstances,
    hypotheses: Sequence[Hypothesis],
) -> HypotheticalPlan:
    """Plan with all *hypotheses*, on copies of the snapshot.

    If spot nodes are lost, their pods are first placed on the remaining nodes. Raises UsageError if a hypothesis names
    something that does not exist.
    """
    changes = [change for change in hypotheses if not isinstance(change, LoseSpot)]
    losses = [change for change in hypotheses if isinstance(change, LoseSpot)]
    after, settings = changed(snapshot, policy, changes)
    planning = Planner(after, settings).plan_all(circumstances)
    rehearsal = None
    if any(isinstance(change, OtherScheduler) for change in changes):
        before = Planner(snapshot, policy).plan_all(circumstances)
        pods = changed_pods(snapshot, policy, circumstances, after.scheduler)
        rehearsal = Rehearsal(tuple(changed_nodes(before, planning)), tuple(pods))
    if not losses:
        return HypotheticalPlan(planning, after, settings, rehearsal=rehearsal)
    names = tuple(dict.fromkeys(name for loss in losses for name in lost_nodes(after, settings, loss)))
    drained = copied(after)
    carry_out(drained, planning.plans)
    unplaced_after_drains = lose(drained, settings, names)
    unplaced = lose(after, settings, names)
    lost = LostSpot(names, tuple(unplaced), tuple(unplaced_after_drains))
    return HypotheticalPlan(Planner(after, settings).plan_all(circumstances), after, settings, lost, rehearsal)
