"""How many on-demand nodes must keep their pods: ``--min-on-demand-nodes``."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import DRAIN_TAINT, Snapshot
from rescheduler.planning.drainability import belongs_to_node
from rescheduler.planning.interruptions import signals_on
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances

#: What every installation of this program, and every cloudpool proxy, writes on the nodes that it drains.
DRAIN_ANNOTATION: Final = "spot-rescheduler/drain"


@dataclass(frozen=True, slots=True)
class Minimum:
    """The nodes that count, and how many must remain."""

    wanted: int
    counted: Collection[str] = frozenset()  #: Ready, unmarked on-demand nodes that keep pods and their machines

    @property
    def spare(self) -> int:
        """How many of the nodes that count may be emptied, one after the other."""
        return max(0, len(self.counted) - self.wanted)

    def blocker(self, node: str, pods: Iterable[Pod], emptied: int = 0) -> Blocker | None:
        """Why *node*, which runs *pods*, may not be emptied after so many others that count.

        A node that keeps no pods may always go: it does not count, so the others are as many as before.
        """
        others = len(self.counted) - emptied - (node in self.counted)
        if others >= self.wanted or not keeps_pods(pods):
            return None
        detail = (
            f"--min-on-demand-nodes={self.wanted}: {max(others, 0)} other on-demand nodes are Ready, keep pods, "
            "and are neither drained nor removed"
        )
        return Blocker(Reason.MIN_ON_DEMAND_NODES, detail)


def minimum(snapshot: Snapshot, wanted: int, on_demand: Iterable[str], circumstances: Circumstances) -> Minimum:
    """The nodes of *on_demand* that count. Costs nothing where none is *wanted*."""
    if not wanted:
        return Minimum(0)
    going = circumstances.ordered | circumstances.ending
    names = (name for name in on_demand if name not in going and keeps_pods(snapshot.pods_on[name].values()))
    rows = snapshot.nodes.row
    nodes = (node for name in names if (node := snapshot.nodes.nodes[rows[name]]) is not None)
    return Minimum(wanted, frozenset(node.name for node in nodes if _stays(node)))


def keeps_pods(pods: Iterable[Pod]) -> bool:
    """Whether any of a node's *pods* is neither terminating, nor of a DaemonSet, nor a mirror pod."""
    return any(not pod.cls.terminating and not belongs_to_node(pod) for pod in pods)


def _stays(node: Node) -> bool:
    """Whether *node* is Ready and unmarked, without a signal that its machine is about to go."""
    return (
        node.metadata.deletion_timestamp is None
        and node.condition("Ready") in ("True", "")  # in a hand-made dump it may be absent
        and DRAIN_ANNOTATION not in node.metadata.annotations
        and all(taint.key != DRAIN_TAINT.key for taint in node.spec.taints)
        and not signals_on(node)
    )
