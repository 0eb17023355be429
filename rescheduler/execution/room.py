"""What orders of spot room ask the provider, and the requests that add and give back nodes. Not thread-safe."""

import contextlib
import enum
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from predicates.objects import Node, NodeSpec, NodeStatus, ObjectMeta, Taint
from predicates.quantity import QuantityError
from predicates.requests import allocatable
from rescheduler.draining.actions import is_marked
from rescheduler.errors import MarkLost, NotFound, NotLeading, ReschedulerError, Withheld
from rescheduler.execution import machine_orders
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import DrainContext
from rescheduler.facts.round_facts import RoundFacts
from rescheduler.kube.cluster import NodeEdit
from rescheduler.planning.forms import instant
from rescheduler.planning.money.prices import NodeKind, kind
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.room.increase import GroupSize, SpotOrder, surplus
from rescheduler.planning.room.orders import MOST_GROUPS
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.providers.base import (
    TEMPLATE_PREFIX,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    CloudProvider,
    Deleted,
    Failed,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
)

# Templates of spot nodes from the provider, for orders of spot room from node groups without nodes.


class SpotTemplates:
    """The templates that have the labels of spot nodes. Not thread-safe."""

    def __init__(self, access: DrainContext, view: ClusterView) -> None:
        self._access = access
        self._view = view
        self._groups: dict[str, NodeGroup] = {}  # by name of the template

    def nodes(self) -> Mapping[str, Node]:
        """Return the templates that have the labels of spot nodes, by name.

        While there are spot nodes, only groups of size 0 count. The result is empty if the provider has no templates or
        does not respond.
        """
        facts, deadline = self._view.facts, self._access.clock.monotonic() + self._access.provider_seconds
        found = templates(
            self._access.provider, facts.policy.spot_label, deadline=deadline, has_spot=bool(facts.spot_nodes)
        )
        try:
            by_name = {node.name: (group, node) for group, _, node in found}
        except ReschedulerError:
            return {}
        self._groups |= {name: group for name, (group, _) in by_name.items()}
        return {name: node for name, (_, node) in by_name.items()}

    def group_of(self, template: str) -> NodeGroup | None:
        """Return the group of a template that :meth:`nodes` returned, or None if there is none with this name."""
        return self._groups.get(template)


def templates(
    provider: CloudProvider, spot_label: NodeLabels, *, deadline: float, has_spot: bool
) -> Iterator[tuple[NodeGroup, int, Node]]:
    """Yield the groups of *provider* whose templates have the labels of spot nodes, with their target sizes.

    If the cluster *has_spot* nodes, only groups of size 0 count. Raises the errors of the provider.
    """
    provider.refresh(deadline=deadline)
    for group in provider.groups(deadline=deadline):
        if (size := provider.target_size(group.id, deadline=deadline)) and has_spot:
            continue
        with contextlib.suppress(NotSupported, QuantityError):
            node = _node(group.id, provider.template(group.id, deadline=deadline))
            if spot_label.matches(node.metadata.labels):
                yield group, size, node


#: Seconds until the sizes of groups are read again.
REREAD_SECONDS: Final = 60.0


class GroupSizes:
    """The groups of the on-demand nodes, and how many more nodes each may get. Not thread-safe.

    Nodes of the same instance type, zone, amounts and taints are taken to belong to one group: the provider is asked
    about one of each kind, and about :data:`~rescheduler.planning.room.orders.MOST_GROUPS` kinds.
    """

    def __init__(self, access: DrainContext) -> None:
        self._access = access
        self._next = 0.0
        self._by_kind: dict[NodeKind, tuple[str, int]] = {}

    def of_samples(self, facts: RoundFacts) -> Mapping[str, tuple[str, int]]:
        """Return, by one on-demand node of each kind, its group and how many more nodes the group may get.

        ("", 0) if it is not known. The sizes are those of the last minute, or the last known ones while the provider
        does not respond.
        """
        nodes = facts.node_infos.on_demand
        first = {kind(info.node): info.node for _, info in sorted(nodes.items(), reverse=True)}
        now = self._access.clock.monotonic()
        if now >= self._next:
            self._next = now + REREAD_SECONDS
            with contextlib.suppress(ReschedulerError):
                self._by_kind = dict(self._read(list(first.items())[:MOST_GROUPS]))
        return {node.name: self._by_kind.get(each, ("", 0)) for each, node in first.items()}

    def _read(self, nodes: Iterable[tuple[NodeKind, Node]]) -> Iterator[tuple[NodeKind, tuple[str, int]]]:
        provider, deadline = self._access.provider, self._access.clock.monotonic() + self._access.provider_seconds
        provider.refresh(deadline=deadline)
        for each, node in nodes:
            group = provider.group_for(machine_orders.ref(node), deadline=deadline)
            if group is not None:
                yield each, (group.id, max(0, group.max_size - provider.target_size(group.id, deadline=deadline)))


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


