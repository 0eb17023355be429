"""Templates of spot nodes from the provider, for orders of spot room from node groups without nodes."""

from collections.abc import Mapping

from predicates.objects import Node, NodeSpec, NodeStatus, ObjectMeta, Taint
from predicates.quantity import QuantityError
from predicates.requests import allocatable
from rescheduler.errors import ReschedulerError
from rescheduler.execution.context import DrainContext
from rescheduler.execution.room_view import RoomView
from rescheduler.providers.base import NodeGroup, NodeTemplate, NotSupported
from rescheduler.providers.node_ref import TEMPLATE_PREFIX


class SpotTemplates:
    """The templates that have the labels of spot nodes. Not thread-safe."""

    def __init__(self, access: DrainContext, view: RoomView) -> None:
        self._access = access
        self._view = view
        self._groups: dict[str, NodeGroup] = {}  # by name of the template

    def nodes(self) -> Mapping[str, Node]:
        """Return the templates that have the labels of spot nodes, by name.

        While there are spot nodes, only groups of size 0 count. The result is empty if the provider has no templates or
        does not respond.
        """
        has_spot = bool(self._view.spot_nodes())
        provider, deadline = self._access.provider, self._access.clock.monotonic() + self._access.provider_seconds
        nodes = {}
        try:
            provider.refresh(deadline=deadline)
            for group in provider.groups(deadline=deadline):
                if has_spot and provider.target_size(group.id, deadline=deadline):
                    continue
                node = self._template(group, deadline)
                if node is not None and self._view.spot_label.matches(node.metadata.labels):
                    self._groups[node.name] = group
                    nodes[node.name] = node
        except ReschedulerError:
            return {}
        return nodes

    def group_of(self, template: str) -> NodeGroup | None:
        """Return the group of a template that :meth:`nodes` returned, or None if there is none with this name."""
        return self._groups.get(template)

    def _template(self, group: NodeGroup, deadline: float) -> Node | None:
        try:
            return _node(group.id, self._access.provider.template(group.id, deadline=deadline))
        except (NotSupported, QuantityError):
            return None


def _node(group: str, template: NodeTemplate) -> Node:
    """Return *template* as a Node, named as Cluster Autoscaler would name it.

    Raises QuantityError if an amount is not a quantity.
    """
    allocatable(template.allocatable)
    return Node(
        metadata=ObjectMeta(name=f"{TEMPLATE_PREFIX}{group}-1", labels=dict(template.labels)),
        spec=NodeSpec(taints=tuple(Taint(taint.key, taint.effect, taint.value) for taint in template.taints)),
        status=NodeStatus(allocatable=dict(template.allocatable)),
    )
