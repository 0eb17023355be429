"""Nodes that an autoscaler adds after a loss, as places for pods that have no other. Pure.

A new node is like its template, an on-demand node: with its amounts, labels and taints, and its DaemonSets. Only pods
that each such node accepts by itself count: those that claim volumes, devices or host ports, ask for a certain node, or
depend on where others run, may need more than a node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np

from predicates.filters import Filters
from predicates.indexes.domains import HOSTNAME
from predicates.nodes import CPU, Numbers
from predicates.objects import PodClass
from predicates.plugins.pods import INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, ties_of
from predicates.snapshot import Snapshot
from rescheduler.planning.rules.pod_traits import belongs_to_node

#: The plugins that are known to accept pods on a new node with room, if they have no rules about other pods.
_KNOWN: Final = frozenset({"NodeResourcesFit", INTER_POD_AFFINITY.name, POD_TOPOLOGY_SPREAD.name})
_OF_ONE_NODE: Final = (HOSTNAME.encode(), b"matchFields")


@dataclass(frozen=True, slots=True)
class AddedNodes:
    """At most *number* new nodes like that in row *template*."""

    snapshot: Snapshot
    filters: Filters
    template: int
    number: int

    def needed(self, pods: Iterable[PodClass]) -> int | None:
        """Return how many nodes take all *pods*, the largest first; None if they do not, or too much is asked."""
        pods = list(pods)
        if not all(self._accept(pod) for pod in dict.fromkeys(pods)):
            return None
        room, capacity = list[Numbers](), self._capacity()
        vectors = [self.snapshot.vector(pod.requests) for pod in pods]
        for vector in sorted(vectors, key=lambda each: -float((each / np.maximum(capacity, 1)).max())):
            free = next((each for each in room if (vector <= each).all()), None)
            if free is None:
                free = capacity.copy()
                if len(room) == self.number or not (vector <= free).all():
                    return None
                room.append(free)
            free -= vector
        return len(room)

    def _accept(self, pod: PodClass) -> bool:
        """Return whether each new node accepts a pod of the class, if it has room."""
        if pod.claims or pod.ports or pod.spec.resource_claims or _asks_for_one_node(pod):
            return False
        if any(plugin.name not in _KNOWN for plugin in self.filters.plugins_of(pod)):
            return False
        ties = ties_of(pod, self.snapshot)
        if ties is None or any(True for _ in ties.all_counts):
            return False
        return self.template in self.filters.possible(pod, np.array([self.template], np.intp))

    def _capacity(self) -> Numbers:
        """Return what is free on a new node: all but what the pods that each such node has request."""
        table = self.snapshot.nodes
        resident = [pod for pod in self.snapshot.pods_on[table.names[self.template]].values() if belongs_to_node(pod)]
        free: Numbers = table.allocatable[self.template].copy()
        for pod in resident:
            vector = self.snapshot.vector(pod.cls.requests)
            free[: len(vector)] -= vector[: len(free)]
        return free


def largest(snapshot: Snapshot, rows: Sequence[int]) -> int | None:
    """Return the row with the most CPU, None if there is none."""
    table = snapshot.nodes
    return max(rows, key=lambda row: (int(table.allocatable[row, CPU]), table.names[row]), default=None)


def _asks_for_one_node(pod: PodClass) -> bool:
    """Return whether the class may ask for a node by its name, which a new node does not have."""
    spec = pod.spec
    asked = msgspec.json.encode((spec.node_selector, spec.affinity))
    return any(text in asked for text in _OF_ONE_NODE)
