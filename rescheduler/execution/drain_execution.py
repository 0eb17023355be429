"""Execute one drain: the state machine runs on the caller's thread, its actions on other threads. Separate from
the drainer, which chooses drains and does not see their states.
"""

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

from predicates.objects import Node, OwnerReference
from rescheduler.clock import Clock
from rescheduler.draining import evicting, exits, transitions
from rescheduler.draining.actions import (
    NO_TIMES,
    Action,
    DeletePlaceholder,
    Evict,
    FollowRequest,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    Release,
    Renew,
    RequestAction,
    RevertSurge,
    StoreDebts,
    TryEviction,
    WrittenMark,
)
from rescheduler.draining.events import (
    Cause,
    Done,
    DrainEvent,
    EvictionResult,
    EvictionSkipped,
    NodeSeen,
    NotDone,
    Outcome,
    Stop,
)
from rescheduler.draining.state import Drain, Failure, Phase, Result, Why
from rescheduler.draining.transitions import EVICTIONS_SENT
from rescheduler.errors import NotFound, NotLeading, ReschedulerError
from rescheduler.execution import machine_orders
from rescheduler.execution.actions import DrainActions
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import ActionResult, DebtRecorder, DrainContext, RunState, StepReading, Threads
from rescheduler.execution.machine_orders import RemovalChecks
from rescheduler.execution.observation import FreshPlanning, Observation
from rescheduler.observe.events import (
    DrainEnded,
    DrainProgressed,
    DrainWaits,
    ErrorKind,
    EvictionAnswered,
    InvolvedNode,
    MachineGone,
    PodProgress,
    RemovalPostponed,
    Report,
    SurgeEnded,
    SurgeResult,
    Trouble,
)
from rescheduler.planning.controllers import Controller, ControllerReading
from rescheduler.planning.last_look import Fresh, OrderTerms
from rescheduler.planning.outcome import PodRef

# The progress of a drain, pod by pod.


#: Seconds between two reports about the pods that a drain waits for.
WAITS_SECONDS: Final = 30.0


def progress(drain: Drain, node: InvolvedNode) -> DrainProgressed:
    """Return the progress of *drain* for each pod. The replicas must have been counted after the last eviction.

    Which pod replaces which is not known. The replacement pods of a controller are assigned to its evicted pods in the
    order of the evictions. If nothing is owed, they count as Ready.
    """
    replaced = _replaced(drain)
    pods = tuple((placement.pod, _of_pod(drain, placement.pod, replaced)) for placement in drain.placements)
    targets = {str(placement.pod): placement.node for placement in drain.placements}
    return DrainProgressed(node, drain.phase.name.lower(), pods, targets)


def _of_pod(drain: Drain, pod: PodRef, replaced: Mapping[str, PodProgress]) -> PodProgress:
    if pod.uid in replaced:
        return replaced[pod.uid]
    if any(victim.pod.uid == pod.uid for victim in drain.waiting):
        return PodProgress.WAITING
    if (victim := drain.victims.get(pod.uid)) is not None:
        return PodProgress.EVICTED if victim.accepted else PodProgress.EVICTING
    return PodProgress.GONE


def _replaced(drain: Drain) -> dict[str, PodProgress]:
    """Return the progress of the evicted pods, by UID."""
    by_controller: defaultdict[Controller | None, list[PodRef]] = defaultdict(list)
    for pod in drain.evicted:
        by_controller[drain.controllers.get(pod.uid)].append(pod)
    return {
        pod.uid: _of_evicted(drain, controller, len(pods) - index)
        for controller, pods in by_controller.items()
        for index, pod in enumerate(pods)
    }


def _of_evicted(drain: Drain, controller: Controller | None, position: int) -> PodProgress:
    """Return the progress of an evicted pod. *position* counts from the controller's last evicted pod, which is 1."""
    if controller is None:
        return PodProgress.EVICTED
    missing = drain.shortfall(controller)
    if max(missing.created, missing.bound) >= position:
        return PodProgress.EVICTED
    return PodProgress.BOUND if missing.ready >= position else PodProgress.READY


