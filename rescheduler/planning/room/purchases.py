"""Which spot nodes to buy: those that save the most money after a plan. Pure.

The search has three steps, of which each is more exact, takes more time and gets fewer purchases. An estimate ranks all
types in all zones: what the pods request that have no place, as if it could be split freely. A trial drains nodes by
first-fit with the new nodes of one type, and shows what each number of them frees. A plan of all nodes, the same that
``--what-if`` makes, decides.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, NamedTuple

import numpy as np

from predicates.local_results import Targets
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.survival import SIMULATION, Certificate
from rescheduler.planning.examined import Examined
from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.money.worth import summed, unpaid
from rescheduler.planning.outcome import Planning
from rescheduler.planning.placement.added_nodes import MOST_BOUGHT
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.search import Search
from rescheduler.planning.policy import Survive
from rescheduler.planning.room.additions import Additions, Parts, SpotOffer, changes_of, is_possible
from rescheduler.planning.what_if.comparison import HypotheticalPlan, added_nodes
from rescheduler.planning.what_if.overview import worths_of

#: At most so many offers get a trial, and a plan.
_TRIALS: Final = 10
_PLANNED: Final = 5

#: In clusters of at most so many nodes, in which a plan takes little time, other numbers of new nodes than those of the
#: best trials are planned, too, up to so many purchases.
_SMALL_CLUSTER: Final = 100
_PLANS: Final = 60

#: With ``--survive``: the numbers of pools over which a purchase is spread.
_SPREADS: Final = (2, 3)

_ZERO: Final = Decimal(0)
_SMALL: Final = 1e-9


@dataclass(frozen=True, slots=True)
class SpotPurchase:
    """Spot nodes to buy, and what a plan with them frees in addition to the plan without them."""

    parts: Parts
    planning: Planning  #: with them
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

    If nothing creates spot nodes, it is any type whose size is known, in the zones of nodes.
    """
    new = additions.new
    found = new.like_present(of_pools=False)
    found |= new.created() if new.sources else {change: {} for change in new.of_any_type()}
    return [offer for offer in additions.offers(found.items(), prices) if offer.most]