# The requests to the provider that add spot nodes for the pods of an on-demand node and give them back.

#: Annotation of new spot nodes that are cordoned because they are unused; the value is the installation.
GIVING_BACK: Final = "spot-rescheduler/giving-back"


class GivenBack(enum.Enum):
    """The result of giving back an unused node."""

    GONE = enum.auto()
    PENDING = enum.auto()  #: the next round repeats the request
    KEPT = enum.auto()  #: the node is used, or the provider does not delete it


class SpotRequests:
    """The requests of one installation. Not thread-safe. All methods raise the errors of the provider."""

    def __init__(self, access: DrainContext, view: ClusterView, templates: SpotTemplates) -> None:
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
        node = self._view.facts.node(template)
        if node is not None and self._view.facts.is_spot(template):
            group = provider.group_for(machine_orders.ref(node), deadline=self._deadline())
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
            for node in self._view.facts.spot_nodes
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
        if self._taken(node):
            return GivenBack.KEPT
        name, uid = node.name, node.metadata.uid
        edit = NodeEdit(cordon=True, annotate={GIVING_BACK: self._access.identity}, only_if=self._taken)
        try:
            self._access.cluster.edit_node(name, uid, edit)
            if self._is_used(name):
                self._keep(node)
                return GivenBack.KEPT
        except NotFound:
            return GivenBack.GONE
        except MarkLost:
            return GivenBack.KEPT
        self._check_leading()
        look, ref = partial(self._look_again, node), machine_orders.ref(node)
        outcome = self._access.provider.delete_nodes(order.group, [ref], deadline=self._deadline(), may_end=look)
        match outcome[name]:
            case Deleted() | AlreadyGone():
                self._access.cluster.delete_node(name, uid)
                return GivenBack.GONE
            case Accepted() | Failed(retryable=True):
                return GivenBack.PENDING
            case _:
                self._keep(node)
                return GivenBack.KEPT

    def _look_again(self, node: Node, _: NodeRef) -> None:
        """Raise Withheld unless the machine of *node* may end now, by consistent reads before each request."""
        if not self._access.leads():
            raise Withheld("another replica leads")
        try:
            current = self._access.cluster.node(node.name)
        except NotFound as error:
            raise Withheld(str(error)) from error
        if current.metadata.uid != node.metadata.uid or current.spec.provider_id != node.spec.provider_id:
            raise Withheld(f"node {node.name} was replaced by another node of the same name")
        if not (current.spec.unschedulable and self._is_ours(current)) or is_marked(current):
            raise Withheld(f"another client changed node {node.name}")
        if self._is_used(node.name):
            raise Withheld(f"node {node.name} is used")

    def keep(self, node: Node) -> None:
        """Uncordon *node* if this installation, perhaps under an earlier leader, cordoned it to give it back."""
        if self._is_ours(node):
            with contextlib.suppress(NotFound):
                self._keep(node)

    def _keep(self, node: Node) -> None:
        edit = NodeEdit(cordon=False, annotate={GIVING_BACK: None}, only_if=self._not_ours)
        with contextlib.suppress(MarkLost):
            self._access.cluster.edit_node(node.name, node.metadata.uid, edit)

    def _taken(self, node: Node) -> str:
        """Return why *node* must not be cordoned to give it back, or ""."""
        return (self._not_ours(node) if node.spec.unschedulable else "") or ("it is drained" if is_marked(node) else "")

    def _not_ours(self, node: Node) -> str:
        return "" if self._is_ours(node) else "the cordon belongs to another client"

    def _is_used(self, name: str) -> bool:
        """Return whether a consistent read shows pods on the node that do not belong to it."""
        staying = {pod.uid for pod in self._view.facts.pods_of(name) if belongs_to_node(pod)}
        fresh = self._access.cluster.read_fresh(name, (), ())
        return any(pod.node == name and not pod.finished and uid not in staying for uid, pod in fresh.pods.items())

    def _is_ours(self, node: Node) -> bool:
        return node.metadata.annotations.get(GIVING_BACK) == self._access.identity

    def _group_of(self, node: Node) -> str:
        uid = node.metadata.uid
        if uid not in self._groups:
            group = self._access.provider.group_for(machine_orders.ref(node), deadline=self._deadline())
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
