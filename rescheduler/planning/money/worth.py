"""What a drained node is worth: the one calculation of money for plans, pages, metrics and the ledger. Pure.

A node is worth its price, without what a commitment pays anyway, and without its pods' share of the spot nodes.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.objects import Pod
from rescheduler.planning.forms import money, per_month
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import HOURS_PER_MONTH, NodeFacts, PriceList, cost_on
from rescheduler.planning.outcome import Placement, Plan, Planning

_ZERO: Final = Decimal(0)

#: How useful it is to free nodes: money per hour, their number, vCPU in millicores. The larger, the better.
Value: TypeAlias = tuple[Decimal, int, int]

NOTHING: Final[Value] = (_ZERO, 0, 0)


def value_of(values: Iterable[Value]) -> Value:
    """Return the sum of *values*."""
    money, nodes, cpu = NOTHING
    for each in values:
        money, nodes, cpu = money + each[0], nodes + each[1], cpu + each[2]
    return money, nodes, cpu


def net_per_hour(price: Decimal | None, committed: Decimal, spot: Decimal | None) -> Decimal | None:
    """Return what is saved per hour, at least 0; None if the price or the share of the spot nodes is not known."""
    if price is None or spot is None:
        return None
    return max(price - committed - spot, _ZERO)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a drained node, or several, cost and save. All amounts are per hour."""

    gross: Decimal | None = None  #: the prices of the nodes that have one; None if none has
    committed: Decimal = _ZERO  #: the part of *gross* that commitments pay anyway
    spot: Decimal | None = None  #: the pods' share of the spot nodes; None if it is not known
    net: Decimal | None = None  #: what is saved; None if *gross* or *spot* is not known

    @classmethod
    def of(cls, price: Decimal | None, committed: Decimal, spot: Decimal | None) -> "Worth":
        """Return the worth of one node."""
        return cls(price, committed, spot, net_per_hour(price, committed, spot))

    def __neg__(self) -> "Worth":
        """Return the worth of a node that is no longer drained."""
        gross, spot, net = (None if amount is None else -amount for amount in (self.gross, self.spot, self.net))
        return Worth(gross, -self.committed, spot, net)

    @property
    def saved(self) -> Decimal | None:
        """What is saved, as far as it is known: without the pods' share of the spot nodes if that is not known."""
        if self.net is not None or self.gross is None:
            return self.net
        return self.gross - self.committed

    @property
    def saved_per_month(self) -> Decimal | None:
        return _month(self.saved)

    @property
    def net_per_month(self) -> Decimal | None:
        return _month(self.net)

    @property
    def gross_per_month(self) -> Decimal | None:
        return _month(self.gross)

    @property
    def committed_per_month(self) -> Decimal:
        return self.committed * HOURS_PER_MONTH

    @property
    def spot_per_month(self) -> Decimal | None:
        return _month(self.spot)

    @property
    def balance_per_month(self) -> Decimal | None:
        """What is saved, below 0 if the pods cost more on spot nodes than their nodes; as far as it is known."""
        saved = self.saved
        return None if saved is None else (saved - self.excess) * HOURS_PER_MONTH

    @property
    def excess(self) -> Decimal:
        """What pods cost on spot nodes beyond the price of their nodes, per hour."""
        if self.gross is None or self.spot is None or self.net is None:
            return _ZERO
        return max(self.net - (self.gross - self.committed - self.spot), _ZERO)


NO_WORTH: Final = Worth()


