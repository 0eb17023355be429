"""The smallest change that would let a pod fit on a spot node."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.explain import Explanation
from rescheduler.planning.units import count

#: By plugin: the change that makes a node accept the pod when only this plugin rejects it.
_LIFTS: Final = {
    "NodeUnschedulable": "uncordoning {node}",
    "TaintToleration": "a toleration for the taints of {node}",
    "NodeAffinity": "a node selector or affinity that matches {node}",
    "NodePorts": "another host port, or a spot node where it is free",
    "NodeVolumeLimits": "one fewer volume on {node}",
    "PodTopologySpread": "a larger maxSkew, or a spot node in another domain than {node}'s",
    "InterPodAffinity": "a spot node that satisfies its pod affinity and anti-affinity, which {node} does not",
}

#: Resources in bytes.
_BYTES: Final = ("memory", "ephemeral-storage")
_MIB: Final = 1 << 20


def smallest_change(explanation: Explanation, snapshot: Snapshot) -> str | None:
    """Describe the smallest change to one node that would make room for the pod, or return None if there is none.

    Nodes that only lack one resource come first, the smallest relative shortage before others. Then comes the plugin
    that is the only one to reject the most nodes.
    """
    if explanation.feasible:
        return (
            "it fits if it moves alone; one more spot node, or fewer pods on its node, would make room for all of them"
        )
    alone = [
        (node, *explanation.refusals[number][0])
        for node, number in zip(explanation.nodes, explanation.which, strict=True)
        if len(explanation.refusals[number]) == 1
    ]
    short_of_one = [node for node, plugin, reasons in alone if plugin == "NodeResourcesFit" and len(reasons) == 1]
    shortages = [shortage for node in short_of_one if (shortage := _shortage(explanation, snapshot, node)) is not None]
    if shortages:
        _, text = min(shortages)
        return text
    return _lift([(node, plugin) for node, plugin, _ in alone])


def _lift(alone: Sequence[tuple[str, str]]) -> str | None:
    """Return the change that lifts the plugin that alone rejects the most nodes; *alone* are nodes and plugins."""
    most = Counter(plugin for _, plugin in alone if plugin in _LIFTS).most_common(1)
    if not most:
        return None
    plugin, nodes = most[0]
    node = next(node for node, other in alone if other == plugin)
    more = f" (the same for {count(nodes - 1, 'more node')})" if nodes > 1 else ""
    return _LIFTS[plugin].format(node=node) + more


def _shortage(explanation: Explanation, snapshot: Snapshot, node: str) -> tuple[float, str] | None:
    """Return the shortage of the first scarce resource on *node*: as a share of its allocatable amount, and as text."""
    table = snapshot.nodes
    row = table.row[node]
    missing = snapshot.vector(explanation.pod.cls.requests) - table.free[row]
    for resource, column in table.resources.items():
        short = int(missing[column])
        if short > 0:
            share = short / max(1, int(table.allocatable[row, column]))
            return share, f"{_less(resource, short)} requested on {node}, or as much additional capacity there"
    return None


def _less(resource: str, short: int) -> str:
    """Return the amount that is missing, never rounded down: ``0.3 vCPU less``, ``512 MiB less memory``."""
    if resource == "cpu":
        return f"{short / 1000:g} vCPU less"
    if resource in _BYTES:
        return f"{-(-short // _MIB):,} MiB less {resource}"
    return f"{short:,} less {resource}"
