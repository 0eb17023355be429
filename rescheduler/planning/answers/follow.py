"""The pods that are left on a node that is being drained, and those that replace the evicted ones: their places."""

from collections.abc import Collection, Sequence

from predicates.objects import Pod
from rescheduler.planning.answers.node import rejection, single
from rescheduler.planning.examined import examine
from rescheduler.planning.outcome import Blocker, Reason, Rejected, Verdict
from rescheduler.planning.placement.packing import Stuck
from rescheduler.planning.placement.pending import PendingRoom, classes_of, queue, without_due
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Question, ask, no_room, opened


def follow(
    node: str, shared: PlanningRound, due: Sequence[Pod], evicted: Collection[str], step: Collection[str]
) -> Verdict:
    """Return the verdict on *node*; see :meth:`.planner.Planner.follow`. *shared* are the inputs during its drain."""
    if (rejected := not_on_demand(node, shared)) is not None:
        return rejected
    examined, snapshot, replacement = examine(node, shared), shared.snapshot, shared.replacements.of
    if examined.blockers:
        return rejection(examined, shared.remaining())
    candidate = examined.candidate
    left = [pod for pod in candidate.movers if pod.uid not in evicted]
    gone = [pod for pod in snapshot.pods_on[node].values() if pod.uid in evicted]
    if blockers := shared.floors(gone, left):
        return Rejected(node, tuple(blockers))
    restarted = [pod for surge in candidate.surges for pod in surge.restarted]
    question = Question(
        nodes=[candidate],
        leaving=[pod for pod in left if pod.key not in examined.surges.keys],
        pods=[*map(replacement, left), *restarted],
        due=[*map(replacement, due)],
        begun=True,
        first={pod.key for pod in left if pod.uid in step},
    )
    shared.room.filters.refresh(pod.cls for pod in (*question.pods[: len(left)], *question.due))
    with opened(shared, shared.effort(), _pending_besides(due, shared)) as attempt:
        attempt.trial.evict(*gone)  # they may still use a claim or a port
        answer = ask(question, attempt)
        return Rejected(node, (no_room(answer, shared),)) if isinstance(answer, Stuck) else single(answer)


def _pending_besides(due: Sequence[Pod], shared: PlanningRound) -> PendingRoom:
    """Return the room of the pending pods, except for those that replace *due* pods.

    CapacityBuffers do not stop a drain that has begun: pods that have come since may have taken their room.
    """
    queued = queue(shared.snapshot, shared.policy, shared.circumstances.left_pending)
    others = without_due(queued, due)
    if len(others) == len(queued) and not any(pod.buffer for pod in shared.ground.pending):
        return shared.pending
    return shared.pending_room(classes_of(others))


def not_on_demand(node: str, shared: PlanningRound) -> Rejected | None:
    """Return the rejection of a node that is being drained, if it is not an on-demand node any more."""
    if node in shared.groups.on_demand:
        return None
    detail = f"its labels do not make it an on-demand node ({shared.policy.on_demand_label}) any more"
    return Rejected(node, (Blocker(Reason.NOT_ON_DEMAND, detail),))