def _month(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else amount * HOURS_PER_MONTH


def summed(worths: Iterable[Worth]) -> Worth:
    """Return the sum. Nodes without a price count for nothing; what is unknown of a node with a price is unknown.

    What is saved by a node is at least 0, so *net* may be more than gross - committed - spot: see :attr:`Worth.excess`.
    """
    priced = [worth for worth in worths if worth.gross is not None]
    if not priced:
        return NO_WORTH
    gross = sum((worth.gross for worth in priced if worth.gross is not None), _ZERO)
    committed = sum((worth.committed for worth in priced), _ZERO)
    nets = [worth.net for worth in priced if worth.net is not None]
    if len(nets) < len(priced):
        return Worth(gross, committed)
    spot = sum((worth.spot for worth in priced if worth.spot is not None), _ZERO)
    return Worth(gross, committed, spot, sum(nets, _ZERO))


def spot_share(
    placements: Iterable[Placement],
    pod_of: Callable[[str], Pod | None],
    facts_of: Callable[[str], NodeFacts | None],
    prices: PriceList,
) -> Decimal | None:
    """Return the cost per hour of the placed pods on their spot nodes; None if a price is not known.

    *pod_of* and *facts_of* return the pod ``namespace/name`` and the node with a name. On-demand nodes that stay cost
    nothing more.
    """
    total = _ZERO
    for placement in placements:
        pod, target = pod_of(str(placement.pod)), facts_of(placement.node)
        if target is not None and not target.spot:
            continue
        asked = dict(pod.cls.requests) if pod is not None else {}
        cost = cost_on(target, asked.get("cpu", 0), asked.get("memory", 0), prices) if target is not None else None
        if cost is None:
            return None
        total += cost
    return total


def covered(nodes: Iterable[NodeFacts], prices: PriceList, today: date) -> dict[str, Decimal]:
    """Return the part of the price of each node that commitments pay, from 0 to 1, by name; only nodes with a part.

    *nodes* are all on-demand nodes, those that will be drained last first: commitments pay for the nodes that stay.
    Commitments for an instance type are used before those for a family, and these before those for all types.
    """
    left = [_Left(each) for each in sorted(prices.commitments, key=lambda each: (-len(each.instance), each.per_hour))]
    parts = {node.name: _part(node, prices.per_hour(node), left, today) for node in nodes} if left else {}
    return {name: part for name, part in parts.items() if part}


def unpaid(nodes: Iterable[NodeFacts], prices: PriceList, today: date) -> dict[str, Decimal]:
    """Return what each node that has a price costs per hour, without what commitments pay; see :func:`covered`."""
    known = list(nodes)
    parts, costs = covered(known, prices, today), {node.name: prices.per_hour(node) for node in known}
    return {name: cost * (1 - parts.get(name, _ZERO)) for name, cost in costs.items() if cost is not None}


def worth_by_node(
    planning: Planning,
    facts: Mapping[str, NodeFacts],
    pod_of: Callable[[str], Pod | None],
    prices: PriceList,
    today: date,
) -> dict[str, Worth]:
    """Return what each node with a plan is worth, by name. *facts* are those of all on-demand and all target nodes."""
    if prices.empty:
        return {}
    staying = [verdict.node for verdict in planning.rejected] + [plan.node for plan in reversed(planning.plans)]
    parts = covered((facts[name] for name in staying if name in facts), prices, today)
    return {
        plan.node: _worth(plan, facts[plan.node], parts.get(plan.node, _ZERO), facts, pod_of, prices)
        for plan in planning.plans
        if plan.node in facts
    }


def _worth(
    plan: Plan,
    node: NodeFacts,
    part: Decimal,
    facts: Mapping[str, NodeFacts],
    pod_of: Callable[[str], Pod | None],
    prices: PriceList,
) -> Worth:
    price = prices.per_hour(node)
    return Worth.of(price, (price or _ZERO) * part, spot_share(plan.moves, pod_of, facts.get, prices))


class _Left:
    """What is left of a commitment."""

    def __init__(self, commitment: Commitment) -> None:
        self.commitment = commitment
        self.money = commitment.per_hour
        self._used: dict[str, int] = {}

    def takes(self, node: NodeFacts) -> bool:
        """Return whether the commitment pays for *node* as one of its number of nodes, and count it."""
        key = node.instance_type if self.commitment.of_each_type else ""
        used = self._used.get(key, 0)
        self._used[key] = used + (used < self.commitment.nodes)
        return used < self.commitment.nodes


def _part(node: NodeFacts, price: Decimal | None, left: Iterable[_Left], today: date) -> Decimal:
    part = _ZERO
    for each in left:
        if part >= 1 or not each.commitment.covers(node.instance_type, node.zone, today):
            continue
        if not part and each.takes(node):
            return Decimal(1)
        if price and each.money > 0:
            paid = min(each.money, price * (1 - part))
            each.money -= paid
            part += paid / price
    return min(part, Decimal(1))


@dataclass(frozen=True, slots=True)
class AddedSpot:
    """Spot nodes that do not exist yet, and what they cost per hour. Amounts are None if they are not known."""

    nodes: int
    cost: Decimal | None  #: of all of them
    counted: Decimal | None  #: the part of *cost* that is already in the moved pods' share of the spot nodes

    @property
    def cost_per_month(self) -> Decimal | None:
        return _month(self.cost)

    @property
    def counted_per_month(self) -> Decimal | None:
        return _month(self.counted)

    def net_change_per_month(self, before: Decimal | None, after: Decimal | None) -> Decimal | None:
        """Return what the plans save more per month with these nodes than *before*, less what the nodes cost.

        *before* and *after* are the balances per month of the plans without and with them.
        """
        cost, counted = self.cost_per_month, self.counted_per_month
        if before is None or after is None or cost is None or counted is None:
            return None
        return after - before - cost + counted


def added_spot(
    added: Mapping[str, NodeFacts], planning: Planning, pod_of: Callable[[str], Pod | None], prices: PriceList
) -> AddedSpot:
    """Return what the nodes *added* (by name) cost, and the share of the pods that *planning* moves to them."""
    known = [prices.per_hour(node) for node in added.values()]
    cost = sum((price for price in known if price is not None), _ZERO) if None not in known else None
    moves = (placement for plan in planning.plans for placement in plan.moves if placement.node in added)
    return AddedSpot(len(added), cost, spot_share(moves, pod_of, added.get, prices))


def saves(worth: Worth, currency: str, *, at_least: bool = False) -> str:
    """Return what *worth* saves, for a headline: ``saves 273 $/month: nodes 518, their share of spot 245``.

    *at_least* means that further nodes have no price. Return "" if no price is known.
    """
    if worth.gross_per_month is None:
        return ""
    least = "at least " if at_least else ""
    paid = f", {money(worth.committed_per_month, '')} of it paid by commitments anyway" if worth.committed else ""
    if worth.net_per_month is None or worth.spot_per_month is None:
        gross = per_month(worth.gross_per_month, currency)
        return f"frees nodes of {least}{gross}{paid}; their share of spot is not known"
    if not worth.spot and not worth.committed:
        return f"saves {least}{per_month(worth.net_per_month, currency)}"
    nodes, spot = money(worth.gross_per_month, ""), money(worth.spot_per_month, "")
    excess = money(worth.excess * HOURS_PER_MONTH, "")
    more = f"; spot costs more than the nodes, by {excess}" if worth.excess else ""
    saved = per_month(worth.net_per_month, currency)
    return f"saves {least}{saved}: nodes {nodes}{paid}, their share of spot {spot}{more}"
