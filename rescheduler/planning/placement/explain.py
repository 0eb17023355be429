"""Explanation of which spot nodes would accept a pod, why the others reject it, and the smallest change that
would let it fit.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.framework import PluginRejections, Reasons
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Blocker, Surge
from rescheduler.planning.placement.preemption import YieldingPods, preempt_for

# Explanation of which spot nodes would accept a pod, and which plugins reject the others.

#: The plugins that reject a node, in the scheduler's order, with their reasons. The scheduler reports the first.
Refusals: TypeAlias = tuple[tuple[str, Reasons], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plugins' results for *pod*, as if it alone were evicted and recreated, unbound and without a status.

    ``which`` has one entry per node in ``nodes``: an index into ``refusals``. Entry 0 of ``refusals`` is empty, so
    nodes with index 0 accept the pod. Nodes with the same refusals share an index.
    """

    pod: Pod
    nodes: tuple[str, ...]
    which: npt.NDArray[np.intp]
    refusals: tuple[Refusals, ...]
    blockers: tuple[Blocker, ...]  #: reasons against the eviction, not the placement
    surge: Surge | None = None  #: the Deployment whose rolling update moves the pod, instead of an eviction
    #: If no node accepts the pod: the one on which the scheduler preempts pods for it, and these (``namespace/name``).
    preempts: tuple[str, tuple[str, ...]] | None = None

    @property
    def feasible(self) -> list[str]:
        """Return the nodes that accept the pod."""
        return [node for node, number in zip(self.nodes, self.which, strict=True) if number == 0]

    def rejecting(self) -> list[tuple[list[str], Refusals]]:
        """Return the nodes that share each set of refusals, most nodes first.

        Nodes that accept the pod are left out.
        """
        groups: dict[int, list[str]] = {}
        for node, number in zip(self.nodes, self.which.tolist(), strict=True):
            if number:
                groups.setdefault(number, []).append(node)
        pairs = ((nodes, self.refusals[number]) for number, nodes in groups.items())
        return sorted(pairs, key=lambda pair: (-len(pair[0]), pair[1]))


def explain(
    pod: Pod,
    incoming: Pod,
    snapshot: Snapshot,
    filters: Filters,
    rows: npt.NDArray[np.intp],
    blockers: Iterable[Blocker],
    surge: Surge | None = None,
    yielding: YieldingPods | None = None,
) -> Explanation:
    """Evaluate the *incoming* replacement of *pod* on the nodes in *rows*. The snapshot is not changed.

    With *surge*, the pod stays until its replacement runs. *yielding* pods are preempted if no node accepts it.
    """
    names = snapshot.nodes.names
    with snapshot.trial() as trial:
        if pod.node_name in snapshot.nodes.row and surge is None:
            trial.evict(pod)
        rejections = filters.rejections(incoming.cls, rows)
        which, refusals = _grouped(rejections, len(rows))
        found = None if yielding is None or not which.all() else preempt_for(incoming, yielding, (), filters, trial)
    preempts = None if found is None else (names[found[0]], tuple(sorted(victim.key for victim in found[1])))
    return Explanation(pod, tuple(names[row] for row in rows), which, refusals, tuple(blockers), surge, preempts)


def _grouped(rejections: list[PluginRejections], rows: int) -> tuple[npt.NDArray[np.intp], tuple[Refusals, ...]]:
    """Number the distinct combinations of codes. The empty combination is number 0."""
    codes = np.zeros((len(rejections), rows + 1), np.int64)  # The last column represents a node that no plugin rejects.
    for index, result in enumerate(rejections):
        codes[index, :-1] = result.codes
    combinations, which = np.unique(codes, axis=1, return_inverse=True)
    number_of_empty = which[-1]
    order = np.argsort(np.arange(combinations.shape[1]) != number_of_empty, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    refusals = tuple(tuple(_nonempty_refusals(rejections, combinations[:, number])) for number in order)
    return rank[which[:-1]], refusals


def _nonempty_refusals(
    rejections: list[PluginRejections], codes: npt.NDArray[np.int64]
) -> Iterator[tuple[str, Reasons]]:
    for result, code in zip(rejections, codes, strict=True):
        if code:
            yield result.plugin, result.reasons(int(code))


# The smallest change that would let a pod fit on a spot node.

#: By plugin: the change that makes a node accept the pod when only this plugin rejects it.
_LIFTS: Final = {
    "NodeUnschedulable": "uncordoning {node}",
    "TaintToleration": "a toleration for the taints of {node}",
    "NodeAffinity": "a node selector or affinity that matches {node}",
    "NodePorts": "another host port, or a spot node where it is free",
    "NodeVolumeLimits": "one fewer volume on {node}",
    "PodTopologySpread": "a larger maxSkew, or a spot node in a different domain than {node}",
    "kubelet": "a spot node whose kubelet can run it, which that of {node} cannot",
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