# Evictions run in parallel. All other actions run in order, so that a taint is never removed before it was added. The
# results of all actions go into one queue.

#: Seconds between two checks whether the watched state has changed.
POLL_SECONDS: Final = 0.25

#: Seconds after which the watched state is evaluated again although it has not changed. Times in it are whole seconds.
LOOK_SECONDS: Final = 1.0


class DrainExecution:
    """The execution of one drain."""

    def __init__(
        self,
        node: Node,
        drain_actions: DrainActions,
        clock: Clock,
        view: ClusterView,
        run_state: RunState,
        threads: Threads,
        report: Report,
        debts: DebtRecorder | None,
        observation: Observation,
    ) -> None:
        self._node = node
        self._drain_actions = drain_actions
        self._clock = clock
        self._view = view
        self._run_state = run_state
        self._threads = threads
        self._report = report
        self._debts = debts
        self._results: queue.SimpleQueue[ActionResult | Exception] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._evicting = False  # while False, queued evictions are skipped
        self._leadership_lost = False  # stays True even if this replica becomes the leader again
        self._paused = ""  # why a user paused drains; it stays set even if the pause ends
        self._stopped: Cause | None = None
        self._stored = NO_TIMES  # the times of the drain that its mark contains
        self._changed_at: float | None = None  # since when the drain has other times than its mark
        self._observation = observation
        self._planning = FreshPlanning(node, view, self._observation, clock, self._submit)
        self._drain: Drain
        self._progress: DrainProgressed | None = None  # as last reported
        self._waits_at = 0.0  # when the pods that it waits for are reported again
        self._seen: tuple[Drain, int] | None = None  # the drain and the changes for which the watched state is known
        self._compared: tuple[Drain, Drain] | None = None  # the last drain, and the same without its measured times
        self._look_at = 0.0  # when the watched state is evaluated again in any case

    def run(self, initial: Result) -> Drain:
        """Run the state machine until the drain is done. Unexpected exceptions of requests are re-raised."""
        self._drain, actions = initial
        try:
            while not self._drain.done:
                self._evicting = self._drain.phase in EVICTIONS_SENT
                for action in (*actions, *self._changed_times()):
                    self._dispatch(action)
                before = self._drain
                event = self._next_event()
                self._drain, actions = transitions.step(before, event, self._clock.monotonic())
                self._report_rollout(before)
                if isinstance(event, NodeSeen):  # after other events, the counted replacement pods may be outdated
                    self._report_evicted(before)
                    self._report_progress()
        finally:
            self._evicting = False
        return self._drain

    @property
    def drain(self) -> Drain:
        """The current state of the drain."""
        return self._drain

    def _report_rollout(self, before: Drain) -> None:
        """Report the end of a roll-out, unless it was undone: the request reports that."""
        if before.rollout is None or self._drain.rollout is not None:
            return
        name, done = str(before.rollout.mark), self._drain.surges > before.surges
        if done or (before.phase is Phase.SURGING and before.rollout.asked):
            result = SurgeResult.DONE if done else SurgeResult.STOPPED
            self._report(SurgeEnded(InvolvedNode.of(self._node), name, result))

    def _report_progress(self) -> None:
        now, before = self._clock.monotonic(), self._progress
        current = progress(self._drain, InvolvedNode.of(self._node))
        states = dict(before.pods) if before is not None else {}
        since = {} if before is None else before.since
        at = {str(pod): since.get(str(pod)) if states.get(pod) is state else None for pod, state in current.pods}
        current = replace(current, since={pod: moment or self._clock.now() for pod, moment in at.items()})
        if current != before:
            self._progress, self._waits_at = current, now + WAITS_SECONDS
            self._report(current)
        elif now >= self._waits_at:
            self._waits_at = now + WAITS_SECONDS
            self._report(DrainWaits(self._clock.now(), current))

    def _report_evicted(self, before: Drain) -> None:
        """Report the pods whose EvictionRequest was successful, which the watched state shows."""
        evicted = (pod for pod in self._drain.evicted[len(before.evicted) :] if pod.uid not in self._drain.surged)
        for pod in evicted:
            self._report(EvictionAnswered(InvolvedNode.of(self._node), pod, EvictionResult.EVICTED))

    def _store(self, action: StoreDebts) -> Done[StoreDebts] | NotDone[StoreDebts]:
        if self._debts is None or self._debts.store(self._drain, end=action.end):
            return Done(StoreDebts)
        why = "the expected debts of the drain could not be stored in the memory"
        return NotDone(StoreDebts, why, Outcome.UNKNOWN)

    def _changed_times(self) -> tuple[Renew, ...]:
        """Return the request that stores the times of the drain in its mark, if it is due."""
        now, seconds = self._clock.monotonic(), exits.store_within(self._stored, self._drain)
        if seconds is None:
            self._changed_at = None
            return ()
        self._changed_at = now if self._changed_at is None else self._changed_at
        return (exits.renew(self._drain),) if now >= self._changed_at + seconds else ()

    def _dispatch(self, action: Action) -> None:
        if isinstance(action, StoreDebts):  # on this thread: the memory is not thread-safe
            self._results.put(ActionResult(self._store(action)))
            self._wake.set()
            return
        if isinstance(action, WrittenMark):
            self._stored, self._changed_at = action.times, None
        if isinstance(action, PlanAgain):
            action = replace(action, targets=action.targets | self._observation.landed(self._drain))
        if isinstance(action, LookAgain | PlanAgain):
            self._planning.begin(action)
        else:
            self._submit(action)

    def _submit(self, action: RequestAction) -> None:
        namespaces = frozenset(pod.namespace for pod in self._view.facts.pods_of(self._node.name))
        siblings = self._siblings(action)
        terms = OrderTerms()
        if isinstance(action, OrderRemoval):
            terms = replace(self._observation.order_terms(self._drain), doubt=action.doubt)
        elif isinstance(action, Mark) and self._drain.phase is Phase.MARKING:
            terms = replace(self._observation.order_terms(self._drain), in_use=bool(self._drain.intended))
        parallel = isinstance(action, Evict | TryEviction | FollowRequest | DeletePlaceholder)
        executor = self._threads.evictions if parallel else self._threads.others
        until = self._clock.monotonic() + evicting.PLANNED_SECONDS
        executor.submit(self._perform, action, namespaces, siblings, terms, until)

    def _siblings(self, action: RequestAction) -> Collection[tuple[str, OwnerReference]]:
        """Return the owners of other pods that may belong to the controllers that *action* reads."""
        match action:
            case ReadControllers(owners, controllers) | PlanAgain(owners=owners, controllers=controllers):
                namespaces = {namespace for namespace, _ in owners} | {each.namespace for each in controllers}
            case OrderRemoval():
                namespaces = {controller.namespace for controller in self._drain.debts}
            case _:
                return ()
        return self._view.facts.siblings(namespaces)

    def _perform(
        self,
        action: RequestAction,
        namespaces: Collection[str],
        siblings: Collection[tuple[str, OwnerReference]],
        terms: OrderTerms,
        until: float,
    ) -> None:
        """Perform *action* on a request thread, unless it is no longer allowed.

        An eviction that slow requests before it have kept waiting *until* then rests on a plan that is too old.
        """
        if not self._run_state.leading:
            self._leadership_lost = True
        if self._leadership_lost:
            return
        self._paused = self._paused or self._run_state.paused
        if isinstance(action, Evict) and (skipped := self._skipped(action, until)) is not None:
            self._results.put(ActionResult(skipped))
            self._wake.set()
            return
        try:
            self._results.put(self._drain_actions.perform(action, namespaces, siblings, terms))
        except NotLeading:
            self._leadership_lost = True
        except Exception as error:  # noqa: BLE001 - raised again on the waiting thread
            self._results.put(error)
        self._wake.set()

    def _skipped(self, action: Evict, until: float) -> EvictionSkipped | None:
        if self._run_state.stopping or self._paused or not self._evicting:
            return EvictionSkipped(action.pod.uid)
        if self._clock.monotonic() > until:
            return EvictionSkipped(action.pod.uid, "requests before it took so long that it must be planned again")
        return None

    def _next_event(self) -> DrainEvent:
        """Wait for the next event. Without one, return the watched state once it has changed, or after LOOK_SECONDS."""
        while True:
            self._run_state.beat()
            if (stop := self._stop_event()) is not None:
                return stop
            self._view.advance()
            if (event := self._next_result()) is not None:
                return event
            if (event := self._planning.event(self._drain)) is not None:
                return event
            if self._clock.wait(POLL_SECONDS, self._wake):
                self._wake.clear()
                continue
            self._view.advance()
            if self._clock.monotonic() >= self._look_at or self._seen != self._current():
                return self._look()

    def _look(self) -> DrainEvent:
        """Return the watched state. It is not evaluated again at once for the same drain."""
        self._seen, self._look_at = self._current(), self._clock.monotonic() + LOOK_SECONDS
        return self._observation.event(self._drain)

    def _current(self) -> tuple[Drain, int]:
        """Return what the watched state is evaluated for: the drain, without its measured times, and the changes."""
        if self._compared is None or self._compared[0] is not self._drain:
            self._compared = self._drain, replace(self._drain, kept_waiting={}, waited_at=0.0)
        return self._compared[1], self._view.snapshot.changes

    def _stop_event(self) -> Stop | None:
        """Return a Stop event if the drain must stop, at most once for each cause."""
        self._paused = self._paused or self._run_state.paused
        cause, detail = None, ""
        if self._leadership_lost or not self._run_state.leading:
            cause = Cause.LEADERSHIP_LOST
        elif self._run_state.stopping:
            cause = Cause.TERMINATED
        elif self._paused and transitions.is_stopped_by_pause(self._drain):
            cause, detail = Cause.PAUSED, self._paused
        if cause is None or cause is self._stopped:
            return None
        self._stopped = cause
        return Stop(cause, detail)

    def _next_result(self) -> DrainEvent | None:
        """Return the event of the next result that has one."""
        while not self._results.empty():
            result = self._results.get()
            if isinstance(result, Exception):
                raise result
            for report in result.reports:
                self._report(report)
            match result.event:
                case Fresh() | StepReading() as read:
                    self._planning.store(read)
                case ControllerReading() as reading:
                    return self._observation.controllers_read(self._drain, reading, self._planning.pods)
                case None:
                    continue
                case event:
                    return event
        return None


