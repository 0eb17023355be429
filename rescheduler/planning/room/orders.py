"""Orders of spot room: how many new spot nodes would accept all pods of an on-demand node, and whether that pays."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.forms import count
from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.money.worth import NO_WORTH, Worth, covered
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.placement.added_nodes import GrowthLimits
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.room.additions import Additions, SpotOffer, changes_of
from rescheduler.planning.room.manifests import why_not_served
from rescheduler.planning.what_if.added_spot import AddSpot

_ZERO: Final = Decimal(0)

# Comparison of the cost of new spot nodes with the cost of the on-demand nodes that they free.


@dataclass(frozen=True, slots=True)
class Exchange:
    """The nodes that an order frees for those that it adds, in money and in vCPU."""

    freed_cpu: int  #: allocatable, in millicores
    added_cpu: int
    committed_cpu: int = 0  #: the part of *freed_cpu* that commitments pay anyway
    worth: Worth = NO_WORTH  #: with the price of the added nodes as :attr:`Worth.spot`; no worth if a price is unknown

    @property
    def pays(self) -> bool:
        """Return whether more is freed than added.

        Without prices, the numbers of vCPU are compared. They may be equal, because spot capacity costs less.
        """
        if self.worth.net is not None:
            return self.worth.net > 0
        return 0 < self.added_cpu <= self.freed_cpu - self.committed_cpu

    def __str__(self) -> str:
        value = self.worth
        if value.gross is not None and value.spot is not None:
            paid = f" ({value.committed:.4f} of it paid by commitments anyway)" if value.committed else ""
            return f"frees {value.gross:.4f}{paid} and adds {value.spot:.4f} per hour"
        paid = f" ({self.committed_cpu / 1000:g} of it paid by commitments anyway)" if self.committed_cpu else ""
        return f"frees {self.freed_cpu / 1000:g} vCPU{paid} and adds {self.added_cpu / 1000:g}"


# The rules are applied to a copy of the snapshot with additional empty nodes. The nodes that the autoscaler adds later
# may differ. Drains are planned only on nodes that exist.

#: At most this many groups are tried.
MOST_GROUPS: Final = 8

#: At most this many nodes are added for one on-demand node.
MOST_ADDED: Final = 20

#: For at most this many groups of spot nodes, the cheapest first, an order is judged exactly.
_EXACT: Final = 2


@dataclass(frozen=True, slots=True)
class RoomOrder:
    """New spot nodes for the pods of an on-demand node."""

    node: str
    template: str  #: the node, or the template of the provider, that the new nodes resemble
    count: int  #: number of new nodes
    plan: Plan  #: for *node*, with the new nodes
    freed: tuple[str, ...]  #: the on-demand nodes that could be drained with the new nodes
    exchange: Exchange


@dataclass(frozen=True, slots=True)
class NotOrdered:
    """The reason why no spot room is ordered for a node."""

    node: str
    why: str


def candidates(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the nodes of *verdicts* whose only obstacle is room on spot nodes, in their order."""
    return [each.node for each in verdicts if isinstance(each, Rejected) and each.lacks_only_room]


def _why_no_placeholders(pods: Collection[Pod], limit: int) -> str:
    """Return why placeholders cannot represent *pods*, or "". At most *limit* may be created."""
    if len(pods) > limit:
        return f"{len(pods)} pods would need placeholders; --max-placeholders={limit}"
    reasons = (f"pod {pod.key}: {why}" for pod in pods if (why := why_not_served(pod.cls)))
    return next(reasons, "")


