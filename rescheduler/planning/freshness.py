"""Checks whether the watched state has caught up with a consistent read of the API server.

A watch normally lags behind the API server by milliseconds. Before a drain relies on its plan, it compares the
watched state with a consistent read taken after the node was tainted, and waits until nothing is missing. Additional
objects in the watched state are newer, or only make plans stricter. The exception is the drained node: a pod that is
watched there but was not listed is gone, and its eviction would fail.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from predicates.objects import Node, Pod, PodDisruptionBudget
from predicates.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FreshPod:
    """A pod as returned by the API server."""

    namespace: str
    name: str
    node: str  #: "" if it is not bound
    terminating: bool = False
    finished: bool = False

    @property
    def key(self) -> str:
        """The key of the pod: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fresh:
    """A consistent read of a part of the cluster."""

    node: str  #: the drained node
    asked: frozenset[str]  #: nodes that were requested: the drained node and the targets of its pods
    nodes: Mapping[str, Node]  #: the requested nodes that exist
    pods: Mapping[str, FreshPod]  #: by UID: pods on these nodes, and unbound pods
    budgets: Mapping[str, PodDisruptionBudget]  #: by ``namespace/name``


def lag(fresh: Fresh, snapshot: Snapshot) -> str:
    """Return the first difference by which the watched *snapshot* lags behind *fresh*, in one line, or ""."""
    for differences in (_nodes(fresh, snapshot), _pods(fresh, snapshot), _budgets(fresh, snapshot)):
        for difference in differences:
            return difference
    return ""


def _nodes(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    for name in sorted(fresh.asked):
        row = snapshot.nodes.row.get(name)
        watched, current = None if row is None else snapshot.nodes.nodes[row], fresh.nodes.get(name)
        if current is None and watched is not None:
            yield f"node {name} was deleted, but is still in the cache"
        elif current is not None and watched is None:
            yield f"node {name} is not in the cache yet"
        elif current is not None and watched is not None and _facts(current) != _facts(watched):
            yield f"a change of node {name} is not in the cache yet"


def _facts(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that decide which pods it accepts."""
    meta, conditions = node.metadata, {condition.type: condition.status for condition in node.status.conditions}
    deleting = meta.deletion_timestamp is not None
    return meta.uid, meta.labels, deleting, node.spec, node.status.allocatable, conditions


def _pods(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    live = {uid: pod for uid, pod in fresh.pods.items() if not pod.finished}
    for uid, pod in live.items():
        watched = snapshot.pods.get(pod.key) or snapshot.placeholders.get(pod.key)
        if watched is None or watched.uid != uid:
            yield f"pod {pod.key} is not in the cache yet"
        elif pod.node and watched.node_name != pod.node:
            yield f"pod {pod.key} is not bound to node {pod.node} in the cache yet"
        elif pod.terminating and watched.deletion_timestamp is None:
            yield f"the deletion of pod {pod.key} is not in the cache yet"
    cached_pods: Mapping[str, Pod] = snapshot.pods_on.get(fresh.node, {})
    for watched in cached_pods.values():
        if watched.uid not in live or live[watched.uid].node != fresh.node:
            yield f"pod {watched.key} is gone, but is still on node {fresh.node} in the cache"


def _budgets(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    watched = snapshot.of("PodDisruptionBudget")
    for key, budget in sorted(fresh.budgets.items()):
        cached = watched.get(key)
        if not isinstance(cached, PodDisruptionBudget):
            yield f"PodDisruptionBudget {key} is not in the cache yet"
        elif _terms(cached) != _terms(budget):
            yield f"a change of PodDisruptionBudget {key} is not in the cache yet"


def _terms(budget: PodDisruptionBudget) -> tuple[object, ...]:
    """Return the fields of a budget that decide which evictions it allows."""
    deleting = budget.metadata.deletion_timestamp is not None
    return budget.metadata.uid, deleting, budget.spec, budget.status.disruptions_allowed
