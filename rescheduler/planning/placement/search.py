"""Select the candidate nodes to drain: as many as can be drained together, within a limited effort."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import CPU, Numbers
from predicates.objects import Pod, PodClass
from predicates.snapshot import Trial
from rescheduler.planning.budgets import Evictions, RemainingDisruptions
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.placement.forecast import may_return
from rescheduler.planning.placement.in_steps import keep_in_steps, order_matters
from rescheduler.planning.placement.packing import WAYS, Effort, Packing, Placed, Room, Stuck, WantedReasons, pack
from rescheduler.planning.surges import NodeSurge

# Nodes that a plan may drain, and those that it selects.


@dataclass(frozen=True, slots=True)
class Candidate:
    """An on-demand node whose pods may all be evicted according to the rules."""

    node: str
    row: int
    movers: tuple[Pod, ...]
    #: The replacement pods of ``movers``, in the same order, then those of pods on other nodes that `surges` restart.
    incoming: tuple[Pod, ...]
    leaving: tuple[PodRef, ...] = ()  #: pods that are being deleted: the drain waits for them
    counts: bool = False  #: whether it counts towards --min-on-demand-nodes
    surges: tuple[NodeSurge, ...] = ()  #: Deployments that roll out: their pods stay until all of their new pods run

    @property
    def evicted(self) -> tuple[Pod, ...]:
        """The pods of ``movers`` that leave before their replacement pods are scheduled."""
        if not self.surges:
            return self.movers
        staying = {pod.key for surge in self.surges for pod in surge.pods}
        return tuple(pod for pod in self.movers if pod.key not in staying)


@dataclass(frozen=True, slots=True)
class SelectedNode:
    """A candidate selected for a drain, and the placements of its pods in an order in which they can be scheduled."""

    candidate: Candidate
    placed: tuple[tuple[Pod, int], ...]
    #: The same in the order of the drain, if it was shown that the drain reaches them after those of the nodes before.
    in_drain: Placed | None = None


Selection: TypeAlias = tuple[SelectedNode, ...]


def counting(victims: Iterable[SelectedNode]) -> int:
    """Return how many of *victims* count towards the minimum of on-demand nodes."""
    return sum(victim.candidate.counts for victim in victims)


def as_drained(candidate: Candidate, placed: Placed, room: Room, trial: Trial) -> Placed | None:
    """Return *placed* in the order in which the drain moves the pods, if it is shown that it can; None if it is not.

    The node must be drained in *trial*, with all pods placed, and is so afterwards.
    """
    if may_return(candidate.incoming, room.filters):
        return None
    if not order_matters(candidate.incoming, room.filters):
        return placed
    if candidate.surges:
        return None
    mark = trial.savepoint()
    in_order = keep_in_steps(room, trial, placed)
    trial.revert(mark)  # to the same placements: otherwise, cached results would have to consider pods as removed
    return in_order


# The total requests of the pods of candidate nodes, compared with the free resources of the targets.


class Loads:
    """The requests of the pods of each of *candidates*, and the free amounts on all targets of *room* together."""

    def __init__(self, room: Room, candidates: Iterable[Candidate]) -> None:
        self._room = room
        self._free: Numbers = np.maximum(room.snapshot.nodes.free[room.targets.rows], 0).sum(axis=0)
        self._by_class: dict[PodClass, Numbers] = {}
        self._by_node = {candidate.node: self._load(candidate) for candidate in candidates}

    def share(self, candidate: Candidate) -> float:
        """Return the candidate's largest share of any resource, relative to the free amount on all targets together."""
        return float((self._by_node[candidate.node] / np.maximum(self._free, 1)).max())

    def bound(self, candidates: Sequence[Candidate], limit: int, placed: Iterable[SelectedNode] = ()) -> int:
        """Return the fractional upper bound: how many of *candidates* fit if each resource could be split freely.

        The targets also have to accept the pods of the *placed* nodes. At most *limit* of the candidates with
        ``counts`` can be drained.
        """
        if not candidates:
            return 0
        free = self._free - sum((self._by_node[victim.candidate.node] for victim in placed), start=np.int64(0))
        limit += sum(not candidate.counts for candidate in candidates)
        loads = np.sort(np.array([self._by_node[candidate.node] for candidate in candidates]), axis=0).cumsum(axis=0)
        return min(limit, int((loads <= free).sum(axis=0).min()))

    def _load(self, candidate: Candidate) -> Numbers:
        by_class = self._by_class
        for pod in candidate.incoming:
            if pod.cls not in by_class:
                by_class[pod.cls] = self._checked(pod.cls)
        none = np.zeros(len(self._room.snapshot.nodes.resources), np.int64)
        load: Numbers = np.add.reduce([by_class[pod.cls] for pod in candidate.incoming] or [none])
        return load

    def _checked(self, cls: PodClass) -> Numbers:
        """Return the requests of the class that its scheduler profile checks."""
        snapshot = self._room.snapshot
        return snapshot.vector(snapshot.scheduler.profile(cls.spec.scheduler_name).checked(cls.requests))