class RoomSearch:
    """Finds orders on a copy of one snapshot. Valid while the snapshot does not change."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        circumstances: Circumstances,
        prices: PriceList,
        most_pods: int | None,
        provided: Iterable[Node] = (),
    ) -> None:
        """Copy *snapshot*. *most_pods* limits the pods per node, which each need a placeholder; None is no limit.

        *provided* are the provider's own templates, of groups without nodes. Without placeholders, which NodePools and
        MachineSets make nodes for, the provider makes nodes only of these groups and of those of spot nodes.
        """
        self._additions = Additions(snapshot, policy, circumstances)
        self._planner = self._additions.planner
        self._circumstances = circumstances
        self._prices = prices
        self._most_pods = most_pods
        new = self._additions.new
        made: list[tuple[AddSpot, GrowthLimits]] = [(AddSpot(1, template=each), {}) for each in provided]
        created = () if most_pods is None else new.created().items()
        found = islice(chain(new.like_present(of_pools=True).items(), made, created), MOST_GROUPS)
        self._offers = self._additions.offers(found, prices, of_models=True)

    def order(self, node: str) -> RoomOrder | NotOrdered:
        """Return the cheapest order for *node*, or the reason why no order is worth its price."""
        pods = self._planner.must_move(node, self._circumstances)
        if self._most_pods is not None and (why := _why_no_placeholders(pods, self._most_pods)):
            return NotOrdered(node, why)
        offers = self._offers or self._additions.offers([(AddSpot(1, like=node), {})], self._prices, of_models=True)
        sized = [(offer, self._needed(node, offer)) for offer in offers]
        usable = [(offer, number) for offer, number in sized if isinstance(number, int)]
        if not usable:
            return next(number for _, number in sized if isinstance(number, NotOrdered))
        for offer, number in sorted(usable, key=_cost)[:_EXACT]:
            if isinstance(order := self._order_of(node, offer, number), RoomOrder):
                break
        return order

    def _needed(self, node: str, offer: SpotOffer) -> int | NotOrdered:
        """Return how many new nodes of *offer* the pods of *node* would use if enough were available."""
        name, most = offer.facts.name, min(self._most_pods or MOST_ADDED, MOST_ADDED, offer.most)
        if not most:
            return NotOrdered(node, f"what has created {name} may add no more nodes: its limit is reached")
        with self._additions.of(*changes_of(((offer, most),))) as [names]:
            verdict = self._planner.look_again(node, self._circumstances)
        if isinstance(verdict, Rejected):
            return NotOrdered(node, f"new spot nodes like {name} would not help: {verdict.blockers[0].text}")
        used = len({placement.node for placement in verdict.placements}.intersection(names))
        return used or NotOrdered(node, "its pods fit on the existing spot nodes")

    def _order_of(self, node: str, offer: SpotOffer, number: int) -> RoomOrder | NotOrdered:
        """Return the order for *node* of new nodes of *offer*. Other nodes that become drainable also count."""
        new = f"{count(number, 'new spot node')} like {offer.facts.name}"
        with self._additions.of(*changes_of(((offer, number),))):
            verdict = self._planner.look_again(node, self._circumstances)
            if isinstance(verdict, Rejected):
                return NotOrdered(node, f"{new} would not help: {verdict.blockers[0].text}")
            freed: tuple[str, ...] = (node,)
            if not (value := self._exchange(freed, offer, number)).pays:
                plans = self._planner.plan_all(self._circumstances).plans
                freed = tuple(plan.node for plan in plans if plan.placements)
                value = self._exchange(freed, offer, number)
        if not value.pays or node not in freed:
            return NotOrdered(node, f"{new} would not pay off: an order {value}")
        return RoomOrder(node, offer.facts.name, number, verdict, freed, value)

    def _exchange(self, freed: Collection[str], offer: SpotOffer, number: int) -> Exchange:
        """Compare *freed* and new nodes: by money if all prices are known.

        Commitments pay for the other on-demand nodes first.
        """
        order = sorted(self._planner.on_demand(self._circumstances), key=lambda name: name in freed)
        facts = {name: node_facts(self._additions.snapshot, name, spot=False) for name in order}
        parts = covered(facts.values(), self._prices, self._circumstances.now.date())
        leaving = [(facts[name], parts.get(name, _ZERO)) for name in freed]
        cpu, added = sum(node.cpu for node, _ in leaving), number * offer.facts.cpu
        committed_cpu = sum(int(node.cpu * part) for node, part in leaving)
        prices = [(price, part) for node, part in leaving if (price := self._prices.per_hour(node)) is not None]
        if offer.price is None or len(prices) < len(leaving):
            return Exchange(cpu, added, committed_cpu)
        gross = sum((price for price, _ in prices), _ZERO)
        committed = sum((price * part for price, part in prices), _ZERO)
        worth = Worth.of(gross, committed, number * offer.price)
        return Exchange(cpu, added, committed_cpu, worth)


def _cost(sized: tuple[SpotOffer, int]) -> tuple[bool, Decimal, int, str]:
    """Return the money per hour of new nodes, if it is known, and their vCPU."""
    offer, number = sized
    return offer.price is None, number * (offer.price or _ZERO), number * offer.facts.cpu, offer.facts.name


# Explanations of why no spot room is ordered for a node, as part of its verdict.


@dataclass(frozen=True, slots=True)
class UnmetOrder:
    """An order for which no spot nodes were added in time."""

    node: str
    until: datetime  #: no other order begins before


class Explanations:
    """Adds explanations to plannings. Returns the same object again while nothing has changed."""

    def __init__(self) -> None:
        self._given: tuple[Planning, UnmetOrder | None, Mapping[str, str]] | None = None
        self._last: Planning | None = None

    def of(self, planning: Planning, unmet: UnmetOrder | None, reasons: Mapping[str, str]) -> Planning:
        """Return *planning* with a blocker for an *unmet* order and *reasons* (by node) why no order was found."""
        if unmet is None and not reasons:
            return planning
        given, last = self._given, self._last
        if last is None or given is None or given[0] is not planning or given[1:] != (unmet, reasons):
            self._given = planning, unmet, dict(reasons)
            verdicts = (explained(verdict, unmet, reasons.get(verdict.node, "")) for verdict in planning.verdicts)
            last = self._last = replace(planning, verdicts=tuple(verdicts))
        return last


def explained(verdict: Verdict, unmet: UnmetOrder | None, why: str) -> Verdict:
    """Return *verdict* with a blocker for an *unmet* order of its node.

    *why* is the reason why the last search found no order for the node, or "" if it is not known. It is added to the
    blocker of the pod that does not fit.
    """
    if not isinstance(verdict, Rejected):
        return verdict
    blockers = tuple(_with_reason(blocker, why) for blocker in verdict.blockers) if why else verdict.blockers
    if unmet is not None and unmet.node == verdict.node:
        detail = f"no spot nodes were added for its pods in time; no new order before {unmet.until:%Y-%m-%dT%H:%M:%SZ}"
        blockers = (Blocker(Reason.NO_SPOT_CAPACITY, detail), *blockers)
    return replace(verdict, blockers=blockers)


def _with_reason(blocker: Blocker, why: str) -> Blocker:
    if blocker.reason is not Reason.NO_ROOM:
        return blocker
    return replace(blocker, detail=f"{blocker.detail}; no spot room is ordered: {why}")
