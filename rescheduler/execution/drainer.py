"""Drain nodes one at a time, and resume or roll back drains that other processes left behind."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from predicates.objects import Node
from rescheduler.draining import intent, machine
from rescheduler.draining.intent import Step
from rescheduler.draining.state import Drain, Limits
from rescheduler.errors import ReschedulerError
from rescheduler.execution import node_refs
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import PROVIDER_SECONDS, DebtRecorder, DrainContext, NoDebtRecorder, RunState
from rescheduler.execution.drain_runner import DrainRunner, read_again
from rescheduler.execution.machine_orders import MachineOrders
from rescheduler.execution.removal_checks import RemovalChecks
from rescheduler.execution.sweeping import Sweeper
from rescheduler.execution.threads import Threads
from rescheduler.observe.events import DrainStarted, ErrorKind, InvolvedNode, Report, Trouble
from rescheduler.planning.outcome import Blocker, Plan, Reason
from rescheduler.providers.base import Refusal


class ProviderSilent(ReschedulerError):
    """The provider does not respond, so the state of its machines is unknown."""


@dataclass(frozen=True, slots=True)
class PendingRemoval:
    """A drain whose machine termination was requested but is not confirmed yet."""

    drain: Drain
    node: Node
    started: float  #: start of the drain in monotonic seconds


class Drainer:
    """Starts, resumes and rolls back drains. Not thread-safe."""

    def __init__(
        self,
        access: DrainContext,
        view: ClusterView,
        run_state: RunState,
        threads: Threads,
        limits: Limits,
        report: Report,
        debts: DebtRecorder | None = None,
    ) -> None:
        self._access = access
        self._view = view
        self._limits = limits
        self._report = report
        checks = RemovalChecks(access.clock)
        self._runner = DrainRunner(access, view, run_state, threads, report, debts or NoDebtRecorder(), checks)
        self._sweeper = Sweeper(access, view, self._runner, limits, report, checks)

    @property
    def takes_machines(self) -> bool:
        """Whether a provider removes the machines of drained nodes."""
        return self._access.provider.name != "none"

    def notices(self, nodes: Sequence[Node]) -> Mapping[str, datetime]:
        """Return the *nodes* that the provider will reclaim soon, and when. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._provider_errors():
            provider.refresh(deadline=deadline)
            return provider.notices([node_refs.ref(node) for node in nodes], deadline=deadline)

    def refusal(self, name: str) -> Blocker | None:
        """Return why the provider would not remove the machine of node *name*.

        None if it would, or if the machine belongs to none of its groups. Raises ProviderSilent.
        """
        if not self.takes_machines or (node := self._view.node(name)) is None:
            return None
        orders = MachineOrders(self._access, node, node_refs.rivals(node, self._view.nodes().values()))
        with self._provider_errors():
            _, refused = orders.inquire()
        if refused is None:
            return None
        provider = self._access.provider.name
        if refused.reason is Refusal.BELOW_MINIMUM:
            return Blocker(Reason.BELOW_MINIMUM, f"{provider}: {refused.detail}")
        return Blocker(Reason.PROVIDER_REFUSED, f"{provider}: {refused}")

    @contextlib.contextmanager
    def _provider_errors(self) -> Iterator[None]:
        try:
            yield
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, f"{self._access.provider.name}: {error}"))
            raise ProviderSilent(str(error)) from error

    def ending(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the names of the *nodes* whose machine is gone or terminating. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._provider_errors():
            provider.refresh(deadline=deadline)
            has_instance = (
                (node.name, provider.has_instance(node_refs.ref(node), deadline=deadline)) for node in nodes
            )
            return frozenset(name for name, exists in has_instance if exists is False)

    def drain(self, plan: Plan) -> Drain | None:
        """Execute *plan*. Return the drain in its final state, or None if the node is already gone."""
        if (node := self._view.node(plan.node)) is None:
            return None
        self._report(DrainStarted(InvolvedNode.of(node), plan))
        return self._runner.run_and_report(node, machine.start(plan, self._limits))

    def order(self, plan: Plan) -> Drain | PendingRemoval | None:
        """Execute *plan*, but do not wait for the machine's termination once the provider has accepted it.

        The caller waits for the termination with `finish`; the next drain can start in the meantime. The provider must
        respond as soon as it has accepted the request.
        """
        if (node := self._view.node(plan.node)) is None:
            return None
        self._report(DrainStarted(InvolvedNode.of(node), plan))
        started = self._access.clock.monotonic()
        drain = self._runner.run(node, machine.start(plan, replace(self._limits, removal=0)))
        if drain.handed_over:
            return PendingRemoval(drain, node, started)
        return self._runner.report_end(node, drain, started)

    def finish(self, ordered: PendingRemoval) -> Drain:
        """Wait until the machine is terminated. Return the drain in its final state."""
        begun = machine.await_end(ordered.drain, self._limits, self._access.clock.monotonic())
        drain = self._runner.run(self._with_removal_mark(ordered.node), begun)
        return self._runner.report_end(ordered.node, drain, ordered.started)

    def _with_removal_mark(self, node: Node) -> Node:
        """Read *node* again and return it if it has our removal mark; otherwise return *node* itself."""
        fresh = read_again(self._access, node)
        written = intent.read(fresh) if fresh is not None else None
        ours = written is not None and written.holder == self._access.holder and written.step is Step.REMOVING
        return fresh if fresh is not None and ours else node

    def sweep(self, ended: Callable[[Drain], object] = lambda _: None, *, ignore_intervals: bool = False) -> bool:
        """Resume or roll back drains of other processes; see :meth:`~rescheduler.execution.sweeping.Sweeper.sweep`."""
        return self._sweeper.sweep(ended, ignore_intervals=ignore_intervals)

    def reopen_overdue(self) -> list[Drain]:
        """See :meth:`~rescheduler.execution.sweeping.Sweeper.reopen_overdue`."""
        return list(self._sweeper.reopen_overdue())
