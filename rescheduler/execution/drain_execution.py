"""Execute one drain: the state machine runs on the caller's thread, its actions on other threads.

Evictions run in parallel. All other actions run in order, so that a taint is never removed before it was added. The
results of all actions go into one queue.
"""

import queue
import threading
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from predicates.objects import Node, OwnerReference
from rescheduler.clock import Clock
from rescheduler.draining import machine, marking
from rescheduler.draining.actions import (
    NO_TIMES,
    Action,
    DeletePlaceholder,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    Renew,
    TryEviction,
)
from rescheduler.draining.events import Cause, Event, Marked, MarkFailed, Seen, Stop
from rescheduler.draining.eviction_outcomes import EvictionSkipped
from rescheduler.draining.state import Drain, Result
from rescheduler.draining.transitions import DEBTS_EXPECTED, DEBTS_STORED, EVICTIONS_SENT
from rescheduler.errors import NotLeading
from rescheduler.execution.actions import DrainActions
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import ActionResult, ControllerReading, DebtRecorder, RunState, StepReading
from rescheduler.execution.fresh_planning import FreshPlanning
from rescheduler.execution.observation import Observation
from rescheduler.execution.progress import progress
from rescheduler.execution.threads import Threads
from rescheduler.observe.events import DrainProgressed, InvolvedNode, Report
from rescheduler.planning.freshness import Fresh
from rescheduler.planning.last_look import OrderTerms

#: Seconds between two checks of the watched state.
POLL_SECONDS: Final = 0.25


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
        debts: DebtRecorder,
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
        self._observation = Observation(view, node)
        self._planning = FreshPlanning(node, view, self._observation, clock, self._submit)
        self._drain: Drain
        self._progress: DrainProgressed | None = None  # as last reported

    def run(self, initial: Result) -> Drain:
        """Run the state machine until the drain is done. Unexpected exceptions of requests are re-raised."""
        self._drain, actions = initial
        try:
            self._store_debts()
            while not self._drain.done:
                self._evicting = self._drain.phase in EVICTIONS_SENT
                for action in (*actions, *self._changed_times()):
                    self._dispatch(action)
                before = self._drain
                event = self._next_event()
                self._drain, actions = machine.step(before, event, self._clock.monotonic())
                if self._drain.phase is not before.phase:
                    self._store_debts()
                if isinstance(event, Seen):  # after other events, the counted replacement pods may be outdated
                    self._report_progress()
        finally:
            self._evicting = False
        return self._drain

    @property
    def drain(self) -> Drain:
        """The current state of the drain."""
        return self._drain

    def _report_progress(self) -> None:
        current = progress(self._drain, InvolvedNode.of(self._node))
        if current != self._progress:
            self._progress = current
            self._report(current)

    def _store_debts(self) -> None:
        if self._drain.phase in DEBTS_STORED:
            self._debts.store_before_end(self._drain)

    def _changed_times(self) -> tuple[Renew, ...]:
        """Return the request that stores the times of the drain in its mark, if it is due."""
        now, seconds = self._clock.monotonic(), marking.store_within(self._stored, self._drain)
        if seconds is None:
            self._changed_at = None
            return ()
        self._changed_at = now if self._changed_at is None else self._changed_at
        return (marking.renew(self._drain),) if now >= self._changed_at + seconds else ()

    def _dispatch(self, action: Action) -> None:
        if isinstance(action, Mark | Renew):
            self._stored, self._changed_at = action.times, None
        if isinstance(action, PlanAgain):
            action = replace(action, targets=action.targets | self._observation.landed(self._drain))
        if isinstance(action, LookAgain | PlanAgain):
            self._planning.begin(action)
        else:
            self._submit(action)

    def _submit(self, action: Action) -> None:
        namespaces = frozenset(pod.namespace for pod in self._view.pods_of(self._node.name))
        siblings = self._siblings(action)
        terms = OrderTerms()
        if isinstance(action, OrderRemoval):
            terms = replace(self._observation.order_terms(self._drain), doubt=action.doubt)
        parallel = isinstance(action, Evict | TryEviction | DeletePlaceholder)
        executor = self._threads.evictions if parallel else self._threads.others
        executor.submit(self._perform, action, namespaces, siblings, terms)

    def _siblings(self, action: Action) -> Collection[tuple[str, OwnerReference]]:
        """Return the owners of other pods that may belong to the controllers that *action* reads."""
        match action:
            case ReadControllers(owners, controllers) | PlanAgain(owners=owners, controllers=controllers):
                namespaces = {namespace for namespace, _ in owners} | {each.namespace for each in controllers}
            case OrderRemoval():
                namespaces = {controller.namespace for controller in self._drain.debts}
            case _:
                return ()
        return self._view.siblings(namespaces)

    def _perform(
        self,
        action: Action,
        namespaces: Collection[str],
        siblings: Collection[tuple[str, OwnerReference]],
        terms: OrderTerms,
    ) -> None:
        """Perform *action* on a request thread, unless it is no longer allowed."""
        if not self._run_state.leading:
            self._leadership_lost = True
        if self._leadership_lost:
            return
        self._paused = self._paused or self._run_state.paused
        if isinstance(action, Evict) and (self._run_state.stopping or self._paused or not self._evicting):
            self._results.put(ActionResult(EvictionSkipped(action.pod.uid)))
            self._wake.set()
            return
        try:
            self._results.put(self._drain_actions.perform(action, namespaces, siblings, terms))
        except NotLeading:
            self._leadership_lost = True
        except Exception as error:  # noqa: BLE001 - raised again on the waiting thread
            self._results.put(error)
        self._wake.set()

    def _next_event(self) -> Event:
        """Wait for the next event. After POLL_SECONDS without one, return the watched state."""
        while True:
            self._run_state.beat()
            if (stop := self._stop_event()) is not None:
                return stop
            if (event := self._next_result()) is not None:
                return event
            if (event := self._planning.event(self._drain)) is not None:
                return event
            if self._clock.wait(POLL_SECONDS, self._wake):
                self._wake.clear()
            else:
                return self._observation.event(self._drain)

    def _stop_event(self) -> Stop | None:
        """Return a Stop event if the drain must stop, at most once for each cause."""
        self._paused = self._paused or self._run_state.paused
        cause, detail = None, ""
        if self._leadership_lost or not self._run_state.leading:
            cause = Cause.LEADERSHIP_LOST
        elif self._run_state.stopping:
            cause = Cause.TERMINATED
        elif self._paused and machine.is_stopped_by_pause(self._drain):
            cause, detail = Cause.PAUSED, self._paused
        if cause is None or cause is self._stopped:
            return None
        self._stopped = cause
        return Stop(cause, detail)

    def _next_result(self) -> Event | None:
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
                case Marked() if self._drain.phase is DEBTS_EXPECTED and not self._debts.store_expected(self._drain):
                    return MarkFailed(
                        "the expected debts of the drain could not be stored in the memory", retryable=True
                    )
                case event:
                    return event
        return None
