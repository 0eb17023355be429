"""Which spot nodes to buy: those that save the most money after a plan. Pure.

The search has three steps, of which each is more exact, takes more time and gets fewer purchases. An estimate ranks all
types in all zones: what the pods request that have no place, as if it could be split freely. A trial drains nodes by
first-fit with the new nodes of one type, and shows what each number of them frees. A plan of all nodes, the same that
``--what-if`` makes, decides.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from predicates.local_results import Targets
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.survival import SIMULATION, Certificate
from rescheduler.planning.examined import Examined
from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.money.worth import covered, summed
from rescheduler.planning.outcome import Planning
from rescheduler.planning.policy import Survive
from rescheduler.planning.room.additions import KEEP_AFTER, Additions, Parts, SpotOffer, changes_of, is_possible
from rescheduler.planning.what_if.comparison import HypotheticalPlan, added_nodes
from rescheduler.planning.what_if.overview import worths_of
from rescheduler.planning.what_if.spot_sources import MOST_BOUGHT

#: At most so many offers get a trial, and a plan.
_TRIALS: Final = 16
_PLANNED: Final = 5

#: If at most so many nodes lack room, other numbers of new nodes than those of the trials are planned, too, up to so
#: many purchases. In trials with many nodes, the numbers differ little.
_FEW: Final = 20
_PLANS: Final = 60

#: In clusters with more nodes, a plan takes long: the number of plans is less.
_SMALL_CLUSTER: Final = 100
_PLANS_OF_LARGE: Final = 10

#: With ``--survive``: the numbers of pools over which a purchase is spread.
_SPREADS: Final = (2, 3)

_ZERO: Final = Decimal(0)
_SMALL: Final = 1e-9


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
        return tuple(map(str, changes_of(self.parts)))


@dataclass(frozen=True, slots=True)
class Purchases:
    """The best purchases, the one that saves the most first."""

    best: tuple[SpotPurchase, ...] = ()
    lacking: tuple[str, ...] = ()  #: the nodes that only room for their pods keeps
    offers: int = 0  #: number of types in zones that were considered
    unknown: tuple[str, ...] = ()  #: types with a price that no node is of, so that their size is not known
    limited: bool = False  #: something creates spot nodes: other types than those of spot nodes were not considered
    complete: bool = True  #: False if the time limit ended the search


def offered(additions: Additions, prices: PriceList) -> list[SpotOffer]:
    """Return what can be bought: what creates spot nodes makes, within its limits, and nodes like other spot nodes.

    If nothing creates spot nodes, it is any type of *prices* and of nodes, in the zones of nodes.
    """
    new = additions.new
    found = new.like_present(of_pools=False)
    found |= new.created() if new.sources else {change: {} for change in new.of_any_type(prices)}
    return [offer for offer in additions.offers(found.items(), prices) if offer.most]


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
        additions, sizes = self._additions, self._additions.new.types
        every = offered(additions, self._prices)
        with additions.of(*(offer.change for offer in every)) as names:
            rows = [additions.snapshot.nodes.row[name] for [name] in names]
            lacking = additions.lacking_room([each.node for each in self._base.rejected], self._base.steps)
            offers = {offer: row for offer, row in zip(every, rows, strict=True) if offer.price}
            ranked = self._estimated(list(offers), list(offers.values()), lacking, self._without_place(lacking, rows))
        few = len(lacking) <= _FEW
        self._plan_best(ranked, self._tried(ranked[:_TRIALS], lacking, all_of=few), varied=few)
        best = [purchase for purchase, _ in self._planned.values() if purchase.net_per_month > 0]
        best.sort(key=lambda purchase: (-purchase.net_per_month, purchase.cost_per_month))
        by_offers: dict[object, SpotPurchase] = {}  # of each choice of offers, the best, whatever the numbers
        for purchase in best:
            by_offers.setdefault(tuple(offer.change for offer, _ in purchase.parts), purchase)
        return Purchases(
            tuple(self._certified(each, survive, SIMULATION / number) for each in list(by_offers.values())[:number]),
            tuple(each.candidate.node for each in lacking),
            len(offers),
            tuple(sorted({name for name, _, spot in self._prices.by_type if spot and name not in sizes})),
            bool(additions.new.sources),
            self._complete,
        )

    # The estimate.

    def _estimated(
        self,
        offers: Sequence[SpotOffer],
        rows: Sequence[int],
        lacking: Sequence[Examined],
        homeless: Sequence[Sequence[PodClass]],
    ) -> list["_Estimate"]:
        """Return the estimate of each offer, the most useful first.

        A node of each offer is in *rows*. *homeless* are the pods without a place of each node that is *lacking* room.
        """
        snapshot, filters = self._additions.snapshot, self._additions.planner.filters
        classes = list(dict.fromkeys(cls for pods in homeless for cls in pods))
        if not classes or not offers:
            return []
        counts = np.array([[pods.count(cls) for cls in classes] for pods in homeless], float)
        vectors = np.array([snapshot.vector(cls.requests) for cls in classes])
        accepting = [frozenset(filters.possible(cls, np.array(rows, np.intp))) for cls in classes]
        worth, capacities = np.array(self._values(lacking)), np.maximum(snapshot.nodes.free[rows], 0)
        fits = np.array([[row in each for each in accepting] for row in rows])
        fits &= (vectors[np.newaxis] <= capacities[:, np.newaxis]).all(axis=2)
        estimates = []
        for number, offer in enumerate(offers):
            shares = ((counts * fits[number]) @ vectors) / np.maximum(capacities[number], 1)
            usable = ~((counts > 0) & ~fits[number]).any(axis=1)
            if fits[number].any():
                saved, needed, order = _best_prefix(shares, worth * usable, float(offer.price or 0))
                estimates.append(_Estimate(saved, offer, needed, [lacking[index] for index in order]))
        return sorted(estimates, key=lambda each: -each.saved)

    def _without_place(self, lacking: Sequence[Examined], new: Iterable[int]) -> list[list[PodClass]]:
        """Return the classes of pods that fit only *new* rows, by node, if the nodes are drained in turn."""
        homeless = []
        with self._additions.after(self._base.steps) as attempt:
            room = attempt.shared.room
            existing = Targets(sorted(set(room.targets.rows.tolist()).difference(new)))
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
        return [float((self._prices.per_hour(facts[name]) or _ZERO) * (1 - parts.get(name, _ZERO))) for name in names]

    # The trials.

    def _tried(self, estimates: Iterable["_Estimate"], lacking: Sequence[Examined], *, all_of: bool) -> list["_Trial"]:
        """Return what each number of nodes of each offer saves, the most useful first.

        Unless *all_of* them are tried, the last is the one whose estimate is not more than what enough others save.
        """
        worth = dict(zip((each.candidate.node for each in lacking), self._values(lacking), strict=True))
        tried, best = list[_Trial](), list[float]()
        for saved, offer, needed, nodes in estimates:
            enough = sorted(best, reverse=True)[_PLANNED - 1 : _PLANNED]
            if self._out_of_time() or (enough and not all_of and saved <= enough[0]):
                break
            found = {0: 0.0}
            with self._additions.of(replace(offer.change, count=min(offer.most, 4 * needed + 8))) as [names]:
                gained = 0.0
                for node, used in self._additions.drained_in_turn(names, nodes, self._base.steps):
                    gained += worth[node]
                    found[used] = gained - used * float(offer.price or 0)
            del found[0]
            tried += [_Trial(saved, offer, used) for used, saved in found.items()]
            best.append(max(found.values(), default=0.0))
        return sorted(tried, key=lambda each: -each.saved)

    # The plans.

    def _plan_best(self, ranked: Sequence["_Estimate"], tried: Sequence["_Trial"], *, varied: bool) -> None:
        most = _PLANS if len(self._additions.original.nodes) <= _SMALL_CLUSTER else _PLANS_OF_LARGE
        for parts in self._choices(ranked, tried, varied=varied):
            if len(self._planned) >= most or self._out_of_time():
                break
            if parts not in self._planned:
                self._planned[parts] = self._plan(parts)

    def _choices(self, ranked: Sequence["_Estimate"], tried: Sequence["_Trial"], *, varied: bool) -> Iterator[Parts]:
        """Yield the best number of the best offers; if *varied*, also other numbers, and all up to those needed."""
        first: dict[SpotOffer, _Trial] = {}
        for trial in tried:
            first.setdefault(trial.offer, trial)
        best = [trial for trial in first.values() if trial.saved > 0]
        yield from (((trial.offer, trial.used),) for trial in best[:_PLANNED])
        if best and self._additions.policy.survive is not Survive.OFF:
            yield from self._spread(best)
        if varied:
            yield from (((trial.offer, trial.used),) for trial in tried)
            for number in range(1, MOST_BOUGHT + 1):
                enough = (each for each in ranked if number <= min(each.needed + 1, each.offer.most))
                yield from (((each.offer, number),) for each in enough)

    def _spread(self, tried: Sequence["_Trial"]) -> Iterator[Parts]:
        """Yield the number of the best purchase over offers of several pools, and with one node more."""
        by_zone = self._additions.policy.survive is Survive.ZONE
        by_pool: dict[str, SpotOffer] = {}
        for trial in tried:
            by_pool.setdefault(trial.offer.facts.zone if by_zone else trial.offer.pool, trial.offer)
        for pools in (number for number in _SPREADS if number <= len(by_pool)):
            for count in sorted({max(pools, tried[0].used + more) for more in (0, 1)}):
                numbers = [count // pools + (index < count % pools) for index in range(pools)]
                parts = tuple(zip(by_pool.values(), numbers, strict=False))
                if is_possible(parts):
                    yield parts

    def _plan(self, parts: Parts) -> tuple[SpotPurchase, Planning]:
        """Plan all nodes with *parts*."""
        additions, policy = self._additions, self._additions.policy
        with additions.of(*changes_of(parts)):
            planning = additions.planner.plan_all(additions.circumstances, forecasts=False)
            outcome = HypotheticalPlan(planning, additions.snapshot, policy)
            prices, added = added_nodes(additions.original, policy, outcome, self._prices)
            saved = self._saves(planning, prices, additions.snapshot)
        assert added is not None
        before = {plan.node for plan in self._base.plans}
        cost, counted = added.cost_per_month or _ZERO, added.counted_per_month or _ZERO
        frees = tuple(plan.node for plan in planning.plans if plan.node not in before)
        return SpotPurchase(parts, frees, cost, saved - self._saved - cost + counted), planning

    def _saves(self, planning: Planning, prices: PriceList, snapshot: Snapshot) -> Decimal:
        """Return what *planning* saves per month, as far as it is known."""
        return summed(worths_of(planning, snapshot, prices, self._today).values()).balance_per_month or _ZERO

    def _certified(self, purchase: SpotPurchase, survive: Survive, seconds: float) -> SpotPurchase:
        if survive is Survive.OFF or self._out_of_time():
            return purchase
        additions, (_, planning) = self._additions, self._planned[purchase.parts]
        with additions.of(*changes_of(purchase.parts)):
            certificate = additions.planner.certificate(
                additions.circumstances, survive, planning.steps, seconds=seconds, to_first=True
            )
        return replace(purchase, survival=certificate)

    def _out_of_time(self) -> bool:
        self._complete = self._complete and not self._time_is_up()
        return not self._complete


class _Estimate(NamedTuple):
    """What an offer would save if pods could be split freely."""

    saved: float  #: per hour, with the best number of nodes
    offer: SpotOffer
    needed: int  #: number of nodes for all pods that they accept
    nodes: Sequence[Examined]  #: in the order in which they are worth most for what they need


class _Trial(NamedTuple):
    """What a number of nodes of an offer saves in a trial."""

    saved: float  #: per hour
    offer: SpotOffer
    used: int


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
