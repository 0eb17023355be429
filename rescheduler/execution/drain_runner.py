"""Run a new, resumed or rolled-back drain until it ends, and report the outcome."""

import logging
from dataclasses import replace
from typing import Final

from predicates.objects import Node
from rescheduler.draining.actions import Release
from rescheduler.draining.events import Released
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.state import Drain, Phase, Result
from rescheduler.errors import NotFound, NotLeading, ReschedulerError
from rescheduler.execution import node_refs
from rescheduler.execution.actions import DrainActions
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import DebtRecorder, DrainContext, RunState
from rescheduler.execution.drain_execution import DrainExecution
from rescheduler.execution.removal_checks import RemovalChecks
from rescheduler.execution.threads import Threads
from rescheduler.observe.events import (
    DrainEnded,
    ErrorKind,
    InvolvedNode,
    MachineGone,
    RemovalPostponed,
    Report,
    Trouble,
)

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
        debts: DebtRecorder,
        checks: RemovalChecks,
    ) -> None:
        self._access = access
        self._view = view
        self._run_state = run_state
        self._threads = threads
        self._report = report
        self._debts = debts
        self._checks = checks

    def run_and_report(self, node: Node, begun: Result, *, resumed: bool = False) -> Drain:
        """Execute a drain and report its outcome. If it is *resumed*, only its machine remains to be removed."""
        started = self._access.clock.monotonic()
        return self.report_end(node, self.run(node, begun, resumed=resumed), started, resumed=resumed)

    def report_end(self, node: Node, drain: Drain, started: float, *, resumed: bool = False) -> Drain:
        """Report the end of a drain."""
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
            )
        )
        return drain

    def run(self, node: Node, begun: Result, *, resumed: bool = False) -> Drain:
        """Execute a drain. An internal error ends the drain; the node then keeps its marks until the next sweep."""
        execution = self._execution(node, resumed=resumed)
        try:
            return execution.run(begun)
        except Exception as error:
            log.exception("the drain of node %s failed with an internal error", node.name)
            why = f"{type(error).__name__}: {error}"
            self._report(Trouble(ErrorKind.ROUND, why, node.name))
            return replace(execution.drain, phase=Phase.DONE, failure=Failure(Why.INTERNAL_ERROR, why))

    def reopen(self, node: Node, drain: Drain) -> Drain | None:
        """Remove the marks of a failed drain with one request, without the watched state. Return None if that fails."""
        started = self._access.clock.monotonic()
        try:
            result = DrainActions(self._access, node).perform(Release())
        except NotLeading:
            return None
        for report in result.reports:
            self._report(report)
        if not isinstance(result.event, Released):
            return None
        return self.report_end(node, replace(drain, phase=Phase.DONE, released=True), started)

    def _execution(self, node: Node, *, resumed: bool = False) -> DrainExecution:
        access = replace(self._access, provider_seconds=CHECK_TIMEOUT_SECONDS) if resumed else self._access
        actions = DrainActions(access, node, node_refs.rivals(node, self._view.nodes().values()))
        return DrainExecution(
            node, actions, self._access.clock, self._view, self._run_state, self._threads, self._report, self._debts
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
