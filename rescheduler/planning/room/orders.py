"""Orders of spot room: how many new spot nodes would take all pods of an on-demand node, and whether that pays.

The rules decide on a copy of the snapshot to which empty nodes were added. The nodes that the autoscaler then adds may
differ: an order only asks for them, and a drain is planned on the nodes that exist.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.added_spot import AddSpot, add_spot
from rescheduler.planning.changes import copied
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.prices import PriceList, node_facts
from rescheduler.planning.room.manifests import why_not_served
from rescheduler.planning.room.templates import templates
from rescheduler.planning.room.worth import Worth, worth

#: At most this many nodes are added for one on-demand node.
MOST_ADDED: Final = 20


_ABOUT_ROOM: Final = frozenset({Reason.NO_ROOM, Reason.NO_SPOT_CAPACITY})


@dataclass(frozen=True, slots=True)
class RoomOrder:
    """New spot nodes for the pods of an on-demand node."""

    node: str
    template: str  #: the node that the new nodes resemble
    count: int  #: number of new nodes
    plan: Plan  #: for *node*, with the new nodes
    freed: tuple[str, ...]  #: the on-demand nodes that could be drained with the new nodes
    worth: Worth


@dataclass(frozen=True, slots=True)
class NotOrdered:
    """Why no room is ordered for a node."""

    node: str
    why: str


def candidates(verdicts: Iterable[Verdict]) -> list[str]:
    """Return the nodes of *verdicts* whose only obstacle is room on spot nodes, in their order."""
    rejected = (verdict for verdict in verdicts if isinstance(verdict, Rejected))
    return [each.node for each in rejected if {blocker.reason for blocker in each.blockers} <= _ABOUT_ROOM]


def _why_no_placeholders(pods: Collection[Pod], most: int) -> str:
    """Return why placeholders cannot stand for *pods*, or "". At most *most* may be created."""
    if len(pods) > most:
        return f"{len(pods)} pods would need placeholders; --max-placeholders={most}"
    reasons = (f"pod {pod.key}: {why}" for pod in pods if (why := why_not_served(pod.cls)))
    return next(reasons, "")


class RoomSearch:
    """Finds orders on one snapshot, which it does not change. Valid while the snapshot does not change."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        circumstances: Circumstances,
        prices: PriceList,
        most_pods: int | None,
    ) -> None:
        """*most_pods* limits the pods of a node: each needs a placeholder. None: no placeholders are needed."""
        self._snapshot = snapshot
        self._policy = policy
        self._circumstances = circumstances
        self._prices = prices
        self._most_pods = most_pods
        self._templates = templates(snapshot, policy)
        self._extended: dict[str, tuple[Planner, frozenset[str]]] = {}  #: by template: with MOST_ADDED new nodes

    def order(self, node: str) -> RoomOrder | NotOrdered:
        """Return the order for *node* that pays most, or why there is none."""
        pods = Planner(self._snapshot, self._policy).must_move(node, self._circumstances)
        if self._most_pods is not None and (why := _why_no_placeholders(pods, self._most_pods)):
            return NotOrdered(node, why)
        orders = [self._order(node, template) for template in self._templates or [node]]
        usable = [order for order in orders if isinstance(order, RoomOrder)]
        if not usable:
            return next(order for order in orders if isinstance(order, NotOrdered))
        return min(usable, key=lambda order: (order.worth.added_money or 0, order.worth.added_cpu, order.template))

    def _order(self, node: str, template: str) -> RoomOrder | NotOrdered:
        """Return the order for *node* with new nodes like *template*, or why there is none."""
        planner, added = self._planner(template)
        verdict = planner.look_again(node, self._circumstances)
        if isinstance(verdict, Rejected):
            return NotOrdered(node, f"new spot nodes like {template} would not help: {verdict.blockers[0].text}")
        count = len(added & {placement.node for placement in verdict.placements})
        if not count:
            return NotOrdered(node, "its pods fit on the existing spot nodes")
        return self._exact(node, template, count)

    def _exact(self, node: str, template: str, count: int) -> RoomOrder | NotOrdered:
        """Judge *node* with exactly *count* new nodes. Other nodes that can be drained then count as well."""
        extended, added = self._with(template, count)
        planner = Planner(extended, self._policy)
        verdict = planner.look_again(node, self._circumstances)
        if isinstance(verdict, Rejected):
            return NotOrdered(
                node, f"{count} new spot nodes like {template} would not help: {verdict.blockers[0].text}"
            )
        freed: tuple[str, ...] = (node,)
        if not (value := self._worth(extended, freed, added)).pays:
            freed = tuple(plan.node for plan in planner.plan_all(self._circumstances).plans if plan.placements)
            value = self._worth(extended, freed, added)
        if not value.pays or node not in freed:
            return NotOrdered(node, f"{count} new spot nodes like {template} would not pay: an order {value}")
        return RoomOrder(node, template, count, verdict, freed, value)

    def _worth(self, extended: Snapshot, freed: Iterable[str], added: Iterable[str]) -> Worth:
        return worth(
            [node_facts(extended, name, spot=False) for name in freed],
            [node_facts(extended, name, spot=True) for name in added],
            self._prices,
        )

    def _planner(self, template: str) -> tuple[Planner, frozenset[str]]:
        if template not in self._extended:
            extended, added = self._with(template, min(self._most_pods or MOST_ADDED, MOST_ADDED))
            self._extended[template] = Planner(extended, self._policy), added
        return self._extended[template]

    def _with(self, template: str, count: int) -> tuple[Snapshot, frozenset[str]]:
        """Return a copy of the snapshot with *count* new nodes, and their names."""
        extended = copied(self._snapshot)
        add_spot(extended, self._policy, AddSpot(count, like=template))
        return extended, frozenset(extended.nodes.row.keys() - self._snapshot.nodes.row.keys())
