"""The taint on on-demand nodes that makes the scheduler prefer spot nodes.

Without it, a pod that is evicted from one on-demand node may be scheduled on another one. The effect of the taint is
``PreferNoSchedule``: if the spot nodes are full, pods are still scheduled on on-demand nodes.
"""

from collections.abc import Callable, Mapping
from typing import Final

from predicates.objects import Node, Taint
from rescheduler.errors import NotFound, NotLeading, ReschedulerError
from rescheduler.execution.context import ClusterApi
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe.events import ErrorKind, Report, Trouble

#: Cluster Autoscaler ignores taints with this prefix in node templates.
SOFT_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-prefer-spot", effect="PreferNoSchedule"
)

#: Maximum number of nodes to patch in one round.
NODES_A_ROUND: Final = 50


class SoftTaint:
    """Adds the taint to on-demand nodes if *wanted*, and removes it from all other nodes."""

    def __init__(
        self, cluster: ClusterApi, report: Report, is_on_demand: Callable[[Node], bool], *, wanted: bool
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._is_on_demand = is_on_demand
        self._wanted = wanted
        self._settled: Mapping[str, Node] | None = None  # nodes that need no change

    def keep(self, nodes: Mapping[str, Node]) -> None:
        """Add or remove the taint where necessary. The next round retries failed changes.

        The same *nodes* object is not checked again if its nodes needed no change.
        """
        if nodes is self._settled:
            return
        edits = ((node, self._edit(node)) for node in nodes.values())
        due = [(node, edit) for node, edit in edits if edit is not None]
        self._settled = None if due else nodes
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
        present = any(taint.key == SOFT_TAINT.key for taint in node.spec.taints)
        wanted = self._wanted and self._is_on_demand(node)
        if present == wanted:
            return None
        return NodeEdit(taint=(SOFT_TAINT,)) if wanted else NodeEdit(untaint=(SOFT_TAINT.key,))
