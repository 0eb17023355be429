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
    "PodTopologySpread": "a larger maxSkew, or a spot node in a different domain than {node}",
    "InterPodAffinity": "a spot node that satisfies its pod affinity and anti-affinity, which {node} does not",
}

#: Resources in bytes.
_BYTES: Final = ("memory", "ephemeral-storage")
_MIB: Final = 1 << 20


def smallest_change(explanation: Explanation, snapshot: Snapshot) -> str | None:
    """Describe the smallest change to one node that would make room for the pod, or return None if there is none.

    The smallest relative shortage on a node that only lacks one resource takes precedence. Otherwise the change is for
    the plugin that is the sole reason for rejecting the most nodes.
    """
    if explanation.feasible:
        return (
            "it fits if it moves alone; one more spot node, or fewer pods on its node, would make room for all of them"
        )
    sole_rejections = [
        (node, *explanation.refusals[number][0])
        for node, number in zip(explanation.nodes, explanation.which, strict=True)
        if len(explanation.refusals[number]) == 1
    ]
    short_of_one = [
        node for node, plugin, reasons in sole_rejections if plugin == "NodeResourcesFit" and len(reasons) == 1
    ]
    shortages = [shortage for node in short_of_one if (shortage := _shortage(explanation, snapshot, node)) is not None]
    if shortages:
        _, text = min(shortages)
        return text
    return _lift([(node, plugin) for node, plugin, _ in sole_rejections])


def _lift(sole_rejections: Sequence[tuple[str, str]]) -> str | None:
    """Return the change for the plugin that alone rejects the most nodes. The pairs are nodes and rejecting plugins."""
    most_common = Counter(plugin for _, plugin in sole_rejections if plugin in _LIFTS).most_common(1)
    if not most_common:
        return None
    plugin, nodes = most_common[0]
    node = next(node for node, sole_plugin in sole_rejections if sole_plugin == plugin)
    same_elsewhere = f" (the same for {count(nodes - 1, 'more node')})" if nodes > 1 else ""
    return _LIFTS[plugin].format(node=node) + same_elsewhere


def _shortage(explanation: Explanation, snapshot: Snapshot, node: str) -> tuple[float, str] | None:
    """Return the shortage of the first scarce resource on *node*, as a share of the allocatable amount and as text."""
    table = snapshot.nodes
    row = table.row[node]
    missing = snapshot.vector(explanation.pod.cls.requests) - table.free[row]
    for resource, column in table.resources.items():
        short = int(missing[column])
        if short > 0:
            share = short / max(1, int(table.allocatable[row, column]))
            missing_text = _format_missing(resource, short)
            return share, f"{missing_text} requested on {node}, or as much additional capacity there"
    return None


def _format_missing(resource: str, short: int) -> str:
    """Format a missing amount, never rounded down: ``0.3 vCPU less``, ``512 MiB less memory``."""
    if resource == "cpu":
        return f"{short / 1000:g} vCPU less"
    if resource in _BYTES:
        return f"{-(-short // _MIB):,} MiB less {resource}"
    return f"{short:,} less {resource}"
