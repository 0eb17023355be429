"""The choices of the nodes that are emptied if their leftovers go to on-demand nodes that stay.

A *leftover* is a pod that must not run on spot nodes (:mod:`rescheduler.planning.rules.leftovers`). Where the nodes
that stay have no room for it, they give pods to the spot nodes first. The choice with the most money is best, then the
one with the fewest moves: of few nodes the orders are searched, as far as the effort allows, of many some are tried.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from typing import Final, TypeAlias

import numpy as np

from predicates.local_results import Targets
from predicates.nodes import CPU, Numbers
from predicates.objects import Pod
from rescheduler.planning.budgets import RemainingDisruptions
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.packing import Effort, Placed, Stuck, WantedReasons
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.question import Attempt, Question, at_once, drained, evictions_after, undo
from rescheduler.planning.rules.leftovers import rests

#: For at most this many candidates the orders are searched, as long as effort is left.
FEW: Final = 10

#: Filter evaluations beyond first-fit for each question of the search, among few candidates and among many.
EFFORT, _LITTLE_EFFORT = 200, 20

#: So many sequences of nodes of the same value are found: the forecasts reject some of them.
_ALTERNATIVES: Final = 16

#: Filter evaluations that scoring the nodes for a pod costs.
_A_SCORE: Final = 4

#: A node that stays gives pods for a leftover: so many nodes are tried, and so many pods that are enough alone.
_GIVERS, _SINGLE = 8, 3

#: What a choice is worth: money per hour, number of nodes, vCPU in millicores.
Value: TypeAlias = tuple[Decimal, int, int]

#: What the better of two choices has more of: value, then fewer moves.
Rank: TypeAlias = tuple[Value, int]

NOTHING: Final[Value] = (Decimal(0), 0, 0)


@dataclass(frozen=True, slots=True)
class LeftoverNode:
    """A node that may be emptied."""

    examined: Examined
    leftovers: tuple[Pod, ...]  #: of its incoming pods
    value: Value

    @property
    def candidate(self) -> Candidate:
        return self.examined.candidate

    @property
    def descending(self) -> tuple[Decimal, int]:
        """A sort key: the most valuable first."""
        return -self.value[0], -self.value[2]

    @property
    def name(self) -> str:
        return self.candidate.node


@dataclass(frozen=True, slots=True)
class EmptiedNode:
    """A node that is emptied, and what the nodes that stay give before."""

    node: LeftoverNode
    given: tuple[Candidate, ...] = ()

    @property
    def moves(self) -> int:
        return len(self.node.candidate.movers) + sum(len(each.movers) for each in self.given)


LeftoverChoice: TypeAlias = tuple[EmptiedNode, ...]


def value_of(values: Iterable[Value]) -> Value:
    """Return the sum of *values*."""
    money, nodes, cpu = NOTHING
    for each in values:
        money, nodes, cpu = money + each[0], nodes + each[1], cpu + each[2]
    return money, nodes, cpu


def rank_of(choice: LeftoverChoice) -> Rank:
    """Return how good a choice is: the better of two has the higher rank."""
    return value_of(each.node.value for each in choice), -sum(each.moves for each in choice)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Nodes that are emptied one after the other, and what that leaves."""

    remaining: RemainingDisruptions
    spare: int  #: nodes that may be emptied before the minimum is reached
    choice: LeftoverChoice = ()
    stays: frozenset[int] = frozenset()  #: rows on which leftovers have landed, or that made room

    @property
    def emptied(self) -> frozenset[int]:
        return frozenset(each.node.candidate.row for each in self.choice)

    def then(self, emptied: EmptiedNode, stays: frozenset[int], remaining: RemainingDisruptions) -> "_Sequence":
        spare = self.spare - emptied.node.candidate.counts
        return _Sequence(remaining, spare, (*self.choice, emptied), self.stays | stays)


