"""The changes that would let a plan free more nodes: trials without one obstacle, and without several.

Each trial starts from the finished plan, so that it never frees fewer nodes. It also drains the nodes that are
otherwise blocked only by the lifted obstacles, if their pods fit on the spot nodes in the room that the plan leaves.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from itertools import combinations
from typing import Final, TypeAlias

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import NodeFacts, PriceList, cost_on, node_facts
from rescheduler.planning.money.worth import Value, Worth, covered, summed, value_of
from rescheduler.planning.outcome import Planning, Reason
from rescheduler.planning.placement.packing import Effort, Placed, Stuck
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.question import Attempt, Question, after, at_once
from rescheduler.planning.what_if.kept_nodes import KeptNode, KeptNodes
from rescheduler.planning.what_if.lifting import OF_PODS, Obstacle, Trait, Traits
from rescheduler.planning.what_if.overview import NO_LEVERS, SETTING, Lever, RankedLevers
from rescheduler.planning.what_if.remedies import change_for

#: Filter evaluations beyond first-fit for each node of a trial.
_EFFORT: Final = 1_000

#: At most this many further obstacles are lifted together with one.
_PARTNERS: Final = 3

#: At most this many sets of further obstacles are tried at each step of a combination.
_ATTEMPTS: Final = 3

#: By trait that several controllers share: what the lever says about their pods.
_SHARED: Final = {
    Trait.SELECTOR: "demand this label of a node",
    Trait.TAINT: "do not tolerate it",
    Trait.KEY: "have this annotation or label",
    Trait.NODE_KEY: "have this annotation or label",
}

Obstacles: TypeAlias = frozenset[Obstacle]


@dataclass(frozen=True, slots=True)
class _Change:
    """What a lever changes, and the obstacles that this removes."""

    name: str  #: such as ``Deployment ci/cache`` or ``Selector pool=ci``
    text: str  #: the part to change, or whom it concerns
    texts: tuple[str, ...]  #: of ``--what-if``
    removes: Obstacles

    @property
    def is_setting(self) -> bool:
        return self.name.startswith(f"{SETTING} ")

    @classmethod
    def setting(cls, flag: str, removes: Obstacles) -> "_Change":
        """Return the change of a setting, which concerns several controllers."""
        owners = {obstacle.controller for obstacle in removes}
        return cls(f"{SETTING} {flag}", f"{len(owners)} controllers", (flag.removeprefix("--"),), removes)

    @classmethod
    def shared(cls, traits: Traits, removes: Obstacles) -> "_Change":
        """Return the change that removes *traits*, which pods of several controllers have in common."""
        by_kind: defaultdict[Trait, list[str]] = defaultdict(list)
        for kind, text in traits:
            by_kind[kind].append(text)
        if names := by_kind[Trait.VOLUME]:
            return cls.setting(f"--ignore-local-volumes={','.join(names)}", removes)
        name = ", ".join(f"{kind} {','.join(texts)}" for kind, texts in by_kind.items() if texts)
        reason = min(removes).reason
        texts = [f"unpin selector {','.join(found)}"] if (found := by_kind[Trait.SELECTOR]) else []
        keys = dict.fromkeys(text.partition(":")[0].partition("=")[0] for text in by_kind[Trait.TAINT])
        texts += [f"untaint {key}" for key in keys]
        texts += [f"allow all {reason}" for _ in (*by_kind[Trait.KEY], *by_kind[Trait.NODE_KEY])]
        number = len({obstacle.controller for obstacle in removes})
        whom = f"{number} nodes" if by_kind[Trait.NODE_KEY] else f"pods of {number} controllers"
        what = " or ".join(dict.fromkeys(_SHARED[kind] for kind, found in by_kind.items() if found))
        return cls(name, f"{whom} {what}", tuple(texts), removes)


def rank_levers(
    planning: Planning,
    shared: PlanningRound,
    prices: PriceList,
    time_is_up: Callable[[], bool],
) -> RankedLevers:
    """Rank the obstacles by the additional nodes that the plan would free without them.

    *planning* must be a plan of all nodes in sequence, made with the inputs *shared*. *time_is_up* is called before
    each node of a trial. Once it returns True, the result contains the findings so far. The snapshot is not changed.
    """
    if not planning.rejected or not len(shared.groups.spot.rows):  # without spot nodes, no change frees a node
        return NO_LEVERS
    snapshot, filters = shared.snapshot, shared.room.filters
    nodes = KeptNodes(shared, planning.steps)
    kept_nodes = tuple(nodes.each(planning.rejected))
    worth = {verdict.node: _worth(snapshot, verdict.node, prices) for verdict in planning.rejected}
    values = _Values(planning, snapshot, prices, shared.circumstances.now.date())
    with after(planning.steps, shared, Effort(0)) as attempt:
        # The results that the trials start from are computed before any of them changes a row.
        filters.refresh(pod.cls for node in kept_nodes for pod in node.incoming)
        return _Ranking(nodes, kept_nodes, worth, values, attempt, time_is_up).run()


def _worth(snapshot: Snapshot, name: str, prices: PriceList) -> Value:
    facts = node_facts(snapshot, name, spot=False)
    return prices.per_hour(facts) or Decimal(0), 1, facts.cpu


class _Values:
    """What nodes that a lever frees are worth: the price of each, without its pods' share of the spot nodes."""

    def __init__(self, planning: Planning, snapshot: Snapshot, prices: PriceList, today: date) -> None:
        self._planning = planning
        self._snapshot = snapshot
        self._prices = prices
        self._today = today
        self._facts: dict[int, NodeFacts] = {}
        self._shares: dict[Obstacles, dict[str, Decimal | None]] = defaultdict(dict)

    def note(self, lifted: Obstacles, node: str, placed: Placed) -> None:
        """Record where the pods of *node* go if *lifted* are lifted."""
        if not self._prices.empty:
            costs = [self._cost(pod, row) for pod, row in placed]
            known = [cost for cost in costs if cost is not None]
            self._shares[lifted][node] = sum(known, Decimal(0)) if len(known) == len(costs) else None

    def _cost(self, pod: Pod, row: int) -> Decimal | None:
        asked = dict(pod.cls.requests)
        return cost_on(self._target(row), asked.get("cpu", 0), asked.get("memory", 0), self._prices)

    def _target(self, row: int) -> NodeFacts:
        if row not in self._facts:
            self._facts[row] = node_facts(self._snapshot, self._snapshot.nodes.names[row], spot=True)
        return self._facts[row]

    def of(self, lifted: Obstacles, frees: Sequence[str]) -> dict[str, Worth]:
        """Return what each of *frees*, the nodes that are freed without *lifted*, is worth; empty without prices."""
        if self._prices.empty or not frees:
            return {}
        parts = self._parts(frees)
        return {node: self._worth(node, parts, self._shares[lifted].get(node)) for node in frees}

    def _worth(self, node: str, parts: Mapping[str, Decimal], share: Decimal | None) -> Worth:
        price = self._prices.per_hour(node_facts(self._snapshot, node, spot=False))
        return Worth.of(price, (price or Decimal(0)) * parts.get(node, Decimal(0)), share)

    def _parts(self, frees: Sequence[str]) -> Mapping[str, Decimal]:
        if not self._prices.commitments:
            return {}
        kept = [verdict.node for verdict in self._planning.rejected if verdict.node not in frees]
        order = [*kept, *reversed(frees), *(plan.node for plan in reversed(self._planning.plans))]
        return covered((node_facts(self._snapshot, name, spot=False) for name in order), self._prices, self._today)


