"""Select nodes for removal whose pods may go to any other node: the cheapest ones that can be removed one by one.
Separate from the proxy, which asks for them: it decides, and does no I/O.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from predicates.nodes import CPU, MEMORY
from rescheduler.planning.answers.node import before_placement, rejection
from rescheduler.planning.budgets import RemainingDisruptions
from rescheduler.planning.examined import examine
from rescheduler.planning.outcome import Plan, Planning, Rejected, Verdict
from rescheduler.planning.placement.packing import Stuck
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Question, ask, no_room, opened


def plan_removals(nodes: Iterable[str], limit: int, shared: PlanningRound) -> Planning:
    """Plan the removal of at most *limit* of *nodes*, one after the other; unknown names are ignored.

    The order is: fewest pods to move, smallest share of requests, name. The pods of all selected nodes must fit the
    remaining nodes together. Budgets are checked for each node alone, because a node is drained only after the pods of
    the previous one are running again. Nodes that are not needed have no verdict.
    """
    examined = [examine(name, shared) for name in sorted(nodes) if name in shared.snapshot.nodes.row]
    rejected: list[Verdict] = []
    candidates: list[Candidate] = []
    remaining = shared.remaining()
    for each in examined:
        if each.blockers or remaining.blockers(each.evictions):
            rejected.append(rejection(each, remaining))
        else:
            candidates.append(each.candidate)
    candidates.sort(key=lambda each: (len(each.movers), _share(each.row, shared), each.node))
    shared.room.filters.refresh(pod.cls for each in candidates for pod in each.incoming)
    selected: list[Candidate] = []
    plans: tuple[Plan, ...] = ()
    for candidate in candidates:
        if len(selected) == limit:
            break
        together = _together([*selected, candidate], shared)
        if isinstance(together, Rejected):
            rejected.append(together)
        else:
            selected, plans = [*selected, candidate], together
    return shared.planning([*plans, *rejected])


def _share(row: int, shared: PlanningRound) -> float:
    """Return the sum of the requested fractions of the node's cpu and memory."""
    table = shared.snapshot.nodes
    free, total = table.free[row], table.allocatable[row]
    return sum(float(total[column] - free[column]) / max(1.0, float(total[column])) for column in (CPU, MEMORY))


def _together(candidates: Sequence[Candidate], before: PlanningRound) -> tuple[Plan, ...] | Rejected:
    """Return plans for all *candidates*, or why the last one cannot be added to the others."""
    last = candidates[-1].node
    shared = before.removing([candidate.node for candidate in candidates])
    with opened(shared, shared.effort(), shared.pending) as attempt:
        attempt.remaining = _after(candidates[:-1], shared)
        if (rejected := before_placement(examine(last, shared), attempt)) is not None:
            return rejected
        answer = ask(Question.of(*candidates), attempt)
        if isinstance(answer, Stuck):
            return Rejected(last, (no_room(answer, shared),))
    return replace(answer, node=last) if isinstance(answer, Rejected) else tuple(answer)


def _after(removed: Sequence[Candidate], shared: PlanningRound) -> RemainingDisruptions:
    """Return what may be evicted after the nodes *removed*: budgets allow the same again, minimum replicas do not."""
    remaining = shared.remaining()
    if (replicas := remaining.replicas) is not None:
        replicas.take(replicas.groups([pod for candidate in removed for pod in candidate.movers]))
    return remaining