# Run a new, resumed or rolled-back drain until it ends, and report the outcome.

#: Timeout in seconds for a check of a machine that is not confirmed as terminated.
CHECK_TIMEOUT_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class DrainRunner:
    """Runs drains, one at a time. Not thread-safe."""

    def __init__(
        self,
        access: DrainContext,
        view: ClusterView,
        run_state: RunState,
        threads: Threads,
        report: Report,
        debts: DebtRecorder | None,
        checks: RemovalChecks,
    ) -> None:
        self._access = access
        self._view = view
        self._run_state = run_state
        self._threads = threads
        self._report = report
        self._debts = debts
        self._checks = checks
        #: EvictionRequests of an earlier process, or of a drain that could not withdraw them, may be left.
        self.may_be_requested = True
        #: Names of nodes that may have our marks although the watch does not show them yet.
        self.may_be_marked: set[str] = set()

    def run_and_report(
        self, node: Node, begun: Result, *, resumed: bool = False, returned: Callable[[], int] = int
    ) -> Drain:
        """Execute a drain and report its outcome. If it is *resumed*, only its machine remains to be removed."""
        started = self._access.clock.monotonic()
        drain = self.run(node, begun, resumed=resumed)
        return self.report_end(node, drain, started, resumed=resumed, returned=returned)

    def report_end(
        self, node: Node, drain: Drain, started: float, *, resumed: bool = False, returned: Callable[[], int] = int
    ) -> Drain:
        """Report the end of a drain. *returned* counts the replacement pods on nodes that are not spot."""
        clock = self._access.clock
        if drain.handed_over and not resumed:
            self._checks.begin(node.metadata.uid, absent=drain.absent)
        if resumed and drain.failure is None:
            if drain.succeeded:
                self._report(MachineGone(InvolvedNode.of(node)))
            elif drain.postponed is not None:
                self._report(RemovalPostponed(InvolvedNode.of(node), drain.postponed))
            return drain
        self._report(
            DrainEnded(
                at=clock.now(),
                node=InvolvedNode.of(node),
                placements=drain.placements,
                evicted=drain.evicted,
                failure=drain.failure,
                seconds=clock.monotonic() - started,
                removed=drain.succeeded and drain.group is not None,
                unshrunk=drain.unshrunk,
                handed_over=drain.handed_over,
                tainted=not drain.released,
                landing_seconds=drain.landing_seconds,
                removed_by=drain.removed_by,
                returned=returned() if drain.failure is None and drain.evicted else 0,
                surged=len(drain.surged & {pod.uid for pod in drain.evicted}),
                kind=drain.purpose.kind,
            )
        )
        return drain

    def run(self, node: Node, begun: Result, *, resumed: bool = False, observation: Observation | None = None) -> Drain:
        """Execute a drain. An internal error ends the drain; the node then keeps its marks until the next sweep.

        *observation* is that of its first part, if the drain is executed in two parts.
        """
        execution = self._execution(node, observation or self.observe(node), resumed=resumed)
        self.may_be_requested = True
        self.may_be_marked.add(node.name)
        try:
            drain = execution.run(begun)
        except Exception as error:
            log.exception("the drain of node %s failed with an internal error", node.name)
            why = f"{type(error).__name__}: {error}"
            self._report(Trouble(ErrorKind.ROUND, why, node.name))
            return replace(execution.drain, phase=Phase.DONE, failure=Failure(Why.INTERNAL_ERROR, why))
        self.may_be_requested = drain.requested
        if drain.released or drain.handed_over:
            self.may_be_marked.discard(node.name)
        return drain

    def reopen(self, node: Node, drain: Drain) -> Drain | None:
        """Undo the roll-out of a failed drain and remove its marks, without the watched state.

        Return None if that fails.
        """
        started, actions = self._access.clock.monotonic(), DrainActions(self._access, node)
        try:
            if drain.rollout is not None:
                undone = actions.perform(RevertSurge(drain.rollout.mark))
                for report in undone.reports:
                    self._report(report)
                if isinstance(undone.event, NotDone) and undone.event.retryable:
                    return None
            result = actions.perform(Release())
        except NotLeading:
            return None
        for report in result.reports:
            self._report(report)
        if not isinstance(result.event, Done):
            return None
        return self.report_end(node, replace(drain, phase=Phase.DONE, released=True), started)

    def observe(self, node: Node) -> Observation:
        """Return the observation of *node* for a drain that begins now."""
        return Observation(self._view, node, self._access.clock)

    def _execution(self, node: Node, observation: Observation, *, resumed: bool) -> DrainExecution:
        access = replace(self._access, provider_seconds=CHECK_TIMEOUT_SECONDS) if resumed else self._access
        actions = DrainActions(access, node, machine_orders.rivals(node, self._view.facts.nodes.values()))
        return DrainExecution(
            node,
            actions,
            self._access.clock,
            self._view,
            self._run_state,
            self._threads,
            self._report,
            self._debts,
            observation,
        )


def read_again(access: DrainContext, node: Node) -> Node | None:
    """Return the current *node* from the API server, None if it is gone, or *node* itself if the read fails."""
    try:
        fresh = access.cluster.node(node.name)
    except NotFound:
        return None
    except ReschedulerError:
        return node
    return fresh if fresh.metadata.uid == node.metadata.uid else None