class _Ranking:
    """The trials of all obstacles. That of *attempt* has the state after the plan, which is restored at the end."""

    def __init__(
        self,
        nodes: KeptNodes,
        kept_nodes: Sequence[KeptNode],
        worth: Mapping[str, Value],
        values: _Values,
        attempt: Attempt,
        time_is_up: Callable[[], bool],
    ) -> None:
        self._nodes = nodes
        self._order = {node.node: number for number, node in enumerate(kept_nodes)}
        self._worth = worth
        self._values = values
        self._attempt = attempt
        self._trial = attempt.trial
        self._time_is_up = time_is_up
        self._complete = True
        self._unfinished: set[Obstacles] = set()
        self._with: defaultdict[Obstacle, list[KeptNode]] = defaultdict(list)
        for node in kept_nodes:
            for obstacle in node.obstacles:
                self._with[obstacle].append(node)

    def run(self) -> RankedLevers:
        """Try each obstacle alone, then in combination: in both cases the one that may free the most nodes comes first.

        What concerns several controllers is tried first: settings, and what their pods have in common. A setting is a
        lever if it frees more than a change of any single controller. It stands for the obstacles that it removes and
        that free nothing alone, and what pods have in common for all obstacles that free no other node.
        """
        settings, shared = self._settings(), self._shared()
        frees = {change: self._freed_without(change.removes) for change in self._most_first((*settings, *shared))}
        frees_alone = {
            obstacle: self._freed_without(frozenset({obstacle}))
            for obstacle in self._sorted(lambda obstacle: self._only(frozenset({obstacle})))
        }
        changes = _without_repeated(
            (
                change
                for change in (*shared, *settings)
                if not change.is_setting
                or self._sum(frees[change]) > max(self._sum(frees_alone[each]) for each in change.removes)
            ),
            frees,
        )
        levers = [self._lever(change, frees[change]) for change in changes]
        levers += self._alone(frees_alone, changes, {change: frees[change] for change in changes if change in shared})
        by_edits: dict[Obstacles, Lever] = {}  # of two that need each other, one is enough
        for lever in sorted(levers, key=self._usefulness, reverse=True):
            by_edits.setdefault(frozenset(lever.edits), lever)
        return RankedLevers(tuple(by_edits.values()), self._complete)

    def _alone(
        self,
        frees_alone: Mapping[Obstacle, tuple[str, ...]],
        changes: Iterable[_Change],
        shared: Mapping[_Change, tuple[str, ...]],
    ) -> Iterator[Lever]:
        """Yield the levers of single obstacles, without those for which *changes* stand, of which some are *shared*."""
        covered = {each for change in changes if change.is_setting for each in change.removes}
        alike: defaultdict[Obstacle, set[str]] = defaultdict(set)
        for change, frees in shared.items():
            for obstacle in change.removes:
                alike[obstacle].update(frees)
        for obstacle in self._sorted(self._with.__getitem__):
            lever = self._lever(self._of_owner(obstacle), frees_alone[obstacle])
            stands_for = alike[obstacle].issuperset(lever.frees or lever.nodes)
            if not stands_for and (lever.frees or obstacle not in covered):
                yield lever

    def _settings(self) -> list[_Change]:
        """Return the settings that remove obstacles of several controllers. The mildest come first."""
        flags = {each.flag: self._because_of(reason) for reason, each in OF_PODS.items() if each.flag}
        graces = self._because_of(Reason.GRACE_PERIOD)
        longest = max((int(obstacle.description.rpartition(" ")[2]) for obstacle in graces), default=0)
        flags[f"--max-graceful-termination={longest}s"] = graces
        return [_Change.setting(flag, removes) for flag, removes in flags.items() if len(removes) > 1]

    def _because_of(self, reason: Reason) -> Obstacles:
        return frozenset(obstacle for obstacle in self._with if obstacle.reason is reason)

    def _shared(self) -> list[_Change]:
        """Return the changes that remove what pods of several controllers have in common, such as a selector.

        One change is for each set of traits that several controllers have, and removes the obstacles with any of them.
        """
        by_traits: defaultdict[Traits, list[Obstacle]] = defaultdict(list)
        for obstacle in self._with:
            by_traits[obstacle.traits].append(obstacle)
        users = Counter(trait for traits, found in by_traits.items() for trait in traits for _ in found)
        common = {trait for trait, number in users.items() if number > 1}
        sets = {traits for traits in by_traits if traits and common.issuperset(traits)}
        sets.add(tuple(sorted({trait for each in sets for trait in each if trait[0] is Trait.VOLUME})))
        changes = []
        for traits in sorted(sets - {()}, key=lambda each: (len(each), each)):
            some = (found for own, found in by_traits.items() if own and set(traits).issuperset(own))
            removes = [obstacle for found in some for obstacle in found]
            if len(removes) > 1:
                changes.append(_Change.shared(traits, frozenset(removes)))
        return changes

    def _most_first(self, changes: Iterable[_Change]) -> list[_Change]:
        """Return *changes* in the order of what they may free at most, so that a time limit ends the others."""
        return sorted(
            changes, key=lambda change: self._sum(node.node for node in self._only(change.removes)), reverse=True
        )

    def _of_owner(self, obstacle: Obstacle) -> _Change:
        return _Change(str(obstacle.controller), obstacle.description, (self._change(obstacle),), frozenset({obstacle}))

    def _sorted(self, nodes: Callable[[Obstacle], Iterable[KeptNode]]) -> list[Obstacle]:
        by_name = sorted(self._with)
        return sorted(by_name, key=lambda obstacle: self._sum(node.node for node in nodes(obstacle)), reverse=True)

    def _only(self, lifted: Obstacles) -> list[KeptNode]:
        """Return the nodes that have no obstacles except *lifted*: no trial can free more."""
        nodes = {
            node.node: node
            for obstacle in lifted
            for node in self._with[obstacle]
            if node.obstacles <= lifted and not node.stays
        }
        return sorted(nodes.values(), key=lambda node: self._order[node.node])

    def _lever(self, change: _Change, frees: tuple[str, ...]) -> Lever:
        obstacles = change.removes
        partners, together = self._combined(obstacles, frees)
        worths = self._values.of(obstacles, frees)
        worths_together = self._values.of(obstacles | frozenset(partners), together)
        return Lever(
            controller=change.name,
            reason=min(obstacles).reason,
            obstacle=change.text,
            nodes=tuple(node.node for node in self._nodes_with(obstacles)),
            frees=frees,
            together_with=tuple(map(str, partners)),
            frees_together=together,
            tried=obstacles not in self._unfinished,
            changes=change.texts,
            changes_together=tuple(map(self._change, partners)),
            obstacles=tuple(sorted(obstacles)),
            partners=partners,
            worth=summed(worths.values()),
            worth_together=summed(worths_together.values()),
            worths=worths if frees else worths_together,
        )

    def _change(self, obstacle: Obstacle) -> str:
        return change_for(obstacle, self._nodes.snapshot, self._nodes.needed(obstacle))

    def _nodes_with(self, obstacles: Obstacles) -> list[KeptNode]:
        nodes = {node.node: node for obstacle in obstacles for node in self._with[obstacle]}
        return sorted(nodes.values(), key=lambda node: self._order[node.node])

    def _combined(self, obstacles: Obstacles, frees: tuple[str, ...]) -> tuple[tuple[Obstacle, ...], tuple[str, ...]]:
        """Add further obstacles greedily. Return these obstacles, and the nodes that are freed if all are removed."""
        lifted, best = obstacles, frees
        while (extended := self._extended(obstacles, lifted, best)) is not None:
            lifted, best = extended
        partners = tuple(sorted(lifted - obstacles))
        return partners, best if partners else ()

    def _extended(
        self, obstacles: Obstacles, lifted: Obstacles, frees: tuple[str, ...]
    ) -> tuple[Obstacles, tuple[str, ...]] | None:
        """Return *lifted* with more obstacles that free more of the nodes with *obstacles*, or None."""
        if self._time_is_up():
            self._complete = False
            return None
        own = self._nodes_with(obstacles)
        before = len(frozenset(frees).intersection(node.node for node in own))
        for further in self._further_obstacles(own, lifted, _PARTNERS - len(lifted - obstacles)):
            result = self._freed_without(lifted | further)
            if len(frozenset(result).intersection(node.node for node in own)) > before:
                return lifted | further, result
        return None

    def _further_obstacles(self, own: Iterable[KeptNode], lifted: Obstacles, limit: int) -> list[Obstacles]:
        """Return the sets of at most *limit* further obstacles that may free the most of *own*, the best first."""
        nodes: defaultdict[Obstacles, list[str]] = defaultdict(list)
        for node in own:
            if not node.stays:
                nodes[node.obstacles - lifted].append(node.node)
        candidates = sorted((further for further in nodes if 0 < len(further) <= limit), key=sorted)
        candidates.sort(key=lambda further: (-len(further), self._sum(_of_subsets(nodes, further))), reverse=True)
        return candidates[:_ATTEMPTS]

    def _freed_without(self, lifted: Obstacles) -> tuple[str, ...]:
        """Return the nodes that can also be drained without the obstacles *lifted*."""
        if not (nodes := self._only(lifted)):
            return ()
        mark = self._trial.savepoint()
        remaining, spare = self._nodes.remaining(lifted), self._nodes.spare
        drained: list[str] = []
        for node in nodes:
            if self._time_is_up():
                self._complete = False
                self._unfinished.add(lifted)
                break
            if node.counts and spare <= 0:
                continue
            tentative = remaining.copy()
            if not tentative.reserve(node.movers) and (placed := self._drained(node)) is not None:
                self._values.note(lifted, node.node, placed)
                remaining = tentative
                spare -= node.counts
                drained.append(node.node)
        self._trial.revert(mark)
        return tuple(drained)

    def _drained(self, node: KeptNode) -> Placed | None:
        """Drain *node* within the trial. Return where its pods go; None, and an unchanged trial, if not all fit."""
        placed = at_once(Question.of(node), replace(self._attempt, effort=Effort(_EFFORT)))
        return None if isinstance(placed, Stuck) else placed

    def _sum(self, nodes: Iterable[str]) -> Value:
        return value_of(self._worth[node] for node in nodes)

    def _usefulness(self, lever: Lever) -> tuple[Value, Value, Value]:
        """Return what *lever* frees alone and together, by what is saved, and what it concerns."""
        _, nodes, cpu = self._sum(lever.frees)
        _, nodes_together, cpu_together = self._sum(lever.frees_together)
        alone, together = lever.worth.saved or Decimal(0), lever.worth_together.saved or Decimal(0)
        return (alone, nodes, cpu), (together, nodes_together, cpu_together), self._sum(lever.nodes)


def _without_repeated(changes: Iterable[_Change], frees: Mapping[_Change, tuple[str, ...]]) -> list[_Change]:
    """Return *changes*, the mildest first, without those that free nothing but what milder ones free that they contain.

    Changes that free nothing stay: together with others they may.
    """
    kept: list[_Change] = []
    for change in changes:
        milder = {node for each in kept if each.removes <= change.removes for node in frees[each]}
        if not frees[change] or not milder.issuperset(frees[change]):
            kept.append(change)
    return kept


def _of_subsets(nodes: Mapping[Obstacles, Sequence[str]], obstacles: Obstacles) -> Iterator[str]:
    """Yield the *nodes* whose obstacles are all in the small set *obstacles*."""
    for size in range(len(obstacles) + 1):
        for some in combinations(sorted(obstacles), size):
            yield from nodes.get(frozenset(some), ())
