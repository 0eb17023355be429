"""The taint that makes the scheduler prefer spot nodes: kept on on-demand nodes, or taken off again.

Without it, a pod that is evicted from one on-demand node may well land on the next. It only prefers
(``PreferNoSchedule``): where spot has no room, pods still go to on-demand nodes.
"""

from collections.abc import Callable, Iterable
from typing import Final

from predicates.objects import Node, Taint
from rescheduler.access import Cluster
from rescheduler.errors import NotFound, NotLeading, ReschedulerError
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe.events import ErrorKind, Report, Trouble

#: With the prefix that Cluster Autoscaler leaves out of node templates.
SOFT_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-prefer-spot", effect="PreferNoSchedule"
)

#: Nodes that are written to in one round; the others have their turn in the next.
NODES_A_ROUND: Final = 50


class SoftTaint:
    """Keeps the taint on on-demand nodes if it is *wanted* there; elsewhere, and if not, it takes it off."""

    def __init__(self, cluster: Cluster, report: Report, is_on_demand: Callable[[Node], bool], *, wanted: bool) -> None:
        self._cluster = cluster
        self._report = report
        self._is_on_demand = is_on_demand
        self._wanted = wanted

    def keep(self, nodes: Iterable[Node]) -> None:
        """Write to the nodes that are not as they should be. What fails is tried again in the next round."""
        edits = ((node, self._edit(node)) for node in nodes)
        due = [(node, edit) for node, edit in edits if edit is not None]
        for node, edit in due[:NODES_A_ROUND]:
            try:
                self._cluster.edit_node(node.metadata.name, node.metadata.uid, edit)
            except NotFound:
                continue
            except NotLeading:
                return
            except ReschedulerError as error:
                self._report(Trouble(ErrorKind.WRITE, str(error), node.metadata.name))
                return

    def _edit(self, node: Node) -> NodeEdit | None:
        there = any(one.key == SOFT_TAINT.key for one in node.spec.taints)
        wanted = self._wanted and self._is_on_demand(node)
        if there == wanted:
            return None
        return NodeEdit(taint=(SOFT_TAINT,)) if wanted else NodeEdit(untaint=(SOFT_TAINT.key,))
