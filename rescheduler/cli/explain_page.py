"""Explanations as a page: the blockers of each node, and which spot nodes reject each pod and why."""

from collections.abc import Iterator
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.cli.blockers import blocker_lines, controllers_in
from rescheduler.cli.console import BAD, BLANK, GOOD, HEADING, Line, styled
from rescheduler.cli.node_names import NodeNames
from rescheduler.planning.advice import smallest_change
from rescheduler.planning.explain import Explanation, Refusals
from rescheduler.planning.outcome import Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.units import count

#: Maximum number of names printed of nodes that accept a pod; ``-o wide`` prints all.
_NODES_NAMED: Final = 12


class ExplainPage:
    """Writes the parts of the page for *cluster*."""

    def __init__(self, planner: Planner, cluster: Snapshot, circumstances: Circumstances, *, wide: bool) -> None:
        self._planner = planner
        self._cluster = cluster
        self._circumstances = circumstances
        self._wide = wide
        self._controller = controllers_in(cluster)
        self._names = NodeNames.of(cluster.nodes.row)
        self._note = self._names.note  #: printed once, before the first part

    def node(self, name: str) -> Iterator[Line]:
        """Yield whether the node can be drained, its blockers, and the smallest change that would help."""
        yield from self._start()
        verdict = self._planner.plan_node(name, self._circumstances)
        if not isinstance(verdict, Rejected):
            pods = count(len(verdict.placements), "pod")
            yield styled(f"Node {self._names.short(name)} can be drained: {pods} would move.", GOOD)
            yield BLANK
            return
        yield styled(f"Node {self._names.short(name)} is not drained:", BAD)
        yield from blocker_lines(verdict.blockers, self._controller, 1, wide=self._wide)
        for blocker in verdict.blockers:
            if blocker.reason in (Reason.NO_ROOM, Reason.PINNED) and blocker.pod is not None:
                explanation = self._planner.explain(self._cluster.pods[blocker.pod], self._circumstances)
                yield Line(f"{blocker.pod}: {self._advice(explanation)}", 1)
        yield BLANK

    def pod(self, explanation: Explanation) -> Iterator[Line]:
        """Yield the nodes that accept the pod, the nodes that reject it (by reason), and a change that would help."""
        yield from self._start()
        pod = explanation.pod
        controller = self._controller(pod.key)
        owner = "" if controller == f"Pod {pod.key}" else f" ({controller})"
        where = f"on node {self._names.short(pod.node_name)}" if pod.node_name else "pending"
        yield styled(f"Pod {pod.key}, {where}{owner}", HEADING)
        yield from (Line(f"cannot be evicted: {item.reason}: {item.detail}", 1) for item in explanation.blockers)
        yield from self._accepting(explanation)
        for nodes, refusals in explanation.rejecting():
            yield Line(
                f"{count(len(nodes), 'node')} {'rejects' if len(nodes) == 1 else 'reject'} it: {_reasons(refusals)}", 1
            )
            if self._wide:
                yield Line(", ".join(map(self._names.short, nodes)), 2)
        if not explanation.feasible and explanation.nodes:
            yield Line(self._advice(explanation), 1)
        yield BLANK

    def nothing(self) -> Iterator[Line]:
        """Yield the text to print if there is no pod to explain."""
        yield Line("No pod of an on-demand node has to move, and no pod is pending.")

    def _start(self) -> Iterator[Line]:
        if self._note:
            yield Line(self._note)
            yield BLANK
        self._note = ""

    def _accepting(self, explanation: Explanation) -> Iterator[Line]:
        accepting, total = explanation.feasible, len(explanation.nodes)
        if len(accepting) == total > 1 and not self._wide:
            yield Line(f"all {count(total, 'spot node')} accept it", 1)
            return
        named = accepting if self._wide else accepting[:_NODES_NAMED]
        names = ", ".join(map(self._names.short, named))
        remainder = f", and {len(accepting) - len(named)} more (-o wide)" if len(named) < len(accepting) else ""
        yield Line(
            f"{len(accepting)} of {total:,} spot nodes accept it" + (f": {names}{remainder}" if names else ""), 1
        )

    def _advice(self, explanation: Explanation) -> str:
        change = smallest_change(explanation, self._cluster)
        return (
            f"smallest change: {self._names.shorten_in(change)}" if change else "no single change on one node is enough"
        )


def _reasons(refusals: Refusals) -> str:
    """Return all rejecting plugins with their reasons: ``NodeResourcesFit: Insufficient cpu; …``."""
    return "; ".join(f"{plugin}: {', '.join(reasons)}" for plugin, reasons in refusals)
