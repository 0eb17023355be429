"""Plan a tainted node from a consistent read, once the watched state has caught up with that read.

The read is made after the node was tainted, so the plan contains every pod that was bound before the taint.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from predicates.objects import Node, Pod
from rescheduler.clock import Clock
from rescheduler.draining.actions import LookAgain
from rescheduler.draining.events import Looked, LookFailed
from rescheduler.draining.state import Drain
from rescheduler.draining.victims import targets
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.observation import Observation, leaving
from rescheduler.planning.freshness import Fresh
from rescheduler.planning.outcome import Plan

#: Seconds within which the watched state must catch up with a consistent read; otherwise the read is repeated.
CATCH_UP_SECONDS: Final = 3.0

#: Maximum number of consistent reads for one plan.
READS: Final = 5


@dataclass(frozen=True, slots=True)
class _Reading:
    """A consistent read that the watched state has not caught up with yet."""

    fresh: Fresh
    at: float  #: monotonic seconds
    again: bool = False  #: another read was requested


class FreshPlanning:
    """The action :class:`LookAgain` after its consistent read: plan the node, return the event. Not thread-safe."""

    def __init__(self, node: Node, view: ClusterView, clock: Clock, read: Callable[[LookAgain], None]) -> None:
        """Create the planning of *node*. *read* requests another consistent read."""
        self.pods: dict[str, Pod] = {}  #: all pods of the plans, by UID
        self._node = node
        self._view = view
        self._clock = clock
        self._read = read
        self._reading: _Reading | None = None
        self._reads = 0  # since the state machine requested the action

    def begin(self) -> None:
        """Reset the number of reads, unless a read is being repeated."""
        if self._reading is None:
            self._reads = 0

    def store(self, fresh: Fresh) -> None:
        """Store a read."""
        self._reads += 1
        self._reading = _Reading(fresh, self._clock.monotonic())

    def event(self, drain: Drain) -> Looked | LookFailed | None:
        """Return the plan or a failure. None while the watched state lags behind the read, or during a read."""
        reading, name = self._reading, self._node.name
        if reading is None or reading.again:
            return None
        if not Observation(self._view, self._node).node_exists:
            return self._failed(f"node {name} is gone", node_gone=True)
        lag = self._view.lag(reading.fresh, name)
        if not lag:
            return self._planned(reading, drain)
        if self._clock.monotonic() < reading.at + CATCH_UP_SECONDS:
            return None
        if self._reads >= READS:
            return self._failed(f"the watched state lags behind the API server: {lag}")
        self._read_again(reading, drain.targets)
        return None

    def _planned(self, reading: _Reading, drain: Drain) -> Looked | LookFailed | None:
        """Plan the node. If target nodes of the plan were not read, read again and return None."""
        verdict = self._view.plan_node(self._node.name, leaving(drain))
        if isinstance(verdict, Plan):
            unread = targets(verdict) - reading.fresh.asked
            if unread and self._reads >= READS:
                return self._failed(f"the plan changes with each read: node {min(unread)} was not read")
            if unread:
                self._read_again(reading, targets(verdict))
                return None
            self.pods |= {pod.uid: pod for pod in self._view.pods_of(self._node.name)}
        self._reading = None
        return Looked(verdict)

    def _failed(self, why: str, *, node_gone: bool = False) -> LookFailed:
        self._reading = None
        return LookFailed(why, node_gone=node_gone)

    def _read_again(self, reading: _Reading, nodes: frozenset[str]) -> None:
        self._reading = replace(reading, again=True)
        self._read(LookAgain(nodes))
