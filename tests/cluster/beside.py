"""What the daemon and an autoscaler do to each other's work, by the API server's watches and its audit log."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from devcluster.audit import AuditEvent
from tests.cluster.observer import AGENT, Observer
from tests.invariants.history import History
from tests.invariants.judging import judge
from tests.invariants.objects import SeenNode, SeenPod
from tests.invariants.replay import SeenDrain
from tests.invariants.resting import is_leftover
from tests.invariants.rules import Rules
from tests.invariants.watchdog import Watchdog

#: How long two tools may not undo each other's work after the last drain, in seconds.
WATCHED: Final = float(os.environ.get("LEFTOVERS_WATCHED", "120"))

#: Tolerances for a machine that is busy. Nodes without pods of an autoscaler come and go.
PATIENT: Final = Rules(lag=30.0, look=25.0, slack=60.0, leftover=60.0, abandoned=120.0)


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A history of the cluster, and all evictions in it, by whomever."""

    history: History
    rules: Rules
    evictions: tuple[AuditEvent, ...]

    @property
    def emptied(self) -> list[SeenDrain]:
        """Return the drains that emptied a node with pods."""
        drains = judge(self.history, self.rules, ()).scene.now.all_drains
        return [drain for drain in drains if drain.outcome in ("emptied", "removed")]

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes that we emptied, in this order."""
        return [drain.node for drain in self.emptied]

    def undone(self) -> list[str]:
        """Return what undid a drain: nodes that were filled or emptied again, and leftovers that we moved twice."""
        return [*self._filled_again(), *self._emptied_again(), *self._moved_twice()]

    def _filled_again(self) -> Iterator[str]:
        """Yield the pods that were bound to a node after we had emptied it."""
        ended = {drain.node: drain.ended for drain in reversed(self.emptied) if drain.ended is not None}
        bound: set[str] = set()
        for revision in self.history.revisions:
            pod = revision.object
            if not isinstance(pod, SeenPod) or not pod.keeps_node or pod.metadata.uid in bound:
                continue
            bound.add(pod.metadata.uid)
            since = ended.get(pod.spec.node_name)
            if since is not None and revision.at > since:
                what = f"pod {pod.key} was bound to {pod.spec.node_name} at {revision.at:%H:%M:%S}"
                yield f"{what}, which was emptied at {since:%H:%M:%S}"

    def _emptied_again(self) -> Iterator[str]:
        for node, times in Counter(drain.node for drain in self.emptied).items():
            if times > 1:
                yield f"node {node} was emptied {times} times"

    def _moved_twice(self) -> Iterator[str]:
        for owner, times in self.moves(AGENT).items():
            if times > 1:
                yield f"leftovers of {owner} were moved {times} times by us"

    def moves(self, agent: str = "") -> Mapping[str, int]:
        """Return how often pods of each owner, which has one leftover, were evicted by user agents with this prefix."""
        leftovers: dict[tuple[str, str], str] = {}
        for revision in self.history.revisions:
            pod = revision.object
            if isinstance(pod, SeenPod) and is_leftover(pod, self.rules) and pod.controller is not None:
                leftovers[pod.metadata.namespace, pod.metadata.name] = pod.controller.name
        done = (event for event in self.evictions if event.user_agent.startswith(agent))
        return Counter(leftovers[key] for event in done if (key := (event.namespace, event.name)) in leftovers)

    def added(self, label: str) -> list[tuple[str, datetime]]:
        """Return the nodes with *label* that were added after our first drain had emptied a node."""
        first = min((drain.ended for drain in self.emptied if drain.ended), default=self.history.until)
        seen: dict[str, datetime] = {}
        for revision in self.history.revisions:
            node = revision.object
            if isinstance(node, SeenNode) and node.has(label):
                seen.setdefault(node.metadata.name, revision.at)
        return [(name, at) for name, at in seen.items() if at > first]


@contextlib.contextmanager
def watched(observer: Observer, rules: Rules) -> Iterator[Watchdog]:
    """Watch the cluster during the block. No invariant may be violated until its end."""
    with Watchdog(observer.plane, rules) as watchdog:
        yield watchdog
        watchdog.stop()
    assert watchdog.violations == []


def side_by_side(watchdog: Watchdog, observer: Observer) -> SideBySide:
    return SideBySide(watchdog.history(), watchdog.rules, tuple(observer.audit.evictions()))
