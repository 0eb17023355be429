"""Whether the watched state shows what a consistent read of the API server showed.

A watch lags behind the API server, by milliseconds as a rule. A drain whose plan must hold for what is there after
the node was tainted compares the two, and waits until the watched state lacks nothing. The comparison goes one way:
what the watched state has in addition is newer, or only makes plans stricter. The node that is drained is the
exception: a pod that is watched there and was not listed is gone, and its eviction would be asked for in vain.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from predicates.objects import Node, Pod, PodDisruptionBudget
from predicates.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FreshPod:
    """A pod as the API server has it."""

    namespace: str
    name: str
    node: str  #: "" while it has none
    terminating: bool = False
    finished: bool = False

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Fresh:
    """A part of the cluster, read consistently."""

    node: str  #: that is drained
    asked: frozenset[str]  #: nodes that were asked for: the drained one, and those that its pods may move to
    nodes: Mapping[str, Node]  #: those of them that exist
    pods: Mapping[str, FreshPod]  #: by UID: pods on these nodes, and pods that have no node
    budgets: Mapping[str, PodDisruptionBudget]  #: by ``namespace/name``


def lag(fresh: Fresh, snapshot: Snapshot) -> str:
    """What the watched *snapshot* lacks of *fresh*, in one line; "" where it lacks nothing."""
    for differences in (_nodes(fresh, snapshot), _pods(fresh, snapshot), _budgets(fresh, snapshot)):
        for difference in differences:
            return difference
    return ""


def _nodes(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    for name in sorted(fresh.asked):
        row = snapshot.nodes.row.get(name)
        watched, there = None if row is None else snapshot.nodes.nodes[row], fresh.nodes.get(name)
        if there is None and watched is not None:
            yield f"node {name} is watched, and does not exist"
        elif there is not None and watched is None:
            yield f"node {name} is not watched yet"
        elif there is not None and watched is not None and _facts(there) != _facts(watched):
            yield f"a change of node {name} is not watched yet"


def _facts(node: Node) -> tuple[object, ...]:
    """What of a node decides which pods it takes."""
    meta, conditions = node.metadata, {one.type: one.status for one in node.status.conditions}
    deleting = meta.deletion_timestamp is not None
    return meta.uid, meta.labels, deleting, node.spec, node.status.allocatable, conditions


def _pods(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    live = {uid: pod for uid, pod in fresh.pods.items() if not pod.finished}
    for uid, pod in live.items():
        watched = snapshot.pods.get(pod.key)
        if watched is None or watched.uid != uid:
            yield f"pod {pod.key} is not watched yet"
        elif pod.node and watched.node_name != pod.node:
            yield f"pod {pod.key} is not watched on node {pod.node} yet"
        elif pod.terminating and watched.deletion_timestamp is None:
            yield f"the deletion of pod {pod.key} is not watched yet"
    here: Mapping[str, Pod] = snapshot.pods_on.get(fresh.node, {})
    for watched in here.values():
        if watched.uid not in live or live[watched.uid].node != fresh.node:
            yield f"pod {watched.key} is watched on node {fresh.node}, and is not there"


def _budgets(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    watched = snapshot.of("PodDisruptionBudget")
    for key, budget in sorted(fresh.budgets.items()):
        known = watched.get(key)
        if not isinstance(known, PodDisruptionBudget):
            yield f"PodDisruptionBudget {key} is not watched yet"
        elif _terms(known) != _terms(budget):
            yield f"a change of PodDisruptionBudget {key} is not watched yet"


def _terms(budget: PodDisruptionBudget) -> tuple[object, ...]:
    """What of a budget decides which evictions it allows."""
    deleting = budget.metadata.deletion_timestamp is not None
    return budget.metadata.uid, deleting, budget.spec, budget.status.disruptions_allowed
