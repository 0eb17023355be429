"""The choices of the nodes that are emptied if their leftovers go to on-demand nodes that stay.

A *leftover* is a pod that must not run on spot nodes (:mod:`rescheduler.planning.rules.leftovers`). Where the nodes
that stay have no room for it, they give pods to the spot nodes first. The choice with the most money is best, then the
one with the fewest moves: of few nodes the orders are searched, as far as the effort allows, of many some are tried.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import islice
from operator import ge, lt
from typing import Final, TypeAlias

import numpy as np

from predicates.local_results import Targets
from predicates.nodes import Numbers
from predicates.objects import Pod
from rescheduler.planning.answers.leftover_values import FEW, Rank, Values
from rescheduler.planning.budgets import RemainingDisruptions
from rescheduler.planning.examined import Examined, examine
from rescheduler.planning.money.worth import NOTHING, Value
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.placement.packing import Effort, Placed, Stuck, WantedReasons
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.question import Attempt, Question, at_once
from rescheduler.planning.rules.leftovers import rests

#: Filter evaluations beyond first-fit for each question of the search, among few candidates and among many.
EFFORT, _LITTLE_EFFORT = 200, 20

#: Filter evaluations that scoring the nodes for a pod costs.
_A_SCORE: Final = 4

#: A node that stays gives pods for a leftover: so many nodes are tried, and so many pods that are enough alone.
_GIVERS, _SINGLE = 8, 3


@dataclass(frozen=True, slots=True)
class EmptiedNode:
    """A node that may be emptied."""

    examined: Examined
    leftovers: tuple[Pod, ...]  #: of its incoming pods
    value: Value = NOTHING  #: if it is the only one, and its pods cost nothing on spot nodes
    given: tuple[Candidate, ...] = ()  #: what nodes that stay give before

    @property
    def candidate(self) -> Candidate:
        return self.examined.candidate

    @property
    def descending(self) -> tuple[Decimal, int, int]:
        """A sort key: the most valuable first, then the one with the fewest moves."""
        return -self.value[0], -self.value[2], self.moves

    @property
    def moves(self) -> int:
        return sum(len(each.movers) for each in (self.candidate, *self.given))


LeftoverChoice: TypeAlias = tuple[EmptiedNode, ...]


def rank_of(choice: LeftoverChoice, values: Values) -> Rank:
    """Return how good a choice is, as far as is known before its pods have places: the better one has the higher."""
    return values.of([each.candidate.node for each in choice]), -sum(each.moves for each in choice)


def _concerns_the_node(blocker: Blocker) -> bool:
    """Return whether *blocker* keeps all pods: also those that a node gives which is not emptied."""
    return blocker.pod is None and blocker.reason is not Reason.NOT_WORTH_IT


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Nodes that are emptied one after the other, and what that leaves."""

    remaining: RemainingDisruptions
    spare: int  #: nodes that may be emptied before the minimum is reached
    choice: LeftoverChoice = ()
    stays: frozenset[int] = frozenset()  #: rows on which leftovers have landed, or that made room

    @property
    def emptied(self) -> frozenset[int]:
        return frozenset(each.candidate.row for each in self.choice)

    @property
    def given(self) -> frozenset[str]:
        """The keys of the pods that nodes which stay have given."""
        return frozenset(pod.key for each in self.choice for giver in each.given for pod in giver.movers)

    def allows(self, node: EmptiedNode) -> bool:
        """Return whether the minimum and the budgets allow to empty *node* as well."""
        if node.candidate.counts and self.spare <= 0:
            return False
        return not self.remaining.blockers(node.examined.evictions)

    def then(self, emptied: EmptiedNode, stays: Iterable[int], remaining: RemainingDisruptions) -> "_Sequence":
        spare = self.spare - emptied.candidate.counts
        return _Sequence(remaining, spare, (*self.choice, emptied), self.stays.union(stays))


