"""The watched cluster as orders of spot room query it. Not thread-safe."""

from collections.abc import Collection, Mapping, Sequence

from predicates.objects import Namespace, Node, NodeSelectorTerm, Pod
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.watched_state import State
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import Policy
from rescheduler.planning.room.orders import RoomSearch
from rescheduler.planning.room.placeholders import Placeholder
from rescheduler.planning.room.templates import templates
from rescheduler.planning.room.volume_terms import volume_terms


class RoomView:
    """The cluster state that orders of spot room depend on."""

    def __init__(self, state: State, policy: Policy, view: ClusterView) -> None:
        self._state = state
        self._policy = policy
        self._view = view

    @property
    def spot_label(self) -> NodeLabels:
        return self._policy.spot_label

    def placeholders(self, node: str = "") -> list[Placeholder]:
        """Return the placeholders of this installation, for the pods of *node* or of all nodes, by name."""
        return [placeholder for placeholder in self._view.placeholders() if node in ("", placeholder.for_node)]

    def node(self, name: str) -> Node | None:
        return self._view.node(name)

    def must_move(self, node: str) -> Sequence[Pod]:
        """Return the pods of *node*, if it exists, that must move before it is empty, by name."""
        planner, circumstances = self._view.planning()
        return planner.must_move(node, circumstances) if self._view.node(node) is not None else ()

    def search(self, prices: PriceList, most_pods: int | None, offered: Mapping[str, Node]) -> RoomSearch:
        """Return a search for orders in the current state; *offered* are the provider's own templates."""
        _, circumstances = self._view.planning()
        return RoomSearch(self._state.snapshot(), self._policy, circumstances, prices, most_pods, offered)

    def priced(self) -> list[tuple[Node, NodeFacts]]:
        """Return the nodes whose prices an order depends on: all on-demand nodes, and a spot node of each group."""
        infos = self._view.node_infos()
        on_demand = {info.node.name: info.node for info in infos.on_demand.values()}
        facts = self._view.facts_of(on_demand)
        spot = [node for name in templates(self._state.snapshot(), self._policy) if (node := self._view.node(name))]
        spot_facts = [(node, known) for node in spot if (known := self._view.facts(node.name)) is not None]
        return [*((node, facts[name]) for name, node in on_demand.items()), *spot_facts]

    def spot_nodes(self) -> list[Node]:
        """Return all spot nodes, including those that accept no pods at present."""
        return [node for node in self._view.nodes().values() if self._view.is_spot(node.name)]

    def is_spot(self, node: str) -> bool:
        return self._view.is_spot(node)

    def pods_of(self, node: str) -> Collection[Pod]:
        """Return the pods on *node* that have not finished."""
        return self._view.pods_of(node)

    def is_target(self, node: str) -> bool:
        """Return whether *node* is a spot node that accepts pods."""
        return self._view.is_spot(node) and not self._view.lost([node])

    def namespace_uid(self, name: str) -> str:
        """Return the UID of a namespace, or "" if it does not exist."""
        namespace = self._state.snapshot().of("Namespace").get(name)
        return namespace.metadata.uid if isinstance(namespace, Namespace) else ""

    def volume_terms(self, pod: Pod) -> list[tuple[NodeSelectorTerm, ...]]:
        """Return the node affinity of the volumes of *pod*.

        See :func:`~rescheduler.planning.room.volume_terms.volume_terms`.
        """
        return volume_terms(self._state.snapshot(), pod)