# The baseline is the original spot rescheduler's method: nodes in order of requested CPU, least first, each pod on the
# first spot node that accepts it. Another drain order is tried first, and kept if the baseline does not free more
# nodes. Then other orders are tried. Then nodes are added one at a time, if necessary by repacking all moved pods. For
# few nodes every subset is tried. The result never frees fewer nodes than the baseline.

#: For at most this many candidates every subset is tried, as long as effort is left.
_EXHAUSTIVE_LIMIT: Final = 16

#: The number of placements tried per subset: in the first pass, and in a second one if a better result may exist.
_PLACEMENTS_PER_CHOICE: Final = (WAYS, 10 * WAYS)

#: The changes of a pass are kept (:meth:`Trial.keep`) after this many rows: until then, a target that has become full
#: is evaluated again for each pod.
_KEEP_AFTER: Final = 8

#: At most this many pods are repacked together.
_REPACK_LIMIT: Final = 400


class Search:
    """One search over *candidates* (in drain order) within *trial*.

    *evictions* maps each candidate to the evictions that its drain needs. At most *limit* candidates with
    ``counts`` may be drained. *effort* limits the work beyond the baseline.
    """

    def __init__(
        self,
        room: Room,
        trial: Trial,
        candidates: Sequence[Candidate],
        evictions: Mapping[str, Evictions],
        new_remaining: Callable[[], RemainingDisruptions],
        limit: int,
        effort: Effort,
    ) -> None:
        self._room = room
        self._trial = trial
        self._start = trial.savepoint()
        self._new_remaining = new_remaining
        self._candidates = tuple(candidates)
        cpu = room.snapshot.nodes.requested[:, CPU]
        self._by_request = tuple(sorted(candidates, key=lambda candidate: (int(cpu[candidate.row]), candidate.node)))
        self._evictions = evictions
        self._loads = Loads(room, candidates)
        self._share = self._loads.share
        self._limit = limit
        self._effort = effort
        self._ways = WAYS
        self.upper_bound = self._loads.bound(self._candidates, limit)
        #: The nodes whose drains the trial contains, if they were selected in one pass; None if it may contain others.
        self._placed: Selection | None = None
        self._shown = 0  #: of these, how many of the first are known as :attr:`SelectedNode.in_drain`
        self._after_shown = self._start  #: the savepoint after these

    def run(self, *, keep_drained: bool = False) -> tuple[Selection, int]:
        """Return the largest set of nodes that was found to be drainable together, in drain order.

        Also return how many of the first of them are drained in the trial afterwards, as their ``in_drain`` says. There
        are none without *keep_drained*.
        """
        best = self._baseline(in_drain=keep_drained)
        for order in self._orders():
            if len(best) >= self.upper_bound or self._effort.exhausted:
                break
            best = max(best, self._greedy(order, self._packed), key=len)
        if len(self._candidates) > _EXHAUSTIVE_LIMIT:
            best = self._add_one_by_one(best)
        else:
            for self._ways in _PLACEMENTS_PER_CHOICE:  # every subset with few placements each, then with more
                best = self._every_subset(best)
        best = self._in_drain_order(best)
        if best is not self._placed or not self._shown:
            self._reset()
            return best, 0
        self._trial.revert(self._after_shown)
        return best, self._shown

    def _baseline(self, *, in_drain: bool) -> Selection:
        """Return the result of first-fit in drain order, or by requested CPU if that frees more nodes."""
        best = self._greedy(self._candidates, self._first_fit, in_drain=in_drain)
        if self._candidates == self._by_request or len(best) >= self.upper_bound:
            return best
        return max(best, self._greedy(self._by_request, self._first_fit), key=len)

    def _in_drain_order(self, best: Selection) -> Selection:
        """Return *best* sorted by a drain order that is not the baseline's, if the pods can be scheduled in it."""
        chosen = {victim.candidate.node for victim in best}
        ordered = [candidate for candidate in self._candidates if candidate.node in chosen]
        if self._candidates == self._by_request or ordered == [victim.candidate for victim in best]:
            return best
        rows = {pod.key: row for victim in best for pod, row in victim.placed}
        return self._replay_in_order(ordered, rows) or best

    def _orders(self) -> Iterable[Sequence[Candidate]]:
        yield self._candidates
        yield sorted(self._candidates, key=lambda candidate: (self._share(candidate), candidate.node))
        yield sorted(
            self._candidates,
            key=lambda candidate: (len(candidate.movers), self._share(candidate), candidate.node),
        )

    def _greedy(
        self, order: Sequence[Candidate], place: Callable[[Sequence[Pod]], Placed | None], *, in_drain: bool = False
    ) -> Selection:
        """Select the nodes of *order* whose pods *place* can place, each after the previous ones.

        With *in_drain*, it is also tried to show that their drains reach the placements, up to the first that does not.
        """
        self._reset()
        remaining = self._new_remaining()
        victims: list[SelectedNode] = []
        counted = 0
        for candidate in order:
            evictions = self._evictions[candidate.node]
            if (candidate.counts and counted >= self._limit) or remaining.blockers(evictions):
                continue
            mark = self._trial.savepoint()
            self._empty(candidate)
            if (placed := place(candidate.incoming)) is None:
                self._trial.revert(mark)
                continue
            moves = as_drained(candidate, placed, self._room, self._trial) if in_drain else None
            if in_drain := moves is not None:
                self._shown, self._after_shown = len(victims) + 1, self._trial.savepoint()
            if len(self._room.snapshot.touched) >= _KEEP_AFTER:
                self._trial.keep()
            remaining.spend(evictions)
            counted += candidate.counts
            victims.append(SelectedNode(candidate, tuple(placed), moves))
        self._trial.keep()
        self._placed = found = tuple(victims)
        return found

    def _every_subset(self, best: Selection) -> Selection:
        """Search the subsets depth-first, lightest candidates first. Prune branches that cannot improve on *best*."""
        order = sorted(self._candidates, key=lambda candidate: (self._share(candidate), candidate.node))
        stack: list[tuple[int, Selection]] = [(0, ())]
        while stack and len(best) < self.upper_bound and self._effort.spend():
            position, victims = stack.pop()
            if position == len(order):
                continue
            bound = self._loads.bound(order[position:], self._limit - counting(victims), victims)
            if len(victims) + bound <= len(best):
                continue
            stack.append((position + 1, victims))
            if (extended := self._extended(victims, order[position])) is not None:
                best = max(best, extended, key=len)
                stack.append((position + 1, extended))
        return best

    def _add_one_by_one(self, best: Selection) -> Selection:
        """Add the remaining nodes, lightest first. If a node cannot be added, try it in place of a heavier one."""
        chosen = {victim.candidate.node for victim in best}
        rest = [candidate for candidate in self._candidates if candidate.node not in chosen]
        for candidate in sorted(rest, key=lambda candidate: (self._share(candidate), candidate.node)):
            if self._effort.exhausted or len(best) >= self.upper_bound:
                break
            best = self._extended(best, candidate) or self._swap_for_lighter(best, candidate) or best
        return best

    def _swap_for_lighter(self, victims: Selection, candidate: Candidate) -> Selection | None:
        """Replace the heaviest victim with *candidate* if that is lighter, to leave more room for other candidates."""
        heaviest = max(victims, key=lambda victim: (self._share(victim.candidate), victim.candidate.node), default=None)
        if heaviest is None or self._share(candidate) >= self._share(heaviest.candidate):
            return None
        return self._extended(tuple(victim for victim in victims if victim is not heaviest), candidate)

    def _extended(self, victims: Selection, candidate: Candidate) -> Selection | None:
        """Return *victims* plus *candidate* if they can be drained together, else None."""
        if candidate.counts and counting(victims) >= self._limit:
            return None
        if not self._are_within_budgets([*(victim.candidate for victim in victims), candidate]):
            return None
        self._effort.spend(sum(len(victim.placed) for victim in victims) // 8)
        if victims is not self._placed:
            self._reset()
            for victim in victims:
                self._empty(victim.candidate)
                for pod, row in victim.placed:
                    self._trial.place(pod.cls, row)
            self._placed = victims
        mark = self._trial.savepoint()
        self._empty(candidate)
        if (placed := self._packed(candidate.incoming)) is not None:
            self._placed = (*victims, SelectedNode(candidate, tuple(placed)))
            return self._placed
        self._trial.revert(mark)
        return self._repacked([*(victim.candidate for victim in victims), candidate])

    def _repacked(self, candidates: Sequence[Candidate]) -> Selection | None:
        """Pack the pods of all *candidates* together.

        Return the selection if the pods can also be scheduled in the order of their nodes, else None.
        """
        movers = [pod for candidate in candidates for pod in candidate.incoming]
        if len(movers) > _REPACK_LIMIT or self._effort.exhausted:
            return None
        self._reset()
        for candidate in candidates:
            self._empty(candidate)
        if (placed := self._packed(movers)) is None:
            return None
        return self._replay_in_order(candidates, {pod.key: row for pod, row in placed})

    def _replay_in_order(self, candidates: Sequence[Candidate], rows: dict[str, int]) -> Selection | None:
        self._reset()
        victims = []
        for candidate in candidates:
            self._empty(candidate)
            packing = Packing(self._room, self._trial)
            self._effort.spend(len(candidate.movers))
            if not packing.replay([(pod, rows[pod.key]) for pod in candidate.incoming]):
                return None
            victims.append(SelectedNode(candidate, tuple(packing.placed)))
        return tuple(victims)

    def replayed(self, victims: Selection) -> Selection | None:
        """Return *victims* with the placements that they have without the others; None if a pod does not fit then."""
        rows = {pod.key: row for victim in victims for pod, row in victim.placed}
        result = self._replay_in_order([victim.candidate for victim in victims], rows)
        self._reset()
        return result

    def _are_within_budgets(self, candidates: Iterable[Candidate]) -> bool:
        remaining = self._new_remaining()
        return not any(remaining.take(self._evictions[candidate.node]) for candidate in candidates)

    def _first_fit(self, pods: Sequence[Pod]) -> Placed | None:
        packing = Packing(self._room, self._trial)
        return None if packing.first_fit(pods) else packing.placed

    def _packed(self, pods: Sequence[Pod]) -> Placed | None:
        placed = pack(self._room, self._trial, pods, self._effort, self._ways, reasons=WantedReasons.NONE)
        return None if isinstance(placed, Stuck) else placed

    def _empty(self, candidate: Candidate) -> None:
        self._trial.evict(*candidate.evicted)
        self._trial.drain(candidate.row)

    def _reset(self) -> None:
        self._placed, self._shown = None, 0
        self._trial.revert(self._start)