@dataclass(slots=True)
class PurchaseSearch:
    """One search, for what to buy after the plan of all nodes in sequence."""

    _additions: Additions
    _base: Planning
    _prices: PriceList
    _time_is_up: Callable[[], bool]
    _saved: Decimal = field(init=False)  #: what the plan saves per month
    _planned: dict[Parts, SpotPurchase] = field(default_factory=dict)
    _complete: bool = True

    def __post_init__(self) -> None:
        self._saved = _saves(self._base, self._additions, self._additions.original, self._prices)

    def run(self, number: int, survive: Survive) -> Purchases:
        """Return the best *number* of purchases that save money, with the certificate for losses of *survive*.

        If the policy demands that losses are survived, purchases are also spread over several pools.
        """
        additions, sizes = self._additions, self._additions.new.types
        every = offered(additions, self._prices)
        with additions.of(*(offer.change for offer in every)) as names:
            rows = [additions.snapshot.nodes.row[name] for [name] in names]
            lacking = self._lacking(rows)
            offers = {offer: row for offer, row in zip(every, rows, strict=True) if offer.price is not None}
            ranked = self._estimated(offers, lacking) if any(node.homeless for node in lacking) else []
        for parts in self._choices(ranked):
            if len(self._planned) >= _PLANS or self._out_of_time():
                break
            if parts not in self._planned:
                self._planned[parts] = self._plan(parts)
        best = [purchase for purchase in self._planned.values() if purchase.net_per_month > 0]
        best.sort(key=lambda purchase: (-purchase.net_per_month, purchase.cost_per_month))
        by_offers: dict[object, SpotPurchase] = {}  # of each choice of offers, the best, whatever the numbers
        for purchase in best:
            by_offers.setdefault(tuple(offer.change for offer, _ in purchase.parts), purchase)
        return Purchases(
            tuple(self._certified(each, survive, SIMULATION / number) for each in list(by_offers.values())[:number]),
            tuple(each.examined.candidate.node for each in lacking),
            len(offers),
            tuple(sorted({name for name, _, spot in self._prices.by_type if spot and name not in sizes})),
            bool(additions.new.sources),
            self._complete,
        )

    # The estimate.

    def _lacking(self, new: Collection[int]) -> list["_Lacking"]:
        """Return the nodes that only lack room, as if they were drained in turn. New spot nodes are in *new* rows."""
        base, lacking = self._base, list[_Lacking]()
        found = self._additions.lacking_room([each.node for each in base.rejected], base.steps)
        costs = self._costs({each.candidate.node for each in found})
        with self._additions.after(base.steps) as attempt:
            room = attempt.shared.room
            existing = Targets(sorted(set(room.targets.rows.tolist()).difference(new)))
            for node in found:
                attempt.trial.evict(*node.candidate.evicted)
                attempt.trial.drain(node.candidate.row)
                classes = sorted((pod.cls for pod in node.incoming), key=room.sizes.of, reverse=True)
                places = room.filters.first_fit(classes, existing, attempt.trial)
                homeless = [cls for cls, row in zip(classes, places, strict=True) if row is None]
                lacking.append(_Lacking(node, float(costs.get(node.candidate.node, 0)), homeless))
                attempt.trial.keep()
        return lacking

    def _costs(self, nodes: Collection[str]) -> Mapping[str, Decimal]:
        """Return what nodes cost per hour, without what commitments pay: *nodes* are freed after those with plans."""
        staying = sorted((each.node for each in self._base.rejected), key=lambda name: name in nodes)
        order = (*staying, *(plan.node for plan in self._base.plans))
        facts = (node_facts(self._additions.original, name, spot=False) for name in order)
        return unpaid(facts, self._prices, self._additions.today)

    def _estimated(self, offers: Mapping[SpotOffer, int], lacking: Sequence["_Lacking"]) -> list["_Sized"]:
        """Return the estimate of each of *offers*, the most useful first. A new node of each is in its row."""
        snapshot, filters, rows = self._additions.snapshot, self._additions.planner.filters, [*offers.values()]
        classes = list(dict.fromkeys(cls for node in lacking for cls in node.homeless))
        counts = np.array([[node.homeless.count(cls) for cls in classes] for node in lacking], float)
        vectors = np.array([snapshot.vector(cls.requests) for cls in classes])
        accepting = [frozenset(filters.possible(cls, np.array(rows, np.intp))) for cls in classes]
        worth, estimates = np.array([node.worth for node in lacking]), list[_Sized]()
        for offer, row in offers.items():
            capacity = np.maximum(snapshot.nodes.free[row], 0)
            fits = np.array([row in each for each in accepting]) & (vectors <= capacity).all(axis=1)
            shares = ((counts * fits) @ vectors) / np.maximum(capacity, 1)
            useful = worth * ~((counts > 0) & ~fits).any(axis=1)
            needs, needed = np.maximum(shares.max(axis=1), _SMALL), int(np.ceil(shares.sum(axis=0).max() - _SMALL))
            saved = float(np.maximum(useful - needs * float(offer.price or 0), 0).sum())
            nodes = [lacking[index] for index in np.argsort(-useful / needs, kind="stable")]
            if fits.any():
                estimates.append(_Sized(saved, offer, max(1, needed), nodes))
        return sorted(estimates, key=lambda each: -each.saved)

    # The trials.

    def _trial(self, estimate: "_Sized") -> "_Sized":
        """Drain nodes by first-fit, and return the number of used new nodes that saves the most."""
        offer, additions = estimate.offer, self._additions
        candidates = [each.examined.candidate for each in estimate.nodes]
        evictions = {each.examined.candidate.node: each.examined.evictions for each in estimate.nodes}
        worths = {each.examined.candidate.node: each.worth for each in estimate.nodes}
        best, worth, used = estimate._replace(saved=0.0), 0.0, set[int]()
        change = replace(offer.change, count=min(offer.most, 4 * estimate.number + 8))
        with additions.of(change) as [names], additions.after(self._base.steps) as attempt:
            new = {additions.snapshot.nodes.row[name] for name in names}
            room, limit = attempt.shared.room, attempt.shared.minimum.spare - attempt.emptied
            search = Search(room, attempt.trial, candidates, evictions, attempt.remaining.copy, limit, Effort(0))
            for drained in search.run()[0]:
                used |= new.intersection(row for _, row in drained.placed)
                worth += worths[drained.candidate.node]
                saved = worth - len(used) * float(offer.price or 0)
                best = best._replace(saved=saved, number=len(used)) if used and saved > best.saved else best
        return best

    # The plans.

    def _choices(self, ranked: Sequence["_Sized"]) -> Iterator[Parts]:
        """Yield the best number of the best offers; in a small cluster, also all other numbers that may help."""
        tried = (self._trial(each) for each in ranked[:_TRIALS] if not self._out_of_time())
        best = sorted((each for each in tried if each.saved > 0), key=lambda each: -each.saved)
        yield from (((each.offer, each.number),) for each in best[:_PLANNED])
        if best and self._additions.policy.survive is not Survive.OFF:
            yield from self._spread(best)
        if len(self._additions.original.nodes) <= _SMALL_CLUSTER:
            for number in range(1, MOST_BOUGHT + 1):
                enough = (each for each in ranked if number <= min(each.number + 1, each.offer.most))
                yield from (((each.offer, number),) for each in enough)

    def _spread(self, tried: Sequence["_Sized"]) -> Iterator[Parts]:
        """Yield the number of the best purchase over offers of several pools, and with one node more."""
        by_zone = self._additions.policy.survive is Survive.ZONE
        by_pool: dict[str, SpotOffer] = {}
        for trial in tried:
            by_pool.setdefault(trial.offer.facts.zone if by_zone else trial.offer.pool, trial.offer)
        for pools in (number for number in _SPREADS if number <= len(by_pool)):
            for count in sorted({max(pools, tried[0].number + more) for more in (0, 1)}):
                numbers = [count // pools + (index < count % pools) for index in range(pools)]
                parts = tuple(zip(by_pool.values(), numbers, strict=False))
                if is_possible(parts):
                    yield parts

    def _plan(self, parts: Parts) -> SpotPurchase:
        """Plan all nodes with *parts*."""
        additions, policy = self._additions, self._additions.policy
        with additions.of(*changes_of(parts)):
            planning = additions.planner.plan_all(additions.circumstances, forecasts=False)
            outcome = HypotheticalPlan(planning, additions.snapshot, policy)
            prices, added = added_nodes(additions.original, policy, outcome, self._prices)
            saved = _saves(planning, additions, additions.snapshot, prices)
        assert added is not None
        before = {plan.node for plan in self._base.plans}
        frees = tuple(plan.node for plan in planning.plans if plan.node not in before)
        net = added.net_change_per_month(self._saved, saved) or _ZERO
        return SpotPurchase(parts, planning, frees, added.cost_per_month or _ZERO, net)

    def _certified(self, purchase: SpotPurchase, survive: Survive, seconds: float) -> SpotPurchase:
        if survive is Survive.OFF or self._out_of_time():
            return purchase
        additions, steps = self._additions, purchase.planning.steps
        with additions.of(*changes_of(purchase.parts)):
            certificate = additions.planner.certificate(
                additions.circumstances, survive, steps, seconds=seconds, to_first=True
            )
        return replace(purchase, survival=certificate)

    def _out_of_time(self) -> bool:
        self._complete = self._complete and not self._time_is_up()
        return not self._complete


def _saves(planning: Planning, additions: Additions, snapshot: Snapshot, prices: PriceList) -> Decimal:
    """Return what *planning* saves per month, as far as it is known."""
    return summed(worths_of(planning, snapshot, prices, additions.today).values()).balance_per_month or _ZERO


class _Lacking(NamedTuple):
    """A node that nothing but room for its pods keeps."""

    examined: Examined
    worth: float  #: per hour
    homeless: Sequence[PodClass]  #: its pods that only new spot nodes could run


class _Sized(NamedTuple):
    """What a number of nodes of an offer saves: in a trial, or all that help, if pods could be split freely."""

    saved: float  #: per hour
    offer: SpotOffer
    number: int
    nodes: Sequence[_Lacking]  #: those that are worth most for what their pods need first
