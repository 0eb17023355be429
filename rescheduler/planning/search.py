"""Which nodes to empty, of those that may be emptied: as many as are found to go together, within an effort.

The floor is the seed's way: node after node, least requested cpu first, each pod on the first spot node that takes
it. Above it other orders are tried; then nodes are added one at a time, where need be by packing all moved pods
anew; for few nodes every choice of them is looked at. The answer never frees fewer nodes than the floor.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import Pod
from predicates.snapshot import Trial
from rescheduler.planning.budgets import Purse
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.packing import WAYS, Effort, Packing, Placed, Room, Stuck, pack

#: Up to so many candidates every choice of victims is looked at, as far as the effort goes.
_FEW: Final = 16

#: So many ways of placing a choice's pods are tried, in turn, while no better answer is proved impossible.
_PATIENCE: Final = (WAYS, 10 * WAYS)

#: Up to so many pods are packed anew together.
_REPACKED: Final = 400


@dataclass(frozen=True, slots=True)
class Candidate:
    """An on-demand node whose pods may all be evicted, as far as the rules go."""

    node: str
    row: int
    movers: tuple[Pod, ...]
    leaving: tuple[PodRef, ...] = ()  #: pods that are being deleted, and waited for
    counts: bool = False  #: whether its drain uses up one of the nodes that may be emptied


@dataclass(frozen=True, slots=True)
class Victim:
    """A candidate that will be emptied, and where its pods go, in an order in which they can arrive."""

    candidate: Candidate
    placed: tuple[tuple[Pod, int], ...]


Victims: TypeAlias = tuple[Victim, ...]


class Search:
    """One search over *candidates* (in the floor's order) within *trial*, which is left as it was found.

    *most* is how many of the candidates that count may be emptied; *effort* what may be spent above the floor.
    """

    def __init__(
        self,
        room: Room,
        trial: Trial,
        candidates: Sequence[Candidate],
        new_purse: Callable[[], Purse],
        most: int,
        effort: Effort,
    ) -> None:
        self._room = room
        self._trial = trial
        self._start = trial.savepoint()
        self._new_purse = new_purse
        self._candidates = tuple(candidates)
        self._free: Numbers = np.maximum(room.snapshot.nodes.free[room.targets.rows], 0).sum(axis=0)
        self._loads = {one.node: self._load(one) for one in candidates}
        self._most = most
        self._effort = effort
        self._ways = WAYS
        self.upper_bound = self._bound(self._candidates, self._free, most)

    def run(self) -> Victims:
        """The most nodes that were found to go together, in drain order."""
        best = self._greedily(self._candidates, self._first_fit)
        for order in self._orders():
            if len(best) >= self.upper_bound or self._effort.exhausted:
                break
            best = max(best, self._greedily(order, self._packed), key=len)
        if len(self._candidates) > _FEW:
            best = self._one_more(best)
        else:
            for self._ways in _PATIENCE:  # first every choice with little patience for each, then with more
                best = self._every_choice(best)
        self._reset()
        return best

    def _orders(self) -> Iterable[Sequence[Candidate]]:
        yield self._candidates
        yield sorted(self._candidates, key=lambda one: (self._share(one), one.node))
        yield sorted(self._candidates, key=lambda one: (len(one.movers), self._share(one), one.node))

    def _greedily(self, order: Sequence[Candidate], place: Callable[[Sequence[Pod]], Placed | None]) -> Victims:
        self._reset()
        purse = self._new_purse()
        victims: list[Victim] = []
        for candidate in order:
            if candidate.counts and _counted(victims) >= self._most:
                continue
            trying = purse.copy()
            if trying.pay(candidate.movers):
                continue
            mark = self._trial.savepoint()
            self._empty(candidate)
            if (placed := place(candidate.movers)) is None:
                self._refill(candidate, mark)
                continue
            self._trial.keep()
            purse = trying
            victims.append(Victim(candidate, tuple(placed)))
        return tuple(victims)

    def _every_choice(self, best: Victims) -> Victims:
        """Depth first over the candidates, lightest first, cut where no better answer can follow."""
        order = sorted(self._candidates, key=lambda one: (self._share(one), one.node))
        stack: list[tuple[int, Victims]] = [(0, ())]
        while stack and len(best) < self.upper_bound and self._effort.spend():
            at, victims = stack.pop()
            if at == len(order):
                continue
            free = self._free - sum((self._loads[one.candidate.node] for one in victims), start=np.int64(0))
            if len(victims) + self._bound(order[at:], free, self._most - _counted(victims)) <= len(best):
                continue
            stack.append((at + 1, victims))
            if (more := self._extended(victims, order[at])) is not None:
                best = max(best, more, key=len)
                stack.append((at + 1, more))
        return best

    def _one_more(self, best: Victims) -> Victims:
        """Add nodes left out, lightest first; where one does not go, try it in the place of a heavier one."""
        chosen = {one.candidate.node for one in best}
        rest = [one for one in self._candidates if one.node not in chosen]
        for candidate in sorted(rest, key=lambda one: (self._share(one), one.node)):
            if self._effort.exhausted or len(best) >= self.upper_bound:
                break
            best = self._extended(best, candidate) or self._lighter(best, candidate) or best
        return best

    def _lighter(self, victims: Victims, candidate: Candidate) -> Victims | None:
        """*candidate* in the place of the heaviest victim, if it is lighter: room for whoever is tried next."""
        heaviest = max(victims, key=lambda one: (self._share(one.candidate), one.candidate.node), default=None)
        if heaviest is None or self._share(candidate) >= self._share(heaviest.candidate):
            return None
        return self._extended(tuple(one for one in victims if one is not heaviest), candidate)

    def _extended(self, victims: Victims, candidate: Candidate) -> Victims | None:
        """*victims* and *candidate*, if they are found to go together."""
        if candidate.counts and _counted(victims) >= self._most:
            return None
        if not self._payable([*(one.candidate for one in victims), candidate]):
            return None
        self._reset()
        for one in victims:
            self._empty(one.candidate)
            for pod, row in one.placed:
                self._trial.place(pod.cls, row)
        self._effort.spend(sum(len(one.placed) for one in victims) // 8)
        self._empty(candidate)
        if (placed := self._packed(candidate.movers)) is not None:
            return (*victims, Victim(candidate, tuple(placed)))
        return self._repacked([*(one.candidate for one in victims), candidate])

    def _repacked(self, candidates: Sequence[Candidate]) -> Victims | None:
        """Pack the pods of all *candidates* together, then see whether they can also arrive node after node."""
        movers = [pod for one in candidates for pod in one.movers]
        if len(movers) > _REPACKED or self._effort.exhausted:
            return None
        self._reset()
        for one in candidates:
            self._empty(one)
        if (placed := self._packed(movers)) is None:
            return None
        return self._in_turn(candidates, {pod.key: row for pod, row in placed})

    def _in_turn(self, candidates: Sequence[Candidate], rows: dict[str, int]) -> Victims | None:
        self._reset()
        victims = []
        for one in candidates:
            self._empty(one)
            packing = Packing(self._room, self._trial)
            self._effort.spend(len(one.movers))
            if not packing.replay([(pod, rows[pod.key]) for pod in one.movers]):
                return None
            victims.append(Victim(one, tuple(packing.placed)))
        return tuple(victims)

    def _payable(self, candidates: Iterable[Candidate]) -> bool:
        purse = self._new_purse()
        return not any(purse.pay(one.movers) for one in candidates)

    def _first_fit(self, pods: Sequence[Pod]) -> Placed | None:
        packing = Packing(self._room, self._trial)
        return None if packing.first_fit(pods) else packing.placed

    def _packed(self, pods: Sequence[Pod]) -> Placed | None:
        placed = pack(self._room, self._trial, pods, self._effort, self._ways)
        return None if isinstance(placed, Stuck) else placed

    def _empty(self, candidate: Candidate) -> None:
        self._trial.evict(*candidate.movers)
        self._trial.drain(candidate.row)

    def _refill(self, candidate: Candidate, mark: int) -> None:
        self._trial.revert(mark)
        self._trial.undrain(candidate.row)

    def _reset(self) -> None:
        self._trial.revert(self._start)
        for one in self._candidates:
            self._trial.undrain(one.row)

    def _load(self, candidate: Candidate) -> Numbers:
        vectors = [self._room.snapshot.vector(pod.cls.requests) for pod in candidate.movers]
        width = len(self._room.snapshot.nodes.resources)
        return np.sum(vectors, axis=0) if vectors else np.zeros(width, np.int64)

    def _share(self, candidate: Candidate) -> float:
        """The share of the scarcest resource that is free on all targets together."""
        return float((self._loads[candidate.node] / np.maximum(self._free, 1)).max())

    def _bound(self, candidates: Sequence[Candidate], free: Numbers, most: int) -> int:
        """No more of *candidates* can go than have room together, resource by resource, if pods were water."""
        if not candidates:
            return 0
        most += sum(not one.counts for one in candidates)
        loads = np.sort(np.array([self._loads[one.node] for one in candidates]), axis=0).cumsum(axis=0)
        return min(most, int((loads <= free).sum(axis=0).min()))


def _counted(victims: Iterable[Victim]) -> int:
    return sum(victim.candidate.counts for victim in victims)
