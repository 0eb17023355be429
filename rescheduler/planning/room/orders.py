"""Orders of spot room: how many new spot nodes would accept all pods of an on-demand node, and whether that pays off.

The rules are applied to a copy of the snapshot with additional empty nodes. The nodes that the autoscaler adds later
may differ. Drains are planned only on nodes that exist.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import PriceList, node_facts
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.room.manifests import why_not_served
from rescheduler.planning.room.templates import MOST_GROUPS, templates
from rescheduler.planning.room.worth import Worth, worth
from rescheduler.planning.units import count
from rescheduler.planning.what_if.added_spot import AddSpot, add_like, add_spot
from rescheduler.planning.what_if.changes import copied

#: At most this many nodes are added for one on-demand node.
MOST_ADDED: Final = 20

#: For at most this many groups of spot nodes, the cheapest first, an order is judged exactly.
_EXACT: Final = 2


_ABOUT_ROOM: Final = frozenset({Reason.NO_ROOM, Reason.NO_SPOT_CAPACITY})


@dataclass(frozen=True, slots=True)
class RoomOrder:
    """New spot nodes for the pods of an on-demand node."""

    node: str
    template: str  #: the node, or the template of the provider, that the new nodes resemble
    count: int  #: number of new nodes
    plan: Plan  #: for *node*, with the new nodes
    freed: tuple[str, ...]  #: the on-demand nodes that could be drained with the new nodes
    worth: Worth


@dataclass(frozen=True, slots=True)
class NotOrdered:
    """The reason why no spot room is ordered for a node."""

    node: str
    why: str


def candidates(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the nodes of *verdicts* whose only obstacle is room on spot nodes, in their order."""
    rejected = (verdict for verdict in verdicts if isinstance(verdict, Rejected))
    return [each.node for each in rejected if {blocker.reason for blocker in each.blockers} <= _ABOUT_ROOM]


def _why_no_placeholders(pods: Collection[Pod], limit: int) -> str:
    """Return why placeholders cannot represent *pods*, or "". At most *limit* may be created."""
    if len(pods) > limit:
        return f"{len(pods)} pods would need placeholders; --max-placeholders={limit}"
    reasons = (f"pod {pod.key}: {why}" for pod in pods if (why := why_not_served(pod.cls)))
    return next(reasons, "")


@dataclass(frozen=True, slots=True)
class _SpotOffer:
    """New nodes of one template for an on-demand node."""

    cost: tuple[Decimal, int, str]  #: money per hour (0 if it is not known), vCPU in thousandths, the template
    count: int  #: number of new nodes


class RoomSearch:
    """Finds orders on a copy of one snapshot. Valid while the snapshot does not change."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        circumstances: Circumstances,
        prices: PriceList,
        most_pods: int | None,
        offered: Mapping[str, Node] | None = None,
    ) -> None:
        """Copy *snapshot*. *most_pods* limits the pods per node, which each need a placeholder; None is no limit.

        *offered* are the provider's own templates, by name, of groups without nodes.
        """
        self._copy = copied(snapshot)
        self._policy = policy
        self._circumstances = circumstances
        self._prices = prices
        self._most_pods = most_pods
        self._offered = offered or {}
        self._templates = [*templates(snapshot, policy), *self._offered][:MOST_GROUPS]
        self._planner = Planner(self._copy, policy)

    def order(self, node: str) -> RoomOrder | NotOrdered:
        """Return the cheapest order for *node*, or the reason why no order is worth its price."""
        pods = self._planner.must_move(node, self._circumstances)
        if self._most_pods is not None and (why := _why_no_placeholders(pods, self._most_pods)):
            return NotOrdered(node, why)
        offers = [self._offer(node, template) for template in self._templates or [node]]
        usable = sorted((offer for offer in offers if isinstance(offer, _SpotOffer)), key=lambda offer: offer.cost)
        if not usable:
            return next(offer for offer in offers if isinstance(offer, NotOrdered))
        for offer in usable[:_EXACT]:
            if isinstance(order := self._order_of(node, offer), RoomOrder):
                break
        return order

    def _offer(self, node: str, template: str) -> _SpotOffer | NotOrdered:
        """Return how many new nodes like *template* the pods of *node* would use if enough were available."""
        with self._added(node, template, min(self._most_pods or MOST_ADDED, MOST_ADDED)) as added:
            verdict = self._planner.look_again(node, self._circumstances)
            if isinstance(verdict, Rejected):
                return NotOrdered(node, f"new spot nodes like {template} would not help: {verdict.blockers[0].text}")
            used = added & {placement.node for placement in verdict.placements}
            if not used:
                return NotOrdered(node, "its pods fit on the existing spot nodes")
            value = self._worth((), used, template)
            return _SpotOffer((value.added_money or Decimal(0), value.added_cpu, template), len(used))

    def _order_of(self, node: str, offer: _SpotOffer) -> RoomOrder | NotOrdered:
        """Return the order for *node* with the new nodes of *offer*. Other nodes that become drainable also count."""
        *_, template = offer.cost
        new = f"{count(offer.count, 'new spot node')} like {template}"
        with self._added(node, template, offer.count) as added:
            verdict = self._planner.look_again(node, self._circumstances)
            if isinstance(verdict, Rejected):
                return NotOrdered(node, f"{new} would not help: {verdict.blockers[0].text}")
            freed: tuple[str, ...] = (node,)
            if not (value := self._worth(freed, added, template)).pays:
                freed = tuple(
                    plan.node for plan in self._planner.plan_all(self._circumstances).plans if plan.placements
                )
                value = self._worth(freed, added, template)
        if not value.pays or node not in freed:
            return NotOrdered(node, f"{new} would not pay off: an order {value}")
        return RoomOrder(node, template, offer.count, verdict, freed, value)

    def _worth(self, freed: Iterable[str], added: Iterable[str], template: str) -> Worth:
        """Compare *freed* and *added* nodes. The provider prices *template*, unless it is the on-demand node."""
        facts = [node_facts(self._copy, name, spot=True) for name in added]
        if template in self._templates:
            facts = [replace(facts_of_node, name=template) for facts_of_node in facts]
        return worth([node_facts(self._copy, name, spot=False) for name in freed], facts, self._prices)

    @contextmanager
    def _added(self, node: str, template: str, count: int) -> Iterator[frozenset[str]]:
        """Add *count* nodes like *template* for *node* to the copy while the block runs, and yield their names."""
        before = frozenset(self._copy.nodes.row)
        if template in self._offered:
            add_like(self._copy, self._offered[template], count, model=node)
        else:
            add_spot(self._copy, self._policy, AddSpot(count, like=template))
        added = frozenset(self._copy.nodes.row) - before
        try:
            yield added
        finally:
            for name in added:
                self._remove(name)

    def _remove(self, name: str) -> None:
        for key in list(self._copy.pods_on[name]):
            self._copy.delete("Pod", key)
        self._copy.delete("CSINode", name)
        self._copy.delete("Node", name)
