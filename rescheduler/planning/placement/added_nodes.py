"""Nodes that an autoscaler adds after a loss, as places for pods that have no other. Pure. Separate
from the losses, because it knows only nodes and their templates.

A new node is like its template, an on-demand node: with its amounts, labels and taints, and its DaemonSets. Each group
of nodes has a template, and adds no more nodes than its maximum allows. Only pods that each such node accepts by itself
count: those that claim volumes, devices or host ports, ask for a certain node, or depend on where others run, may need
more than a node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
import numpy as np

from predicates.filters import Filters
from predicates.indexes.domains import HOSTNAME
from predicates.nodes import CPU, Numbers
from predicates.objects import Node, NodePool, PodClass, QuantityText
from predicates.objects.pods import NODE_POOL
from predicates.plugins.pods import INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, ties_of
from predicates.quantity import QuantityError, parse
from predicates.snapshot import Snapshot
from rescheduler.planning.rules.pod_traits import belongs_to_node

#: The plugins that are known to accept pods on a new node with room, if they have no rules about other pods.
_KNOWN: Final = frozenset({"NodeResourcesFit", INTER_POD_AFFINITY.name, POD_TOPOLOGY_SPREAD.name})
_OF_ONE_NODE: Final = (HOSTNAME.encode(), b"matchFields")

#: The limit of a NodePool on the number of its nodes.
_NODES: Final = "nodes"


@dataclass(frozen=True, slots=True)
class Source:
    """A group of nodes that an autoscaler enlarges, by nodes like that in row *template*."""

    template: int
    pool: NodePool | None = None  #: its limits hold for all of its nodes
    most: int | None = None  #: it gets at most so many more nodes; None: any number


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """At most *number* new nodes of *sources*, the first of which that takes a pod is enlarged."""

    snapshot: Snapshot
    filters: Filters
    sources: Sequence[Source]
    number: int

    def needed(self, pods: Iterable[PodClass]) -> int | None:
        """Return how many nodes take all *pods*, the largest first; None if they do not, or too much is asked."""
        pods = list(pods)
        accepting = {pod: self._accepting(pod) for pod in dict.fromkeys(pods)}
        capacities = [self._capacity(source) for source in self.sources]
        left = [self._most(source) for source in self.sources]
        room = list[tuple[int, Numbers]]()
        vectors = {pod: self.snapshot.vector(pod.requests) for pod in accepting}
        largest_first = sorted(pods, key=lambda pod: -float((vectors[pod] / np.maximum(capacities[0], 1)).max()))
        for pod in largest_first:
            vector, numbers = vectors[pod], accepting[pod]
            free = next((free for number, free in room if number in numbers and (vector <= free).all()), None)
            if free is None:
                fitting = (each for each in numbers if left[each] > 0 and (vector <= capacities[each]).all())
                if len(room) == self.number or (number := next(fitting, None)) is None:
                    return None
                left[number] -= 1
                free = capacities[number].copy()
                room.append((number, free))
            free -= vector
        return len(room)

    def _accepting(self, pod: PodClass) -> list[int]:
        """Return the numbers of the sources whose new nodes accept a pod of the class, if they have room."""
        asked = msgspec.json.encode((pod.spec.node_selector, pod.spec.affinity))
        of_one_node = any(text in asked for text in _OF_ONE_NODE)  # by its name, which a new node does not have
        if pod.claims or pod.ports or pod.spec.resource_claims or of_one_node:
            return []
        if any(plugin.name not in _KNOWN for plugin in self.filters.plugins_of(pod)):
            return []
        ties = ties_of(pod, self.snapshot)
        if ties is None or any(True for _ in ties.all_counts):
            return []
        templates = [source.template for source in self.sources]
        possible = frozenset(self.filters.possible(pod, np.array(templates, np.intp)))
        return [number for number, template in enumerate(templates) if template in possible]

    def _capacity(self, source: Source) -> Numbers:
        """Return what is free on a new node: all but what the pods that each such node has request."""
        table = self.snapshot.nodes
        free: Numbers = table.allocatable[source.template].copy()
        for pod in filter(belongs_to_node, self.snapshot.pods_on[table.names[source.template]].values()):
            vector = self.snapshot.vector(pod.cls.requests)
            free[: len(vector)] -= vector[: len(free)]
        return free

    def _most(self, source: Source) -> int:
        """Return how many nodes the source gets at most. Nodes that are lost in the current trial leave room."""
        most = self.number if source.most is None else min(self.number, source.most)
        template = self.snapshot.nodes.nodes[source.template]
        if source.pool is None or template is None:
            return most
        return most_of(taken_by(template, left_of(source.pool, self.snapshot)), most)


#: At most this many spot nodes of a type are bought at once.
MOST_BOUGHT: Final = 100

#: By limit: how much of it is left, and what a new node takes, in thousandths. No limits: any number of nodes.
GrowthLimits: TypeAlias = Mapping[str, tuple[int, int]]


def most_of(limits: GrowthLimits, most: int = MOST_BOUGHT) -> int:
    """Return the number of nodes that *limits* allow, at most *most*; none if one is exceeded, as in Karpenter."""
    if any(left < 0 for left, _ in limits.values()):
        return 0
    return min((most, *(left // taken for left, taken in limits.values() if taken > 0)))


def left_of(pool: NodePool, snapshot: Snapshot) -> dict[str, int]:
    """Return what *pool* may add by resource, in thousandths; less than 0 if a limit, or a node of it, cannot be read.

    The whole capacity of its nodes counts, as in Karpenter. A pool with a fixed number of nodes has no other limit.
    """
    fixed, name = pool.spec.replicas, pool.metadata.name
    limits = pool.spec.limits if fixed is None else {_NODES: str(fixed)}
    present = [node for node in snapshot.nodes if node.metadata.labels.get(NODE_POOL) == name]
    return {key: millis(limit, -1) - sum(_amount(node, key) for node in present) for key, limit in limits.items()}


def taken_by(node: Node, left: Mapping[str, int]) -> GrowthLimits:
    """Return the limits for new nodes like *node* where so much is *left*."""
    return {resource: (amount, _amount(node, resource)) for resource, amount in left.items()}


def _amount(node: Node, resource: str) -> int:
    """Return what *node* counts for a limit, in thousandths; more than any limit if it cannot be read."""
    amounts = {**node.status.allocatable, **node.status.capacity, _NODES: "1"}
    return millis(amounts.get(resource, "0"), 1 << 62)


def millis(text: QuantityText, otherwise: int) -> int:
    """Return an amount in thousandths; *otherwise* if it cannot be read."""
    try:
        return parse(text).millis
    except QuantityError:
        return otherwise


def sources(snapshot: Snapshot, rows: Iterable[int], growth: Mapping[str, tuple[str, int]]) -> list[Source]:
    """Return the groups of the on-demand nodes in *rows*, each with its largest node; that of the largest comes first.

    A group is a NodePool of Karpenter, or a group of the cloud provider, in *growth* by node. All other nodes are one.
    """
    table = snapshot.nodes
    pools = {pool.metadata.name: pool for pool in snapshot.of("NodePool").values() if isinstance(pool, NodePool)}
    found: dict[object, Source] = {}
    for row in sorted(rows, key=lambda row: (int(table.allocatable[row, CPU]), table.names[row]), reverse=True):
        node = table.nodes[row]
        pool = None if node is None else pools.get(node.metadata.labels.get(NODE_POOL, ""))
        group, most = growth.get(table.names[row], (None, None))
        found.setdefault((pool and pool.metadata.name, group), Source(row, pool, most))
    return list(found.values())
