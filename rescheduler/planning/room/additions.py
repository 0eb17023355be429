"""A copy of a snapshot to which spot nodes are added for one trial at a time. The original is not changed."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.answers.node import could_be_drained
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.packing import Effort, Stuck, WantedReasons
from rescheduler.planning.planner import Planner
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.question import Attempt, Question, at_once, drained, evictions_after, opened
from rescheduler.planning.what_if.added_spot import AddSpot, add_spot
from rescheduler.planning.what_if.changes import copied

#: The changes of a trial are kept after this many rows: see :meth:`.Trial.keep`.
KEEP_AFTER: Final = 8


@dataclass(frozen=True, slots=True)
class TrialDrain:
    """An on-demand node that is drained in a trial, and how many of the added nodes are in use after it."""

    node: str
    used: int


class Additions:
    """The copy, with the planner for it. Valid while the original does not change."""

    def __init__(self, snapshot: Snapshot, policy: Policy, circumstances: Circumstances) -> None:
        self.original = snapshot
        self.snapshot = copied(snapshot)
        self.policy = policy
        self.circumstances = circumstances
        self.planner = Planner(self.snapshot, policy)

    @contextmanager
    def of(self, *changes: AddSpot) -> Iterator[list[list[str]]]:
        """Add the nodes of *changes* while the block runs, and yield their names, change by change."""
        names = add_spot(self.snapshot, self.policy, *changes)
        try:
            yield names
        finally:
            for name in chain.from_iterable(names):
                for key in list(self.snapshot.pods_on[name]):
                    self.snapshot.delete("Pod", key)
                self.snapshot.delete("CSINode", name)
                self.snapshot.delete("Node", name)

    @contextmanager
    def after(self, plans: Sequence[Plan]) -> Iterator[Attempt]:
        """Open the state after *plans*, in which first-fit finds places."""
        shared = self.planner.round(self.circumstances)
        with opened(shared, Effort(0), shared.pending) as attempt:
            attempt.remaining = evictions_after(plans, shared)
            attempt.emptied = sum(plan.empties and plan.node in shared.minimum.counted for plan in plans)
            drained(plans, attempt)
            yield attempt

    def lacking_room(self, nodes: Iterable[str], plans: Sequence[Plan]) -> list[Examined]:
        """Return those of *nodes* that nothing but room for their pods keeps after *plans*, with what the rules say."""
        with self.after(plans) as attempt:
            given = frozenset(item.pod.uid for plan in plans if not plan.empties for item in plan.placements)
            found = (examine(node, self._without(node, given, attempt.shared)) for node in nodes)
            return [each for each in found if could_be_drained(each, attempt)]

    def _without(self, node: str, given: frozenset[str], shared: PlanningRound) -> PlanningRound:
        """Return the inputs for *node* after it has *given* some of its pods (UIDs) to make room."""
        left = frozenset(pod.uid for pod in self.snapshot.pods_on[node].values()) - given
        return replace(shared, only=left) if given else shared

    def steps(self, added: Iterable[str], nodes: Iterable[Examined], plans: Sequence[Plan]) -> Iterator[TrialDrain]:
        """Drain *nodes* one after the other after *plans*, and yield those whose pods fit, also on the nodes *added*.

        The nodes *added* are filled one after the other.
        """
        with self.after(plans) as attempt:
            shared, used = attempt.shared, set[int]()
            new = {shared.snapshot.nodes.row[name] for name in added}
            for node in nodes:
                if _is_kept(node, attempt, shared):
                    continue
                question = replace(Question.of(node.candidate), reasons=WantedReasons.NONE)
                placed = at_once(question, attempt)
                if isinstance(placed, Stuck):
                    continue
                attempt.remaining.spend(node.evictions)
                attempt.emptied += node.candidate.counts
                used |= new.intersection(row for _, row in placed)
                yield TrialDrain(node.candidate.node, len(used))
                if len(shared.snapshot.touched) >= KEEP_AFTER:
                    attempt.trial.keep()


def _is_kept(node: Examined, attempt: Attempt, shared: PlanningRound) -> bool:
    """Return whether budgets or the minimum of on-demand nodes keep *node* after those that were drained."""
    if node.candidate.counts and attempt.emptied >= shared.minimum.spare:
        return True
    return bool(attempt.remaining.blockers(node.evictions))
