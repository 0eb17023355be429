"""What on-demand nodes are worth that are emptied one after the other, for the choice among them.

A node is worth its price, without what commitments pay and without its pods' share of the spot nodes.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias

from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.money.worth import Value, covered, spot_share, value_of
from rescheduler.planning.outcome import Plan
from rescheduler.planning.planning_round import PlanningRound

#: For at most this many candidates the orders are searched, as long as effort is left.
FEW: Final = 10

#: Of money per hour: choices with the same value have to be equal.
_DIGITS: Final = 9

#: What the better of two choices has more of: value, then fewer moves.
Rank: TypeAlias = tuple[Value, int]


class Values:
    """What nodes that stay after *plans* are worth if they are emptied one after the other."""

    def __init__(self, shared: PlanningRound, plans: Sequence[Plan], prices: PriceList) -> None:
        self._shared, self._prices = shared, prices
        self._freed = dict.fromkeys(plan.node for plan in reversed(plans))
        self.names = [name for name in shared.groups.on_demand if name not in self._freed]
        self._facts = {name: node_facts(shared.snapshot, name, spot=False) for name in (*self.names, *self._freed)}
        self._price = {name: prices.per_hour(node) for name, node in self._facts.items()}
        self._shares: dict[str, Decimal] = {}
        self._paid: Mapping[str, Decimal] | None = None if prices.commitments else {}

    def judge(self, candidates: Sequence[str]) -> None:
        """Let commitments pay for the nodes that stay: among many, first for all but *candidates*, then for the last.

        Among few, what they pay depends on what has been emptied before.
        """
        if self._prices.commitments and len(self._facts) > FEW:
            stays = dict.fromkeys(self.names).keys() - {*candidates}
            self._paid = self._covered([*sorted(stays), *reversed(candidates)])

    def costs(self, names: Sequence[str]) -> Mapping[str, Decimal | None]:
        """Return what the nodes *names* cost per hour if they are emptied in this order, without what commitments pay.

        What is emptied after a node does not change its cost. None means that it has no price.
        """
        staying = (each for each in self.names if each not in names)
        paid = self._covered([*staying, *reversed(names)]) if self._paid is None else self._paid
        prices = ((name, self._price[name]) for name in names)
        return {name: price if price is None else price * (1 - paid.get(name, 0)) for name, price in prices}

    def _covered(self, order: Sequence[str]) -> Mapping[str, Decimal]:
        nodes = map(self._facts.__getitem__, (*order, *self._freed))
        return covered(nodes, self._prices, self._shared.circumstances.now.date())

    def of(self, names: Sequence[str], shares: Mapping[str, Decimal] | None = None) -> Value:
        """Return what *names* are worth, emptied in this order, with these *shares* of spot nodes, or what to expect.

        A node that commitments pay is worth nothing.
        """
        costs = ((name, cost) for name, cost in self.costs(names).items() if cost != 0)
        known = ((name, cost or 0, self._expected(name) if shares is None else shares[name]) for name, cost in costs)
        return value_of((max(cost - share, Decimal(0)), 1, self._facts[name].cpu) for name, cost, share in known)

    def rank(self, plans: Sequence[Plan]) -> Rank:
        """Return how good plans are: the better ones have the higher rank."""
        shares = {plan.node: self.share(plan) for plan in plans}
        return self.of(list(shares), shares), -sum(len(plan.moves) for plan in plans)

    def share(self, plan: Plan) -> Decimal:
        """Return the share of spot nodes of all pods that *plan* moves; 0 if it is not known."""
        if self._price[plan.node] is None:
            return Decimal(0)
        snapshot, spot = self._shared.snapshot, self._shared.groups.spot.rows_set
        targets = {each.node: snapshot.nodes.row[each.node] in spot for each in plan.moves}
        facts = {name: node_facts(snapshot, name, spot=is_spot) for name, is_spot in targets.items()}
        return round(spot_share(plan.moves, snapshot.pods.get, facts.get, self._prices) or Decimal(0), _DIGITS)

    def _expected(self, name: str) -> Decimal:
        """Return the mean share of the spot nodes, because it is not known yet where the pods go."""
        if name not in self._shares:
            mean = 0.0 if self._prices.empty else self._shared.worths.share(self._shared.must_move(name))
            self._shares[name] = round(Decimal(mean), _DIGITS)
        return self._shares[name]
