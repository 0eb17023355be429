"""The smallest change that would give a pod a place: what to do where only one plugin stands in the way."""

from collections import Counter
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.explain import Explanation

#: What lifts the refusal of a plugin that alone refuses a node.
_LIFTS: Final = {
    "NodeUnschedulable": "an uncordon of {node}",
    "TaintToleration": "a toleration of the taints of {node}",
    "NodeAffinity": "a node selector or affinity that takes {node}",
    "NodePorts": "another host port, or a spot node where it is free",
    "NodeVolumeLimits": "one volume less on {node}",
    "PodTopologySpread": "a larger maxSkew, or a spot node in another domain than {node}'s",
    "InterPodAffinity": "a spot node beside {node}, away from (or near) the pods that its affinity names",
}


def smallest_change(explanation: Explanation, snapshot: Snapshot) -> str | None:
    """In words, what would make room for the pod; None where no single change on one node would.

    Least first: room on the node that lacks the smallest share of a resource, then the one plugin that alone
    refuses most nodes.
    """
    if explanation.feasible:
        return "it has a place alone; one more spot node, or fewer pods on this one, would make room for all"
    alone = [
        (node, *explanation.refusals[number][0])
        for node, number in zip(explanation.nodes, explanation.which, strict=True)
        if len(explanation.refusals[number]) == 1
    ]
    shortages = [
        found
        for node, plugin, reasons in alone
        if plugin == "NodeResourcesFit" and len(reasons) == 1
        if (found := _shortage(explanation, snapshot, node)) is not None
    ]
    if shortages:
        _, text = min(shortages)
        return text
    most = Counter(plugin for _, plugin, _ in alone if plugin in _LIFTS).most_common(1)
    if not most:
        return None
    plugin, nodes = most[0]
    node = next(node for node, other, _ in alone if other == plugin)
    more = f" (the same for {nodes - 1} more nodes)" if nodes > 1 else ""
    return _LIFTS[plugin].format(node=node) + more


def _shortage(explanation: Explanation, snapshot: Snapshot, node: str) -> tuple[float, str] | None:
    """How much of its only scarce resource *node* lacks, as a share of what it has, and in words."""
    table = snapshot.nodes
    row = table.row[node]
    missing = snapshot.vector(explanation.pod.cls.requests) - table.free[row]
    for resource, column in table.resources.items():
        short = int(missing[column])
        if short > 0:
            amount = f"{short}m" if resource == "cpu" else str(short)
            share = short / max(1, int(table.allocatable[row, column]))
            return share, f"{amount} {resource} less on {node}, or so much more room there"
    return None
