"""Plan a node from a consistent read, once the watched state has caught up with that read.

The read is made after the node was tainted, so the first plan contains every pod that was bound before the taint. It is
repeated before each step, so a step relies on nothing that is older than the step.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from predicates.objects import Node, Pod
from rescheduler.clock import Clock
from rescheduler.draining.actions import LookAgain, PlanAgain
from rescheduler.draining.events import Looked, LookFailed, PlanFailed, PlannedAgain
from rescheduler.draining.state import Drain
from rescheduler.draining.victims import targets
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import StepReading
from rescheduler.execution.observation import Observation, evicted_for_good, leaving
from rescheduler.planning.freshness import Fresh
from rescheduler.planning.outcome import Plan, PodRef, Verdict

#: Seconds within which the watched state must catch up with a consistent read; otherwise the read is repeated.
CATCH_UP_SECONDS: Final = 3.0

#: Maximum number of consistent reads for one plan.
READS: Final = 5


@dataclass(frozen=True, slots=True)
class _Reading:
    """A consistent read that the watched state has not caught up with yet."""

    fresh: Fresh
    step: StepReading | None  #: with the controllers, if it was made for a step
    at: float  #: monotonic seconds


class FreshPlanning:
    """The actions :class:`LookAgain` and :class:`PlanAgain` after their consistent read. Not thread-safe.

    The state machine has at most one of these actions in flight.
    """

    def __init__(
        self,
        node: Node,
        view: ClusterView,
        observation: Observation,
        clock: Clock,
        read: Callable[[LookAgain | PlanAgain], None],
    ) -> None:
        """Create the planning of *node*. *read* requests a consistent read."""
        self._observation = observation
        self.pods: dict[str, Pod] = {}  #: all pods of the plans, by UID
        self._node = node
        self._view = view
        self._clock = clock
        self._read = read
        self._action: LookAgain | PlanAgain = LookAgain()
        self._reading: _Reading | None = None  # None during a read
        self._reads = 0  # since the state machine requested the action

    def begin(self, action: LookAgain | PlanAgain) -> None:
        """Request the read for *action*."""
        self._reads = 0
        self._read_again(action)

    def store(self, read: Fresh | StepReading) -> None:
        """Store a read."""
        fresh, step = (read.fresh, read) if isinstance(read, StepReading) else (read, None)
        self._reading = _Reading(fresh, step, self._clock.monotonic())

    def event(self, drain: Drain) -> Looked | LookFailed | PlannedAgain | PlanFailed | None:
        """Return the plan or a failure. None while the watched state lags behind the read, or during a read."""
        reading, name = self._reading, self._node.name
        if reading is None:
            return None
        if not self._observation.node_exists:
            return self._failed(f"node {name} is gone", node_gone=True)
        lag = self._view.lag(reading.fresh, name)
        if not lag:
            return self._planned(reading, drain)
        if self._clock.monotonic() < reading.at + CATCH_UP_SECONDS:
            return None
        if self._reads >= READS:
            return self._failed(f"the watched state lags behind the API server: {lag}")
        self._read_again(self._action)
        return None

    def _planned(self, reading: _Reading, drain: Drain) -> Looked | LookFailed | PlannedAgain | PlanFailed | None:
        """Plan the node. If target nodes of the plan were not read, read again and return None."""
        verdict = self._verdict(drain)
        needed = self._needed(verdict, drain)
        if unread := needed - reading.fresh.asked:
            if self._reads >= READS:
                return self._failed(f"the plan changes with each read: node {min(unread)} was not read")
            self._read_again(replace(self._action, targets=self._action.targets | needed))
            return None
        self._reading = None
        if reading.step is None:
            self.pods |= {pod.uid: pod for pod in self._view.pods_of(self._node.name)}
            return Looked(verdict)
        read = self._observation.controllers_read(drain, reading.step.controllers, self.pods)
        return PlannedAgain(verdict, read, reading.step.ending)

    def _verdict(self, drain: Drain) -> Verdict:
        if isinstance(self._action, LookAgain):
            return self._view.plan_node(self._node.name, leaving(drain))
        return self._view.follow(self._node.name, self._known(self._action.due), evicted_for_good(drain))

    def _needed(self, verdict: Verdict, drain: Drain) -> frozenset[str]:
        """Return the target nodes that must have been read: of all pods, or of the pods in the step."""
        if not isinstance(verdict, Plan):
            return frozenset()
        if isinstance(self._action, LookAgain):
            return targets(verdict)
        step = {victim.pod.uid for victim in drain.step}
        return frozenset(placement.node for placement in verdict.placements if placement.pod.uid in step)

    def _known(self, refs: Iterable[PodRef]) -> list[Pod]:
        return [self.pods[ref.uid] for ref in refs if ref.uid in self.pods]

    def _failed(self, why: str, *, node_gone: bool = False) -> LookFailed | PlanFailed:
        self._reading = None
        if isinstance(self._action, PlanAgain):
            return PlanFailed(why, retryable=node_gone)  # the watched state shows soon that the node is gone
        return LookFailed(why, node_gone=node_gone)

    def _read_again(self, action: LookAgain | PlanAgain) -> None:
        self._action, self._reading = action, None
        self._reads += 1
        self._read(action)