class LeftoverSearch:
    """The search for choices in the state of *attempt*, among the nodes of *values*.

    Those *kept* are not emptied, and neither are those without leftovers, unless the choice is between *every* node.
    """

    def __init__(self, attempt: Attempt, values: Values, kept: Collection[str], *, every: bool) -> None:
        self._base, self._trial, self._effort = attempt.shared, attempt.trial, attempt.effort
        self._start = self._trial.savepoint()
        self._shared = self._base.with_leftovers(set(self._base.groups.on_demand).difference(values.names))
        self._attempt = replace(attempt, shared=self._shared)
        self._first = _Sequence(attempt.remaining, self._base.minimum.spare - attempt.emptied)
        examined, row_of = {name: examine(name, self._shared) for name in values.names}, self._base.snapshot.nodes.row
        self._shared.room.filters.refresh(pod.cls for each in examined.values() for pod in each.incoming)
        found = [node for name, each in examined.items() if name not in kept and (node := self._node(each)) is not None]
        values.judge([node.candidate.node for node in found])
        found = [
            replace(node, value=values.of([node.candidate.node], {node.candidate.node: Decimal(0)})) for node in found
        ]
        self._values, possible = values, (node for node in found if self._first.allows(node) and node.value != NOTHING)
        self._nodes = [node for node in possible if every or node.leftovers]
        self.few = len(self._nodes) <= FEW  #: whether the orders are searched
        self._most_effort = EFFORT if self.few else _LITTLE_EFFORT
        self._givers = {each.candidate.row: each for each in examined.values()}
        never = {row_of[name] for name in values.names} - {node.candidate.row for node in self._nodes}
        rows = [each for each in self._shared.room.targets.rows.tolist() if each not in self._base.groups.spot.rows_set]
        self._receivers = sorted(rows, key=lambda each: each not in never)
        self._complete: list[LeftoverChoice] = []
        self._wanted: tuple[Value, ...] = (NOTHING, NOTHING)  #: what further sequences have to be worth, in one way
        self._seen = set[tuple[frozenset[int], frozenset[int]]]()
        self._movable_on: dict[int, Sequence[Pod]] = {}

    def _node(self, examined: Examined) -> EmptiedNode | None:
        """Return the node as a candidate, or None if it cannot be emptied."""
        pins, candidate = self._base.pins, examined.candidate
        if examined.blockers or not candidate.movers or candidate.surges:
            return None
        moves = zip(candidate.movers, candidate.incoming, strict=True)
        leftovers = [(pod, new) for pod, new in moves if pins.of(new.cls) is not None]
        if any(rests(pod, self._base.policy, self._base.circumstances) for pod, _ in leftovers):
            return None
        return EmptiedNode(examined, tuple(new for _, new in leftovers))

    def _allowed(self, node: EmptiedNode, done: _Sequence) -> bool:
        """Return whether *node* may be emptied after *done*, and commitments do not pay for it then."""
        names = [each.candidate.node for each in (*done.choice, node)]
        return done.allows(node) and self._values.costs(names)[names[-1]] != 0

    def _rank_of(self, choice: LeftoverChoice) -> Rank:
        return rank_of(choice, self._values)

    def _bounds(self, choice: LeftoverChoice) -> tuple[Value, ...]:
        """Return what *choice* is expected to save, and at most: if its pods cost nothing on spot nodes."""
        names = [each.candidate.node for each in choice]
        return self._values.of(names), self._values.of(names, dict.fromkeys(names, Decimal(0)))

    def choices(self) -> list[LeftoverChoice]:
        """Return the best choices that were found, the best first: of few nodes some, of many one."""
        by_name = sorted(self._nodes, key=lambda node: node.candidate.node)
        best = self._greedy(sorted(by_name, key=lambda node: node.descending))
        if self.few:
            self._go_on(self._first)
        else:
            best = max(best, self._greedy(sorted(by_name, key=self._load)), key=self._rank_of)
        return sorted([*self._complete, best], key=self._rank_of, reverse=True)

    def _go_on(self, done: _Sequence) -> None:
        """Empty further nodes after *done*, each in its turn, and note the sequences after which no other can be.

        Leftovers go where the scheduler would put them, and these nodes stay.
        """
        state = done.emptied, done.stays
        left = [node for node in self._nodes if node.candidate.row not in done.emptied | done.stays]
        possible = self._bounds((*done.choice, *left))
        if state in self._seen or all(map(lt, possible, self._wanted)):
            return
        self._seen.add(state)
        last, mark = True, self._trial.savepoint()
        for node, landed in self._next(done, left):
            if self._effort.exhausted:
                break
            # Where there is no room, nodes that stay anyway make it first.
            further = self._emptied(node, done, sorted(landed) or self._receivers)
            if further is not None:
                last = False
                self._go_on(replace(further, stays=further.stays | landed))
            self._trial.revert(mark)
        if last and any(map(ge, found := self._bounds(done.choice), self._wanted)):
            self._complete.append(done.choice)
            self._wanted = tuple(map(max, found, self._wanted))

    def _next(self, done: _Sequence, left: Sequence[EmptiedNode]) -> Sequence[tuple[EmptiedNode, frozenset[int]]]:
        """Return which nodes may be emptied next, with the rows where their leftovers land.

        Those come first whose leftovers keep the fewest further nodes, then those without leftovers.
        """
        landings = ((node, self._landings(node)) for node in left if self._allowed(node, done))
        found = [(node, rows) for node, rows in landings if rows is not None]
        return sorted(found, key=lambda each: (len(each[1] - done.stays), bool(each[0].leftovers), each[0].descending))

    def _landings(self, node: EmptiedNode) -> frozenset[int] | None:
        """Return the rows where the scheduler may put the leftovers of a node; none if some have no room now.

        None means that it may put one on a node that does not take leftovers.
        """
        mark, landed = self._trial.savepoint(), frozenset[int]()
        self._trial.evict(*node.candidate.evicted)
        self._trial.drain(node.candidate.row)
        for pod in node.leftovers:
            rows = self._shared.forecaster.best_rows(pod)
            self._effort.spend(_A_SCORE)
            landed = landed.union(rows) if rows else frozenset()
            if not rows or not landed.issubset(self._receivers):
                break
            self._trial.place(pod.cls, rows[0])
        self._trial.revert(mark)
        return landed if landed.issubset(self._receivers) else None

    def _load(self, node: EmptiedNode) -> float:
        """Return what the leftovers of *node* request, relative to its value."""
        return sum(self._shared.room.sizes.of(pod.cls) for pod in node.leftovers) / float(node.value[0] or 1)

    def _greedy(self, order: Sequence[EmptiedNode]) -> LeftoverChoice:
        """Empty the nodes of *order*, each in the state after the ones before, unless it has received leftovers.

        Nodes receive first that are not emptied, or come last: the last ones tend to stay.
        """
        position = {node.candidate.row: number for number, node in enumerate(order)}
        receivers, done = sorted(self._receivers, key=lambda row: -position.get(row, len(order))), self._first
        for node in order:
            if not self._effort.exhausted and node.candidate.row not in done.stays and self._allowed(node, done):
                done = self._emptied(node, done, receivers) or done
        self._trial.revert(self._start)
        return done.choice

    def _emptied(self, node: EmptiedNode, done: _Sequence, receivers: Sequence[int]) -> _Sequence | None:
        """Empty *node* in the trial after *done*; the *receivers* are tried in this order, after those that stay.

        None means that the pods do not fit, and that the trial is unchanged.
        """
        open_rows = [row for row in receivers if row not in done.emptied and row != node.candidate.row]
        open_rows.sort(key=lambda row: row not in done.stays)
        rows = [*self._base.groups.spot.rows.tolist(), *open_rows]
        question, mark, remaining = Question.of(node.candidate), self._trial.savepoint(), done.remaining.copy()
        remaining.spend(node.examined.evictions)
        placed = self._at_once(question, rows)
        if not isinstance(placed, Stuck):
            return done.then(node, {row for _, row in placed}.intersection(open_rows), remaining)
        keys = {pod.key for pod in node.leftovers}
        others = replace(question, pods=[pod for pod in question.pods if pod.key not in keys])
        if not keys or isinstance(self._at_once(others, rows), Stuck):
            return None
        given = self._with_room(node.leftovers, open_rows, remaining, done.given)
        if given is None:
            self._trial.revert(mark)
            return None
        names, of = self._base.snapshot.nodes.names, self._base.replacements.of
        givers = (Candidate(names[row], row, tuple(pods), tuple(map(of, pods))) for row, pods in given.items() if pods)
        return done.then(replace(node, given=tuple(givers)), given, remaining)

    def _with_room(
        self, leftovers: Sequence[Pod], receivers: Sequence[int], remaining: RemainingDisruptions, gone: Collection[str]
    ) -> dict[int, list[Pod]] | None:
        """Place *leftovers*, for which the receivers give pods. Return what those that take part give, by row.

        Pods that are *gone* (keys) are on no receiver. *remaining* and the trial change.
        """
        sizes, filters = self._shared.room.sizes, self._shared.room.filters
        given = defaultdict[int, list[Pod]](list)
        for pod in sorted(leftovers, key=lambda pod: (-sizes.of(pod.cls), pod.key)):
            row = filters.first(pod.cls, Targets(receivers)) if receivers else None
            if row is not None:
                given[row] += ()
                self._trial.place(pod.cls, row)
                continue
            left = {*gone, *(each.key for pods in given.values() for each in pods)}
            if (found := self._first_giving(pod, receivers, remaining, left)) is None:
                return None
            given[found[0]] += found[1]
        return given

    def _first_giving(
        self, pod: Pod, receivers: Sequence[int], remaining: RemainingDisruptions, gone: Collection[str]
    ) -> tuple[int, list[Pod]] | None:
        """Return the first row with pods that make room for *pod*, and these: the fewest. The trial contains that.

        None means that they have no place, or that a pending pod would take the room before *pod* is created. One pod
        is enough if possible, the smallest one; otherwise the largest ones are given.
        """
        possible = set(self._shared.room.filters.possible(pod.cls, np.array(receivers, np.intp)))
        need = self._base.snapshot.vector(pod.cls.requests) - self._base.snapshot.nodes.free
        ways = ((row, list(self._ways(row, need[row], gone))) for row in receivers if row in possible)
        for row, of_row in islice((each for each in ways if each[1]), _GIVERS):
            for pods in of_row:
                mark = self._trial.savepoint()
                self._trial.evict(*pods)
                self._effort.spend()
                if self._taken_by_pending(row):
                    self._trial.revert(mark)
                    break
                if self._makes_room(pods, row, pod) and not remaining.reserve(pods):
                    return row, pods
                self._trial.revert(mark)
        return None

    def _makes_room(self, pods: Sequence[Pod], row: int, pod: Pod) -> bool:
        """Place *pod* on the node in *row*, which *pods* have left, and these on spot nodes. Return whether all fit."""
        if not self._shared.room.filters.fits(pod.cls, row):
            return False
        self._trial.place(pod.cls, row)
        question = Question((), (), [self._base.replacements.of(each) for each in pods])
        return not isinstance(self._at_once(question, self._base.groups.spot.rows.tolist(), len(pods)), Stuck)

    def _taken_by_pending(self, row: int) -> bool:
        """Return whether a pending pod that has no place in the present state would get one on the node."""
        snapshot, filters = self._base.snapshot, self._base.room.filters
        free = snapshot.nodes.free[row]
        small = [cls for cls in self._base.pending.waiting if (snapshot.vector(cls.requests) <= free).all()]
        self._effort.spend(len(small))
        return any(filters.fits(cls, row) for cls in small)

    def _at_once(self, question: Question, rows: Sequence[int], most: int | None = None) -> Placed | Stuck:
        """Place all pods on *rows* with a small part of the effort, *most* at most, or leave the trial unchanged."""
        own = Effort(min(max(self._effort.left, 0), self._most_effort if most is None else most))
        before, shared = own.left, replace(self._shared, room=replace(self._shared.room, targets=Targets(rows)))
        attempt = replace(self._attempt, shared=shared, effort=own)
        placed = at_once(replace(question, reasons=WantedReasons.NONE), attempt)
        self._effort.spend(len(question.pods) + before - max(own.left, 0))
        return placed

    def _movable(self, row: int) -> Sequence[Pod]:
        """Return the pods that may be evicted from the node in *row*, and run on spot nodes, the smallest first."""
        examined = self._givers.get(row)
        if examined is None or examined.candidate.surges or any(map(_concerns_the_node, examined.blockers)):
            return ()
        movers, pins, of = examined.candidate.movers, self._base.pins, self._base.replacements.of
        kept = {*(each.pod for each in examined.blockers), *self._shared.volumes.together(movers)}
        pods = [pod for pod in movers if pod.key not in kept and pins.of(of(pod).cls) is None]
        return sorted(pods, key=lambda pod: (self._shared.room.sizes.of(pod.cls), pod.key))

    def _ways(self, row: int, need: Numbers, gone: Collection[str]) -> Iterator[list[Pod]]:
        """Yield pods that leave what is needed in *row*: the smallest single ones, then several of the largest.

        None of them is *gone* (keys) before.
        """
        if row not in self._movable_on:
            self._movable_on[row] = self._movable(row)
        movable = [pod for pod in self._movable_on[row] if pod.key not in gone]
        asked = {pod.key: self._base.snapshot.vector(pod.cls.requests) for pod in movable}
        yield from islice(([pod] for pod in movable if (asked[pod.key] >= need).all()), _SINGLE)
        pods: list[Pod] = []
        for pod in reversed(movable):
            pods.append(pod)
            need = need - asked[pod.key]
            if (need <= 0).all():
                break
        if len(pods) > 1 and (need <= 0).all():
            yield pods
