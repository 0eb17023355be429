"""The requests to the provider that add spot nodes for the pods of an on-demand node and give them back."""

import contextlib
import enum
from datetime import datetime
from typing import Final

from predicates.objects import Node
from rescheduler.draining.intent import is_marked
from rescheduler.errors import NotFound, NotLeading
from rescheduler.execution import node_refs
from rescheduler.execution.context import DrainContext
from rescheduler.execution.room_view import RoomView
from rescheduler.execution.spot_templates import SpotTemplates
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.planning.room.increase import GroupSize, SpotOrder, surplus
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.timestamps import instant
from rescheduler.providers.base import Accepted, AlreadyGone, BelowMinimum, Deleted, Failed

#: Annotation of new spot nodes that are cordoned because they are unused; the value is the installation.
GIVING_BACK: Final = "spot-rescheduler/giving-back"


class GivenBack(enum.Enum):
    """The result of giving back an unused node."""

    GONE = enum.auto()
    PENDING = enum.auto()  #: the next round repeats the request
    KEPT = enum.auto()  #: the node is used, or the provider does not delete it


class SpotRequests:
    """The requests of one installation. Not thread-safe. All methods raise the errors of the provider."""

    def __init__(self, access: DrainContext, view: RoomView, templates: SpotTemplates) -> None:
        self._access = access
        self._view = view
        self._templates = templates
        self._groups: dict[str, str] = {}  # known groups by UID of a new spot node

    @property
    def provider(self) -> str:
        return self._access.provider.name

    def size_for(self, template: str) -> GroupSize | None:
        """Return the group that adds nodes like *template*, with its sizes, or None if there is none.

        *template* is the name of a spot node, or of a template of the provider.
        """
        provider = self._access.provider
        provider.refresh(deadline=self._deadline())
        node = self._view.node(template)
        if node is not None and self._view.is_spot(template):
            group = provider.group_for(node_refs.ref(node), deadline=self._deadline())
        else:
            group = self._templates.group_of(template)
        if group is None:
            return None
        return GroupSize(group.id, provider.target_size(group.id, deadline=self._deadline()), group.max_size)

    def order(self, group: str, count: int) -> None:
        """Raise the target size of *group*. Raises AboveMaximum and NotLeading."""
        self._check_leading()
        self._access.provider.increase_size(group, count, deadline=self._deadline())

    def joined(self, order: SpotOrder) -> list[Node]:
        """Return the spot nodes of the group of *order* that have joined since the order, oldest first."""
        since = order.at.replace(microsecond=0)
        created_since = [
            (created, node)
            for node in self._view.spot_nodes()
            if (created := instant(node.metadata.creation_timestamp)) is not None and created >= since
        ]
        return [node for _, node in sorted(created_since, key=_by_age) if self._group_of(node) == order.group]

    def lower(self, order: SpotOrder) -> bool:
        """Lower the target size of the group by the machines of *order* that have not arrived.

        Return False if machines that are already running may still join the cluster.
        """
        provider = self._access.provider
        provider.refresh(deadline=self._deadline())
        target = provider.target_size(order.group, deadline=self._deadline())
        if not (delta := surplus(order, target)):
            return True
        self._check_leading()
        try:
            provider.decrease_target_size(order.group, -delta, deadline=self._deadline())
        except BelowMinimum:  # some machines are running but have not joined the cluster yet
            return False
        return True

    def give_back(self, order: SpotOrder, node: Node) -> GivenBack:
        """Remove the machine and the Node of *node*, unless it runs pods that would have to move."""
        if (node.spec.unschedulable and not self._is_ours(node)) or is_marked(node):
            return GivenBack.KEPT
        name, uid = node.name, node.metadata.uid
        edit = NodeEdit(cordon=True, annotate={GIVING_BACK: self._access.identity})
        try:
            self._access.cluster.edit_node(name, uid, edit)
            if self._is_used(name):
                self._keep(node)
                return GivenBack.KEPT
        except NotFound:
            return GivenBack.GONE
        self._check_leading()
        outcome = self._access.provider.delete_nodes(order.group, [node_refs.ref(node)], deadline=self._deadline())
        match outcome[name]:
            case Deleted() | AlreadyGone():
                self._access.cluster.delete_node(name, uid)
                return GivenBack.GONE
            case Accepted() | Failed(retryable=True):
                return GivenBack.PENDING
            case _:
                self._keep(node)
                return GivenBack.KEPT

    def keep(self, node: Node) -> None:
        """Uncordon *node* if this installation, perhaps under an earlier leader, cordoned it to give it back."""
        if self._is_ours(node):
            with contextlib.suppress(NotFound):
                self._keep(node)

    def _keep(self, node: Node) -> None:
        edit = NodeEdit(cordon=False, annotate={GIVING_BACK: None})
        self._access.cluster.edit_node(node.name, node.metadata.uid, edit)

    def _is_used(self, name: str) -> bool:
        """Return whether a consistent read shows pods on the node that do not belong to it."""
        staying = {pod.uid for pod in self._view.pods_of(name) if belongs_to_node(pod)}
        fresh = self._access.cluster.read_fresh(name, (), ())
        return any(pod.node == name and not pod.finished and uid not in staying for uid, pod in fresh.pods.items())

    def _is_ours(self, node: Node) -> bool:
        return node.metadata.annotations.get(GIVING_BACK) == self._access.identity

    def _group_of(self, node: Node) -> str:
        uid = node.metadata.uid
        if uid not in self._groups:
            group = self._access.provider.group_for(node_refs.ref(node), deadline=self._deadline())
            if group is None:
                return ""
            self._groups[uid] = group.id
        return self._groups[uid]

    def _check_leading(self) -> None:
        if not self._access.leads():
            raise NotLeading("order or give back spot nodes: another replica leads")

    def _deadline(self) -> float:
        return self._access.clock.monotonic() + self._access.provider_seconds


def _by_age(entry: tuple[datetime, Node]) -> tuple[datetime, str]:
    return entry[0], entry[1].name
