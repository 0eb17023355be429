"""The minimum number of on-demand nodes that keep running pods: ``--min-on-demand-nodes``."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT, Snapshot
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.rules.interruptions import signals_on
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.units import count

#: The annotation that every rescheduler and every cloudpool proxy sets on the nodes that it drains.
DRAIN_ANNOTATION: Final = "spot-rescheduler/drain"


@dataclass(frozen=True, slots=True)
class Minimum:
    """The minimum, and the nodes that count towards it."""

    required: int
    counted: Collection[str] = (
        frozenset()
    )  #: Ready on-demand nodes with pods that are neither drained nor about to be removed

    @property
    def spare(self) -> int:
        """Return how many of the counted nodes may be drained, one after the other."""
        return max(0, len(self.counted) - self.required)

    def blocker(self, node: str, pods: Iterable[Pod], emptied: int = 0) -> Blocker | None:
        """Return a blocker if *node*, with its *pods*, may not be drained after *emptied* other counted nodes, or None.

        A node without pods to move may always be drained: it does not count towards the minimum.
        """
        others = len(self.counted) - emptied - (node in self.counted)
        if others >= self.required or not keeps_pods(pods):
            return None
        detail = (
            f"--min-on-demand-nodes={self.required}: the drain would leave {count(max(others, 0), 'on-demand node')} "
            "in use (Ready, with pods, neither drained nor removed)"
        )
        return Blocker(Reason.MIN_ON_DEMAND_NODES, detail)


def minimum(snapshot: Snapshot, required: int, on_demand: Iterable[str], circumstances: Circumstances) -> Minimum:
    """Return the minimum and the *on_demand* nodes that count towards it. Nothing is computed if *required* is 0."""
    if not required:
        return Minimum(0)
    leaving = circumstances.ordered | circumstances.ending
    names = (name for name in on_demand if name not in leaving and keeps_pods(snapshot.pods_on[name].values()))
    rows = snapshot.nodes.row
    nodes = (node for name in names if (node := snapshot.nodes.nodes[rows[name]]) is not None)
    return Minimum(required, frozenset(node.name for node in nodes if _remains_usable(node)))


def keeps_pods(pods: Iterable[Pod]) -> bool:
    """Return whether any of a node's *pods* is neither terminating, nor a DaemonSet pod, nor a mirror pod."""
    return any(not pod.cls.terminating and not belongs_to_node(pod) for pod in pods)


def _remains_usable(node: Node) -> bool:
    """Return whether *node* is Ready, is not being drained and has no signal that its machine will soon be removed."""
    return (
        node.metadata.deletion_timestamp is None
        and node.condition("Ready") in ("True", "")  # absent in some handwritten snapshot files
        and DRAIN_ANNOTATION not in node.metadata.annotations
        and all(taint.key != DRAIN_TAINT.key for taint in node.spec.taints)
        and not signals_on(node)
    )