class LeftoverSearch:
    """The search for choices, in the trial of *attempt*, after *plans*.

    *values* are those of the nodes that stay after these plans. The nodes *kept* are not emptied, and neither are those
    without leftovers, unless the choice is between *every* node.
    """

    def __init__(
        self,
        attempt: Attempt,
        plans: Sequence[Plan],
        values: Mapping[str, Value],
        kept: Collection[str],
        *,
        every: bool,
    ) -> None:
        self._base = attempt.shared
        drained(plans, attempt)
        self._start = attempt.trial.savepoint()
        self._effort = attempt.effort
        freed = {plan.node for plan in plans}
        self._shared = self._base.with_leftovers(freed)
        self._attempt = replace(attempt, shared=self._shared)
        self._remaining = evictions_after(plans, self._shared)
        self._spare = self._base.minimum.spare - sum(plan.node in self._base.minimum.counted for plan in plans)
        examined, row_of = {name: examine(name, self._shared) for name in values}, self._base.snapshot.nodes.row
        self._shared.room.filters.refresh(pod.cls for each in examined.values() for pod in each.incoming)
        found = [self._node(each, values[name]) for name, each in examined.items() if name not in kept]
        self._nodes = [node for node in found if node is not None and (every or node.leftovers)]
        self._nodes.sort(key=lambda node: bool(node.leftovers))
        self.few = len(self._nodes) <= FEW  #: whether the orders are searched
        self._most_effort = EFFORT if self.few else _LITTLE_EFFORT
        self._givers = {each.candidate.row: each for each in examined.values()}
        never = {row_of[name] for name in values} - {node.candidate.row for node in self._nodes}
        rows = [each for each in self._shared.room.targets.rows.tolist() if each not in self._base.groups.spot.rows_set]
        self._receivers = sorted(rows, key=lambda each: each not in never)
        self._may_receive = set(self._receivers)
        self._complete: list[LeftoverChoice] = []
        self._wanted = NOTHING  #: what further sequences have to be worth
        self._seen = set[tuple[frozenset[int], frozenset[int]]]()
        self._movable_on: dict[int, Sequence[tuple[Pod, Numbers]]] = {}
        self._gone: set[str] = set()  #: keys of the pods that are given in the trial

    def _node(self, examined: Examined, value: Value) -> LeftoverNode | None:
        """Return the node as a candidate, or None if it cannot be emptied, or saves nothing."""
        pins, candidate = self._base.pins, examined.candidate
        leftovers = tuple(pod for pod in candidate.incoming if pins.of(pod.cls) is not None)
        if examined.blockers or not candidate.movers or candidate.surges or value == NOTHING:
            return None
        keys = {pod.key for pod in leftovers}
        policy, circumstances = self._base.policy, self._base.circumstances
        if any(rests(pod, policy, circumstances) for pod in candidate.movers if pod.key in keys):
            return None
        if self._remaining.blockers(examined.evictions):
            return None
        return LeftoverNode(examined, leftovers, value)

    def choices(self) -> list[LeftoverChoice]:
        """Return the best choices that were found, the best first: of few nodes some, of many one."""
        best: LeftoverChoice = ()
        for order in self._orders():
            best = max(best, self._greedy(order), key=rank_of)
            if self.few or self._effort.exhausted:
                break
        if self.few:
            self._go_on(_Sequence(remaining=self._remaining, spare=self._spare))
            self._reset()
        return sorted([*self._complete, best], key=rank_of, reverse=True)

    def _go_on(self, done: "_Sequence") -> None:
        """Empty further nodes after *done*, each in its turn, and note the sequences after which no other can be.

        Leftovers go where the scheduler would put them, and these nodes stay.
        """
        state, trial = (done.emptied, done.stays), self._attempt.trial
        left = [node for node in self._nodes if node.candidate.row not in done.emptied | done.stays]
        possible = rank_of((*done.choice, *map(EmptiedNode, left)))[0]
        if state in self._seen or possible < self._wanted:
            return
        self._seen.add(state)
        last = True
        for node, landed in self._next(done, left):
            if self._effort.exhausted:
                break
            mark, gone = trial.savepoint(), set(self._gone)
            others = [row for row in self._receivers if row not in done.emptied and row != node.candidate.row]
            # Where there is no room, nodes that stay anyway make it first.
            receivers = sorted(landed) or sorted(others, key=lambda row: row not in done.stays)
            if (found := self._emptied(node, receivers, done.remaining)) is not None:
                emptied, taking, remaining = found
                last = False
                self._go_on(done.then(emptied, landed.union(taking), remaining))
            trial.revert(mark)
            trial.undrain(node.candidate.row)
            self._gone = gone
        if last and (value := rank_of(done.choice)[0]) >= self._wanted:
            self._complete.append(done.choice)
            enough = sum(rank_of(each)[0] == value for each in self._complete) >= _ALTERNATIVES
            self._wanted = (*value[:2], value[2] + enough)

    def _next(self, done: "_Sequence", left: Sequence[LeftoverNode]) -> Sequence[tuple[LeftoverNode, frozenset[int]]]:
        """Return which nodes may be emptied next, with the rows where their leftovers land.

        Those come first whose leftovers keep the fewest further nodes.
        """
        found = []
        for node in left:
            if self._effort.exhausted:
                break
            if (node.candidate.counts and done.spare <= 0) or done.remaining.blockers(node.examined.evictions):
                continue
            if (landed := self._landings(node)) is not None:
                found.append((node, landed))
        return sorted(found, key=lambda each: (len(each[1] - done.stays), *_in_order(each[0])))

    def _landings(self, node: LeftoverNode) -> frozenset[int] | None:
        """Return the rows where the scheduler may put the leftovers of a node; none if some have no room now.

        None means that it may put one on a node that does not take leftovers.
        """
        trial, mark = self._attempt.trial, self._attempt.trial.savepoint()
        trial.evict(*node.candidate.evicted)
        trial.drain(node.candidate.row)
        landed: set[int] = set()
        for pod in node.leftovers:
            rows = self._shared.forecaster.best_rows(pod)
            self._effort.spend(_A_SCORE)
            landed = landed | set(rows) if rows else set()
            if not rows or not landed <= self._may_receive:
                break
            trial.place(pod.cls, rows[0])
        trial.revert(mark)
        trial.undrain(node.candidate.row)
        return frozenset(landed) if landed <= self._may_receive else None

    def _orders(self) -> Iterable[Sequence[LeftoverNode]]:
        """Yield the orders in which nodes are emptied: the last ones of each tend to stay and receive."""
        sizes, free = self._shared.room.sizes, self._base.snapshot.nodes.free[:, CPU]
        load = {node.name: sum(sizes.of(pod.cls) for pod in node.leftovers) for node in self._nodes}
        nodes = sorted(self._nodes, key=lambda node: (*node.descending, len(node.candidate.movers), node.name))
        yield nodes
        yield sorted(nodes, key=lambda node: (*node.descending, load[node.name]))
        yield sorted(nodes, key=lambda node: (*node.descending, int(free[node.candidate.row]), node.name))
        yield sorted(nodes, key=lambda node: (load[node.name] / float(node.value[0] or 1), node.name))

    def _greedy(self, order: Sequence[LeftoverNode]) -> LeftoverChoice:
        """Empty the nodes of *order*, each in the state after the ones before, unless it has received leftovers."""
        self._reset()
        choice: list[EmptiedNode] = []
        preferred = self._first_receivers(order)
        used: set[int] = set()
        remaining, spare, out = self._remaining.copy(), self._spare, set[int]()
        for node in order:
            row = node.candidate.row
            if self._effort.exhausted or row in used or (node.candidate.counts and spare <= 0):
                continue
            if remaining.blockers(node.examined.evictions):
                continue
            targets = [each for each in preferred if each in used] + [each for each in preferred if each not in used]
            targets = [each for each in targets if each != row and each not in out]
            found = self._emptied(node, targets, remaining)
            if found is None:
                continue
            emptied, taking, remaining = found
            used |= taking
            out.add(row)
            spare -= node.candidate.counts
            choice.append(emptied)
        self._reset()
        return tuple(choice)

    def _first_receivers(self, order: Sequence[LeftoverNode]) -> list[int]:
        """Return the rows that may receive, those first that are not emptied or come last in *order*."""
        position = {node.candidate.row: number for number, node in enumerate(order)}
        return sorted(self._receivers, key=lambda row: -position.get(row, len(order)))

    def _emptied(
        self,
        node: LeftoverNode,
        receivers: Sequence[int],
        remaining: RemainingDisruptions,
    ) -> tuple[EmptiedNode, set[int], RemainingDisruptions] | None:
        """Empty *node* in the trial. Return how, the rows that take part in it, and what may still be evicted.

        None means that the pods do not fit, and that the trial is unchanged.
        """
        room = self._room([*self._base.groups.spot.rows.tolist(), *receivers])
        question, mark = Question.of(node.candidate), self._attempt.trial.savepoint()
        remaining = remaining.copy()
        remaining.spend(node.examined.evictions)
        placed = self._at_once(question, room)
        if not isinstance(placed, Stuck):
            return EmptiedNode(node), {row for _, row in placed} & set(receivers), remaining
        keys = {pod.key for pod in node.leftovers}
        others = replace(question, pods=[pod for pod in question.pods if pod.key not in keys])
        if not keys or isinstance(self._at_once(others, room), Stuck):
            return None
        gone = set(self._gone)
        given = self._given(node.leftovers, receivers, remaining)
        if given is None:
            self._gone = gone
            undo(question, room, mark)
            return None
        taking, by_row, remaining = given
        return (
            EmptiedNode(node, tuple(self._giver(row, pods) for row, pods in by_row.items() if pods)),
            taking,
            remaining,
        )

    def _given(
        self, leftovers: Sequence[Pod], receivers: Sequence[int], remaining: RemainingDisruptions
    ) -> tuple[set[int], dict[int, list[Pod]], RemainingDisruptions] | None:
        """Place *leftovers*, for which the receivers give pods. Return the rows that take part, and what they give."""
        sizes, filters, trial = self._shared.room.sizes, self._shared.room.filters, self._attempt.trial
        given: dict[int, list[Pod]] = {}
        taking: set[int] = set()
        for pod in sorted(leftovers, key=lambda pod: (-sizes.of(pod.cls), pod.key)):
            row = filters.first(pod.cls, Targets(receivers)) if receivers else None
            if row is None:
                found = self._first_giving(pod, receivers, remaining)
                if found is None:
                    return None
                row, pods, remaining = found
                given[row] = [*given.get(row, []), *pods]
                self._gone |= {each.key for each in pods}
                trial.evict(*pods)
                self._moved(pods)
            trial.place(pod.cls, row)
            taking.add(row)
        return taking, given, remaining

    def _first_giving(
        self, pod: Pod, receivers: Sequence[int], remaining: RemainingDisruptions
    ) -> tuple[int, list[Pod], RemainingDisruptions] | None:
        """Return the first row of which pods make room for *pod*, these pods, and what may still be evicted."""
        possible = set(self._shared.room.filters.possible(pod.cls, np.array(receivers, np.intp)))
        for row in islice((row for row in receivers if row in possible and self._could_give(row, pod)), _GIVERS):
            mark = self._attempt.trial.savepoint()
            found = self._room_on(row, pod, remaining)
            self._attempt.trial.revert(mark)
            if found is not None:
                return row, *found
        return None

    def _could_give(self, row: int, pod: Pod) -> bool:
        """Return whether the node has enough for *pod* if it gives all pods that it may give."""
        return bool((self._base.snapshot.vector(pod.cls.requests) <= self._most(row)).all())

    def _most(self, row: int) -> Numbers:
        """Return what is free on a node if it gives all pods that it may give."""
        return sum((vector for _, vector in self._movable(row)), start=self._base.snapshot.nodes.free[row])

    def _room_on(
        self, row: int, pod: Pod, remaining: RemainingDisruptions
    ) -> tuple[list[Pod], RemainingDisruptions] | None:
        """Return the fewest pods that the node in *row* gives so that *pod* fits.

        None means that they have no place, or that a pending pod would take the room before *pod* is created. One pod
        is enough if possible, the smallest one; otherwise the largest ones are given. The trial changes.
        """
        trial, snapshot = self._attempt.trial, self._base.snapshot
        need = snapshot.vector(pod.cls.requests) - snapshot.nodes.free[row]
        for pods in _ways(self._movable(row), need):
            mark = trial.savepoint()
            trial.evict(*pods)
            self._effort.spend()
            if self._taken_by_pending(row):
                return None
            if self._shared.room.filters.fits(pod.cls, row):
                trial.place(pod.cls, row)
                left = remaining.copy()
                if not left.take(left.evictions(tuple(pods))) and not isinstance(self._moved(pods), Stuck):
                    return pods, left
            trial.revert(mark)
        return None

    def _taken_by_pending(self, row: int) -> bool:
        """Return whether a pending pod that has no place in the present state would get one on the node."""
        snapshot, filters = self._base.snapshot, self._base.room.filters
        free = snapshot.nodes.free[row]
        small = [cls for cls in self._base.pending.waiting if (snapshot.vector(cls.requests) <= free).all()]
        self._effort.spend(len(small))
        return any(filters.fits(cls, row) for cls in small)

    def _moved(self, pods: Sequence[Pod]) -> Placed | Stuck:
        """Place the replacements of *pods*, which have left, on spot nodes, and return the answer."""
        incoming = [self._base.replacements.of(pod) for pod in pods]
        room = self._room(self._base.groups.spot.rows.tolist())
        return self._at_once(Question((), (), incoming), room, len(incoming))

    def _at_once(self, question: Question, attempt: Attempt, most: int | None = None) -> Placed | Stuck:
        """Place all pods in the trial with a small part of the effort, *most* at most, or leave it unchanged."""
        question = replace(question, reasons=WantedReasons.NONE)
        own = Effort(min(max(self._effort.left, 0), self._most_effort if most is None else most))
        before = own.left
        placed = at_once(question, replace(attempt, effort=own))
        self._effort.spend(len(question.pods) + before - max(own.left, 0))
        return placed

    def _movable(self, row: int) -> Sequence[tuple[Pod, Numbers]]:
        """Return the pods that the node in *row* may give, with their requests, the smallest first.

        They may be evicted, may run on spot nodes, and have not been given.
        """
        if row not in self._movable_on:
            self._movable_on[row] = self._found_movable(row)
        return [(pod, vector) for pod, vector in self._movable_on[row] if pod.key not in self._gone]

    def _found_movable(self, row: int) -> Sequence[tuple[Pod, Numbers]]:
        examined = self._givers.get(row)
        if examined is None or examined.candidate.surges or any(each.pod is None for each in examined.blockers):
            return ()
        kept, movers = {each.pod for each in examined.blockers}, examined.candidate.movers
        together, pins, of = self._shared.volumes.together(movers), self._base.pins, self._base.replacements.of
        free = [pod for pod in movers if pod.key not in kept and pod.key not in together]
        pods = [pod for pod in free if pins.of(of(pod).cls) is None]
        sizes, vector = self._shared.room.sizes, self._base.snapshot.vector
        ordered = sorted(pods, key=lambda pod: (sizes.of(pod.cls), pod.key))
        return [(pod, vector(pod.cls.requests)) for pod in ordered]

    def _giver(self, row: int, pods: Sequence[Pod]) -> Candidate:
        name, of = self._base.snapshot.nodes.names[row], self._base.replacements.of
        return Candidate(name, row, tuple(pods), tuple(map(of, pods)))

    def _room(self, rows: Sequence[int]) -> Attempt:
        return replace(
            self._attempt, shared=replace(self._shared, room=replace(self._shared.room, targets=Targets(rows)))
        )

    def _reset(self) -> None:
        self._gone = set()
        self._attempt.trial.revert(self._start)
        for node in self._nodes:
            self._attempt.trial.undrain(node.candidate.row)


def _in_order(node: LeftoverNode) -> tuple[bool, Decimal, int, int]:
    """Return a sort key: nodes without leftovers first, then the most valuable ones, with the fewest moves."""
    if not node.leftovers:
        return False, Decimal(0), 0, 0
    return True, *node.descending, len(node.candidate.movers)


def _ways(movable: Sequence[tuple[Pod, Numbers]], need: Numbers) -> Iterator[list[Pod]]:
    """Yield which of the *movable* pods leave what is needed: the smallest single ones, then several of the largest."""
    single = ([pod] for pod, vector in movable if (vector >= need).all())
    yield from islice(single, _SINGLE)
    pods: list[Pod] = []
    for pod, vector in reversed(movable):
        pods.append(pod)
        need = need - vector
        if (need <= 0).all():
            if len(pods) > 1:
                yield pods
            return
