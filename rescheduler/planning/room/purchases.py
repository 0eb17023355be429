"""Which spot nodes to buy: those that save the most money after a plan. Pure.

The search has three steps, of which each is more exact, takes more time and gets fewer purchases. An estimate ranks all
types in all zones: what the pods request that have no place, as if it could be split freely. A trial drains nodes by
first-fit with the new nodes of one type, and shows what each number of them frees. A plan of all nodes, the same that
``--what-if`` makes, decides.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.local_results import Targets
from predicates.objects import PodClass
from predicates.objects.pods import NODE_POOL
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.survival import SIMULATION, Certificate
from rescheduler.planning.examined import Examined
from rescheduler.planning.money.prices import (
    NodeFacts,
    PriceList,
    instance_type,
    node_facts,
    with_added,
    zone_of,
)
from rescheduler.planning.money.worth import covered, summed
from rescheduler.planning.outcome import Planning
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.pools import pool_of
from rescheduler.planning.room.additions import KEEP_AFTER, Additions
from rescheduler.planning.room.orders import templates
from rescheduler.planning.rules.candidates import groups
from rescheduler.planning.what_if.added_spot import AddSpot, known_types
from rescheduler.planning.what_if.comparison import HypotheticalPlan, added_nodes
from rescheduler.planning.what_if.overview import worths_of
from rescheduler.planning.what_if.spot_sources import MOST_BOUGHT, GrowthLimits, limits_by_node, most_of, spot_sources

#: At most so many offers get a trial, and a plan.
_TRIALS: Final = 16
_PLANNED: Final = 5

#: If at most so many nodes lack room, other numbers of new nodes than those of the trials are planned, too, up to so
#: many purchases. In trials with many nodes, the numbers differ little.
_FEW: Final = 20
_PLANS: Final = 40

#: In clusters with more nodes, a plan takes long: the number of plans is less.
_SMALL_CLUSTER: Final = 100
_PLANS_OF_LARGE: Final = 10

#: With ``--survive``: the numbers of pools over which a purchase is spread.
_SPREADS: Final = (2, 3)

_ZERO: Final = Decimal(0)
_SMALL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class SpotOffer:
    """A spot node of one type in one zone that can be bought."""

    change: AddSpot  #: adds one
    facts: NodeFacts
    price: Decimal  #: per hour
    pool: str  #: by the labels of ``--spot-pool-label``
    limits: GrowthLimits = field(default_factory=dict, compare=False)

    @property
    def most(self) -> int:
        """The largest number that can be bought."""
        return most_of(self.limits)


#: What is bought together: offers of different pools, each with its number of nodes.
Parts: TypeAlias = tuple[tuple[SpotOffer, int], ...]


@dataclass(frozen=True, slots=True)
class SpotPurchase:
    """Spot nodes to buy, and what a plan with them frees in addition to the plan without them."""

    parts: Parts
    frees: tuple[str, ...]  #: on-demand nodes that only the plan with them drains
    cost_per_month: Decimal
    net_per_month: Decimal  #: what is saved more, without their cost, as ``--what-if`` shows it
    survival: Certificate | None = None  #: of the state after the plan with them; None if it was not computed

    @property
    def changes(self) -> tuple[str, ...]:
        """The values of ``--what-if`` that try it."""
        return tuple(str(each) for each in _changes(self.parts))


@dataclass(frozen=True, slots=True)
class Purchases:
    """The best purchases, the one that saves the most first."""

    best: tuple[SpotPurchase, ...] = ()
    lacking: tuple[str, ...] = ()  #: the nodes that only room for their pods keeps
    offers: int = 0  #: number of types in zones that were considered
    unknown: tuple[str, ...] = ()  #: types with a price that no node is of, so that their size is not known
    limited: bool = False  #: something creates spot nodes: other types than those of spot nodes were not considered
    complete: bool = True  #: False if the time limit ended the search


def offered(
    snapshot: Snapshot, policy: Policy, prices: PriceList
) -> tuple[dict[AddSpot, GrowthLimits], tuple[str, ...]]:
    """Return what could be added, one node each, and the types that have a price but no known size.

    That is what NodePools, MachineSets and the groups of Cluster Autoscaler create. If none of them creates spot nodes,
    it is any type of spot nodes, of *prices* and of other nodes, in the zones of nodes. Spot nodes of none of them can
    be added in any case. Of NodePools that create the same nodes, the first with room in its limits counts.
    """
    table, sources, known = snapshot.nodes, spot_sources(snapshot, policy), known_types(snapshot)
    limits_of = limits_by_node(sources)
    names = templates(snapshot, policy, limits_of)
    like = [node for name in names if (node := table.nodes[table.row[name]]) is not None]
    found: dict[AddSpot, GrowthLimits] = {}
    for node in like:
        if node.metadata.labels.get(NODE_POOL) not in snapshot.of("NodePool"):
            found[AddSpot(1, like=node.name)] = limits_of.get(node.name, {})
    seen = set[object]()
    for source in sources:
        for node in source.templates:
            labels = {key: value for key, value in node.metadata.labels.items() if key != NODE_POOL}
            alike, limits = (frozenset(labels.items()), node.spec.taints), source.takes(node)
            if alike not in seen and most_of(limits):
                seen.add(alike)
                found[AddSpot(1, type=instance_type(node), zone=zone_of(node), group=source.name)] = limits
    if not sources:
        zones = sorted({zone_of(node) for node in table} - {""}) or [""]
        present = {(instance_type(node), zone_of(node)) for node in like}
        listed = sorted((name, zone) for name, zone, spot in prices.by_type if spot and name in known)
        named = [(name, each) for name, zone in listed for each in zones if zone in ("", each)]
        named += [(name, zone) for name in sorted(known) for zone in zones]
        found |= {AddSpot(1, type=name, zone=zone): {} for name, zone in named if (name, zone) not in present}
    possible = {change: limits for change, limits in found.items() if most_of(limits)}
    return possible, tuple(sorted({name for name, _, spot in prices.by_type if spot} - known))


def _is_possible(parts: Parts) -> bool:
    """Return whether the limits that the offers of *parts* may share are kept."""
    taken = Counter[str]()
    for offer, number in parts:
        taken.update({limit: number * each for limit, (_, each) in offer.limits.items()})
    return all(taken[limit] <= left for offer, _ in parts for limit, (left, _) in offer.limits.items())


class PurchaseSearch:
    """One search, for what to buy after the plan *base* of all nodes in sequence."""

    def __init__(self, additions: Additions, base: Planning, prices: PriceList, time_is_up: Callable[[], bool]) -> None:
        self._additions = additions
        self._base = base
        self._prices = prices
        self._time_is_up = time_is_up
        self._today = additions.circumstances.now.date()
        self._saved = self._saves(base, prices, additions.original)
        self._planned: dict[Parts, tuple[SpotPurchase, Planning]] = {}
        self._complete = True

    def run(self, number: int, survive: Survive) -> Purchases:
        """Return the best *number* of purchases that save money, with the certificate for losses of *survive*.

        If the policy demands that losses are survived, purchases are also spread over several pools.
        """
        found, unknown = offered(self._additions.original, self._additions.policy, self._prices)
        with self._additions.of(*found) as names:
            added = [name for [name] in names]
            offers = list(self._priced(found, added))
            lacking = self._additions.lacking_room([each.node for each in self._base.rejected], self._base.steps)
            ranked = self._estimated(offers, lacking, self._without_place(lacking, added))
        few = len(lacking) <= _FEW
        self._plan_best(self._tried(ranked[:_TRIALS], lacking, all_of=few), varied=few)
        best = sorted(
            (purchase for purchase, _ in self._planned.values() if purchase.net_per_month > 0),
            key=lambda purchase: (-purchase.net_per_month, purchase.cost_per_month),
        )
        return Purchases(
            tuple(self._certified(each, survive, SIMULATION / number) for each in _one_of_each(best)[:number]),
            tuple(each.candidate.node for each in lacking),
            len(offers),
            unknown,
            bool(spot_sources(self._additions.original, self._additions.policy)),
            self._complete,
        )

    def _priced(self, found: Mapping[AddSpot, GrowthLimits], names: Sequence[str]) -> Iterator[SpotOffer]:
        """Yield the offers whose price is known: their own, or that of a spot node of their type."""
        snapshot, labels = self._additions.snapshot, self._additions.policy.spot_pool_labels
        rows = groups(self._additions.original, self._additions.policy).spot_rows
        alike = defaultdict[str, list[NodeFacts]](list)
        for row in rows:
            existing = node_facts(snapshot, self._additions.original.nodes.names[row], spot=True)
            alike[existing.instance_type].append(existing)
        for (change, limits), name in zip(found.items(), names, strict=True):
            facts = node_facts(snapshot, name, spot=True)
            price = with_added(self._prices, [facts], alike[facts.instance_type]).per_hour(facts)
            node = snapshot.nodes.nodes[snapshot.nodes.row[name]]
            if price and node is not None:
                yield SpotOffer(change, facts, price, pool_of(node.metadata.labels, labels), limits)

    # The estimate.

    def _estimated(
        self, offers: Sequence[SpotOffer], lacking: Sequence[Examined], homeless: Sequence[Sequence[PodClass]]
    ) -> list["_Estimate"]:
        """Return the estimate of each offer, the most useful first, and last those than which others are no worse.

        *homeless* are the classes of pods without a place, for each of the nodes that are *lacking* room. If losses of
        pools must be survived, the best of several pools are needed.
        """
        snapshot, filters = self._additions.snapshot, self._additions.planner.filters
        classes = list(dict.fromkeys(cls for pods in homeless for cls in pods))
        if not classes or not offers:
            return []
        rows = [snapshot.nodes.row[offer.facts.name] for offer in offers]
        counts = np.array([[pods.count(cls) for cls in classes] for pods in homeless], float)
        vectors = np.array([snapshot.vector(cls.requests) for cls in classes])
        accepting = [frozenset(filters.possible(cls, np.array(rows, np.intp))) for cls in classes]
        worth = np.array(self._values(lacking))
        capacities = np.maximum(snapshot.nodes.free[rows], 0)
        fits = np.array([[row in each for each in accepting] for row in rows])
        fits &= (vectors[np.newaxis] <= capacities[:, np.newaxis]).all(axis=2)
        beaten = _beaten(offers, np.hstack([capacities, fits]))
        estimates = []
        for number, offer in enumerate(offers):
            shares = ((counts * fits[number]) @ vectors) / np.maximum(capacities[number], 1)
            usable = ~((counts > 0) & ~fits[number]).any(axis=1)
            if fits[number].any():
                saved, needed, order = _best_prefix(shares, worth * usable, float(offer.price))
                is_beaten = beaten[number] >= (1 if self._additions.policy.survive is Survive.OFF else max(_SPREADS))
                estimates.append(_Estimate(saved, offer, needed, [lacking[index] for index in order], is_beaten))
        return sorted(estimates, key=lambda each: (each.is_beaten, -each.saved))

    def _without_place(self, lacking: Sequence[Examined], added: Iterable[str]) -> list[list[PodClass]]:
        """Return the classes of pods that fit only nodes *added*, by node, if the nodes are drained in turn."""
        homeless, new = [], {self._additions.snapshot.nodes.row[name] for name in added}
        with self._additions.after(self._base.steps) as attempt:
            room = attempt.shared.room
            existing = Targets([row for row in room.targets.rows.tolist() if row not in new])
            for node in lacking:
                attempt.trial.evict(*node.candidate.evicted)
                attempt.trial.drain(node.candidate.row)
                classes = sorted((pod.cls for pod in node.incoming), key=room.sizes.of, reverse=True)
                found = room.filters.first_fit(classes, existing, attempt.trial)
                homeless.append([cls for cls, row in zip(classes, found, strict=True) if row is None])
                if len(room.snapshot.touched) >= KEEP_AFTER:
                    attempt.trial.keep()
        return homeless

    def _values(self, lacking: Sequence[Examined]) -> list[float]:
        """Return what each of the nodes costs per hour, without what commitments pay anyway."""
        names = [each.candidate.node for each in lacking]
        others = [verdict.node for verdict in self._base.rejected if verdict.node not in names]
        order = [*others, *names, *(plan.node for plan in self._base.plans)]
        facts = {name: node_facts(self._additions.original, name, spot=False) for name in order}
        parts = covered(facts.values(), self._prices, self._today)
        prices = {name: self._prices.per_hour(facts[name]) or _ZERO for name in names}
        return [float(prices[name] * (1 - parts.get(name, _ZERO))) for name in names]

    # The trials.

    def _tried(self, estimates: Iterable["_Estimate"], lacking: Sequence[Examined], *, all_of: bool) -> list["_Trial"]:
        """Return the best number of nodes of each offer, with what it saves, the most useful first.

        Once enough are known, those than which others are no worse are not tried, nor, unless *all_of* them are, those
        whose estimate is less than what the others save.
        """
        worth = dict(zip((each.candidate.node for each in lacking), self._values(lacking), strict=True))
        tried = list[_Trial]()
        for estimate in estimates:
            enough = sorted((each.saved for each in tried), reverse=True)[_PLANNED - 1 : _PLANNED]
            if enough and (estimate.is_beaten or (not all_of and estimate.saved <= enough[0])):
                continue
            best, limit = (0.0, 0), estimate.offer.most
            for most in (min(limit, number) for number in (estimate.needed + 2, 4 * estimate.needed + 8)):
                if self._out_of_time():
                    break
                saved, freed = 0.0, 0
                with self._additions.of(replace(estimate.offer.change, count=most)) as [names]:
                    for step in self._additions.steps(names, estimate.nodes, self._base.steps):
                        saved, freed = saved + worth[step.node], freed + 1
                        best = max(best, (saved - step.used * float(estimate.offer.price), step.used))
                if freed == len(estimate.nodes) or most == limit:
                    break
            if best[1]:
                tried.append(_Trial(*best, estimate.offer, estimate.needed))
        return sorted(tried, key=lambda each: -each.saved)

    # The plans.

    def _plan_best(self, tried: Sequence["_Trial"], *, varied: bool) -> None:
        most = _PLANS if len(self._additions.original.nodes) <= _SMALL_CLUSTER else _PLANS_OF_LARGE
        for parts in self._choices(tried, varied=varied):
            if len(self._planned) >= most or self._out_of_time():
                break
            self._plan(parts)

    def _choices(self, tried: Sequence["_Trial"], *, varied: bool) -> Iterator[Parts]:
        """Yield the best of *tried*; if *varied*, also other numbers: beside that of the best, and for all pods."""
        for trial in tried[:_PLANNED]:
            yield ((trial.offer, trial.used),)
        if tried and self._additions.policy.survive is not Survive.OFF:
            yield from self._spread(tried)
        if not varied:
            return
        yield from iter(self._neighbor, None)
        yield from (((trial.offer, trial.used),) for trial in tried[_PLANNED:])
        for trial in tried[:_PLANNED]:
            yield from (((trial.offer, min(trial.offer.most, trial.needed + more)),) for more in (0, 1))
        yield from iter(self._neighbor, None)

    def _neighbor(self) -> Parts | None:
        """Return the best purchase of a single offer with one node more or less, if one of these was not planned."""
        singles = [purchase for purchase, _ in self._planned.values() if len(purchase.parts) == 1]
        if not singles:
            return None
        [(offer, count)] = max(singles, key=lambda purchase: purchase.net_per_month).parts
        others = [((offer, other),) for other in (count - 1, count + 1) if 0 < other <= offer.most]
        return next((parts for parts in others if parts not in self._planned), None)

    def _spread(self, tried: Sequence["_Trial"]) -> Iterator[Parts]:
        """Yield the number of the best purchase over offers of several pools, and with one node more."""
        by_zone = self._additions.policy.survive is Survive.ZONE
        by_pool: dict[str, SpotOffer] = {}
        for trial in tried:
            by_pool.setdefault(trial.offer.facts.zone if by_zone else trial.offer.pool, trial.offer)
        offers = list(by_pool.values())
        for pools in (number for number in _SPREADS if number <= len(offers)):
            for count in sorted({max(pools, tried[0].used + more) for more in (0, 1)}):
                numbers = [count // pools + (index < count % pools) for index in range(pools)]
                parts = tuple(zip(offers, numbers, strict=False))
                if _is_possible(parts):
                    yield parts

    def _plan(self, parts: Parts) -> None:
        """Plan all nodes with *parts*."""
        if parts in self._planned:
            return
        additions, policy = self._additions, self._additions.policy
        with additions.of(*_changes(parts)):
            planning = additions.planner.plan_all(additions.circumstances, forecasts=False)
            outcome = HypotheticalPlan(planning, additions.snapshot, policy)
            prices, added = added_nodes(additions.original, policy, outcome, self._prices)
            saved = self._saves(planning, prices, additions.snapshot)
        assert added is not None
        before = {plan.node for plan in self._base.plans}
        cost, counted = added.cost_per_month or _ZERO, added.counted_per_month or _ZERO
        frees = tuple(plan.node for plan in planning.plans if plan.node not in before)
        self._planned[parts] = SpotPurchase(parts, frees, cost, saved - self._saved - cost + counted), planning

    def _saves(self, planning: Planning, prices: PriceList, snapshot: Snapshot) -> Decimal:
        """Return what *planning* saves per month, as far as it is known."""
        return summed(worths_of(planning, snapshot, prices, self._today).values()).balance_per_month or _ZERO

    def _certified(self, purchase: SpotPurchase, survive: Survive, seconds: float) -> SpotPurchase:
        if survive is Survive.OFF or self._out_of_time():
            return purchase
        _, planning = self._planned[purchase.parts]
        with self._additions.of(*_changes(purchase.parts)):
            planner, circumstances = self._additions.planner, self._additions.circumstances
            certificate = planner.certificate(circumstances, survive, planning.steps, seconds=seconds, to_first=True)
            return replace(purchase, survival=certificate)

    def _out_of_time(self) -> bool:
        self._complete = self._complete and not self._time_is_up()
        return not self._complete


def _changes(parts: Parts) -> list[AddSpot]:
    return [replace(offer.change, count=number) for offer, number in parts]


def _one_of_each(best: Iterable[SpotPurchase]) -> list[SpotPurchase]:
    """Return the first purchase of each choice of offers, whatever their numbers."""
    first: dict[tuple[AddSpot, ...], SpotPurchase] = {}
    for purchase in best:
        first.setdefault(tuple(offer.change for offer, _ in purchase.parts), purchase)
    return list(first.values())


@dataclass(frozen=True, slots=True)
class _Estimate:
    """What an offer would save if pods could be split freely."""

    saved: float  #: per hour, with the best number of nodes
    offer: SpotOffer
    needed: int  #: number of nodes for all pods that they accept
    nodes: Sequence[Examined]  #: in the order in which they are worth most for what they need
    is_beaten: bool  #: others in its zone cost no more and have no less room


class _Trial(NamedTuple):
    """What an offer saves in a trial."""

    saved: float  #: per hour, with the best number of nodes
    used: int  #: that number
    offer: SpotOffer
    needed: int  #: as in the estimate


def _beaten(offers: Sequence[SpotOffer], room: npt.NDArray[np.float64]) -> list[int]:
    """Return how many others in its zone each offer has that cost no more and have no less *room*, by column.

    Those of which a limit allows few are no better. Of equal ones, the first counts as better.
    """
    prices = np.array([float(offer.price) for offer in offers])
    zones, numbers = np.array([offer.facts.zone for offer in offers]), np.arange(len(offers))
    free, found = np.array([offer.most >= MOST_BOUGHT for offer in offers]), list[int]()
    for number in range(len(offers)):
        better = free & (zones == zones[number]) & (prices <= prices[number]) & (room >= room[number]).all(axis=1)
        same = (prices == prices[number]) & (room == room[number]).all(axis=1)
        found.append(int((better & ~(same & (numbers >= number))).sum()))
    return found


def _best_prefix(
    shares: npt.NDArray[np.float64], worth: npt.NDArray[np.float64], price: float
) -> tuple[float, int, npt.NDArray[np.intp]]:
    """Return the most that is saved, how many new nodes the pods of all nodes need, and the nodes by worth for need.

    *shares* are the parts of a new node that the pods of each node need, by resource.
    """
    order = np.argsort(-worth / np.maximum(shares.max(axis=1), _SMALL), kind="stable")
    needed = np.ceil(shares[order].cumsum(axis=0).max(axis=1) - _SMALL)
    saved = worth[order].cumsum() - needed * price
    return float(saved.max()), max(1, int(needed[-1])), order
