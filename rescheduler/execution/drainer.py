"""Drain nodes one at a time, and resume or roll back drains that other processes left behind."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Node
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining import actions, transitions
from rescheduler.draining.actions import DrainTimes, Intent, Step, SurgeMark
from rescheduler.draining.state import NEVER, Drain, Limits, Rollout
from rescheduler.errors import Forbidden, NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.execution import machine_orders
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import (
    PROVIDER_SECONDS,
    DebtRecorder,
    DrainContext,
    RunState,
    Threads,
)
from rescheduler.execution.drain_execution import DrainRunner, read_again
from rescheduler.execution.machine_orders import MachineOrders, RemovalChecks
from rescheduler.execution.observation import Observation
from rescheduler.observe.events import DrainStarted, ErrorKind, InvolvedNode, Report, Sweep, Swept, Trouble
from rescheduler.planning.debts import Debt
from rescheduler.planning.last_look import PreemptedPod
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, Reason
from rescheduler.planning.rules.candidates import PROXIES
from rescheduler.providers.base import Refusal, said

#: Whether a drainer continues the drain of a marked node. None: its mark cannot be read.
Handles: TypeAlias = Callable[[Intent | None], bool]

#: A mark of another installation that expired this long ago is abandoned.
ABANDONED: Final = timedelta(hours=1)


class Sweeper:
    """Finishes or rolls back the drains of marked nodes that this process is not draining. Not thread-safe."""

    def __init__(
        self,
        access: DrainContext,
        view: ClusterView,
        runner: DrainRunner,
        limits: Limits,
        report: Report,
        checks: RemovalChecks,
        handles: Handles,
    ) -> None:
        self._access = access
        self._view = view
        self._runner = runner
        self._limits = limits
        self._report = report
        self._checks = checks
        self._handles = handles

    def sweep(self, ended: Callable[[Drain], object] = lambda _: None, *, ignore_intervals: bool = False) -> bool:
        """Resume or roll back the drains that other processes left behind. Return whether this changed any node.

        *ended* is called with each drain that ended. With *ignore_intervals*, machines are checked even if their checks
        are not due.

        A cloudpool proxy has no Lease that shows whether it runs, and it resumes its own drains after a restart. Its
        marks are therefore kept until they expire.
        """
        shown = self._view.facts.marked
        marked = [*self._not_shown({node.name for node in shown}), *filter(self._is_handled, shown)]
        self._checks.begin_sweep({node.metadata.uid for node in marked})
        swept = False
        for node in sorted(marked, key=lambda node: self._checks.due_at(node.metadata.uid)):
            if (drain := self._sweep_node(node, ignore_intervals=ignore_intervals)) is not None:
                ended(drain)
                swept = swept or not drain.handed_over
        for node in self._view.facts.still_reported:
            self._remove_condition(node)
        self._withdraw_left()
        return swept

    def _not_shown(self, shown: Collection[str]) -> list[Node]:
        """Read the nodes that may have marks which the watch has not *shown* yet. Return those that have them.

        They are read again until the watch shows them: an error may end this sweep before they are dealt with.
        Raises ReschedulerError if a node cannot be read: no other drain may begin before its marks are known.
        """
        found = []
        for name in sorted(self._runner.may_be_marked):
            node = None
            if name not in shown:
                with contextlib.suppress(NotFound):
                    node = self._access.cluster.node(name)
            if node is not None and actions.is_marked(node):
                found.append(node)
            else:
                self._runner.may_be_marked.discard(name)
        return found

    def _is_handled(self, node: Node) -> bool:
        return self._handles(actions.read(node))

    def _withdraw_left(self) -> None:
        """Withdraw the EvictionRequests that no drain follows. All of this installation's are left over now."""
        requests = self._access.requests
        if requests is None or not self._limits.requests or not self._runner.may_be_requested:
            return
        try:
            requests.withdraw_all()
        except NotLeading:
            pass
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.WRITE, str(error)))
        else:
            self._runner.may_be_requested = False

    def _remove_condition(self, node: Node) -> None:
        """Remove the condition that a drain of this installation left when its process ended, if there is one."""
        if self._access.conditions is None:
            return
        try:
            self._access.conditions.remove(node.name, node.metadata.uid)
        except NotLeading:
            pass
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.WRITE, str(error), node.name))

    def _sweep_node(self, node: Node, *, ignore_intervals: bool) -> Drain | None:
        """Resume a drain of another process of this installation. Roll back our own, and one with an unreadable mark.

        One that only makes room is rolled back as well: the node for which it does is planned again first.

        The Node is read again first, because the watched state may lag behind our last write.
        """
        fresh = read_again(self._access, node)
        if fresh is None or not actions.is_marked(fresh):
            return None
        node, written = fresh, actions.read(fresh)
        if written is not None and self._is_from_proxy(written):
            return self._clean_up_after_proxy(node, written)
        if written is not None and self._is_from_other_installation(written):
            return self._clean_up_after_other(node, written)
        if written is not None and written.step is Step.REMOVING:
            return self._check_removal(node, written, ignore_intervals=ignore_intervals)
        if written is not None and (why := self._overdue(written)):
            return self._reopen(node, written, why)
        if written is None or written.holder == self._access.holder or written.kind is DrainKind.MAKES_ROOM:
            if written is None:
                return self._roll_back(node, "")
            return self._roll_back(node, written.holder, written.debts, written.surge)
        self._report(Swept(InvolvedNode.of(node), written.holder, Sweep.RESUMED))
        self._report(DrainStarted(InvolvedNode.of(node), None))
        times = DrainTimes(self._monotonic(written.evicted), self._monotonic(written.due))
        tainted_at = self._tainted_at(node, written)
        self._access.controllers.recall(written.debts)
        begun = transitions.resume(
            node.name,
            self._limits,
            written.pods,
            written.debts,
            written.since,
            times,
            tainted_at,
            written.surge,
            self._preempted(node),
            written.purpose,
        )
        return self._runner.run_and_report(node, begun)

    def _preempted(self, node: Node) -> tuple[PreemptedPod, ...]:
        """Return which pods were preempted, as far as Events tell: the earlier process may not have noticed it.

        Raises Retryable: the drain must not go on before this is known.
        """
        try:
            return tuple(self._access.cluster.preempted())
        except Forbidden:  # a cloudpool proxy need not be allowed to list Events
            return ()
        except Retryable:
            raise
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.READ, str(error), node.name))
            return ()

    def reopen_overdue(self) -> Iterator[Drain]:
        """Reopen the nodes of interrupted drains of this installation that are overdue. Remember the other ones.

        This needs no watched state, so that a process that is killed soon after each start does not keep nodes closed,
        and so that no drain begins while the watch does not show yet what another process has marked.
        Raises ReschedulerError if the Nodes cannot be read.
        """
        for node in self._access.cluster.nodes():
            written = actions.read(node)
            if written is None or self._is_from_proxy(written) or self._is_from_other_installation(written):
                continue
            self._runner.may_be_marked.add(node.name)
            if written.step is Step.DRAINING and (why := self._overdue(written)):
                drain = self._reopen(node, written, why)
                if drain is not None:
                    yield drain

    def _overdue(self, written: Intent) -> str:
        return transitions.overdue(written, self._limits, self._access.clock.now())

    def _reopen(self, node: Node, written: Intent, why: str) -> Drain | None:
        """Remove the marks of an interrupted drain that is overdue.

        Return None if that fails; a later sweep repeats it.
        """
        drain = transitions.reopen_overdue(node.name, self._limits, written.debts, why)
        rollout = None if written.surge is None else Rollout(written.surge)
        drain = replace(drain, last_eviction_at=self._monotonic(written.evicted), rollout=rollout)
        if (reopened := self._runner.reopen(node, drain)) is not None:
            self._report(Swept(InvolvedNode.of(node), written.holder, Sweep.ROLLED_BACK))
        return reopened

    def _monotonic(self, moment: datetime | None) -> float | None:
        """Return *moment* in monotonic seconds."""
        if moment is None:
            return None
        clock = self._access.clock
        return clock.monotonic() + (moment - clock.now()).total_seconds()

    def _tainted_at(self, node: Node, written: Intent) -> float:
        """Return since when *node* has had our taint, in monotonic seconds; NEVER if it does not have it."""
        tainted = any(taint.key == DRAIN_TAINT.key for taint in node.spec.taints)
        since = self._monotonic(written.since) if tainted else None
        return NEVER if since is None else since

    def _check_removal(self, node: Node, written: Intent, *, ignore_intervals: bool) -> Drain | None:
        """Check the machine once, at growing intervals unless *ignore_intervals*.

        If the machine was unknown to the provider, the interval is always respected.
        """
        uid = node.metadata.uid
        if (check := self._checks.due(uid, ignore_intervals=ignore_intervals)) is None:
            return None
        limits = replace(self._limits, removal=0)
        begun = transitions.resume_removal(
            node.name,
            limits,
            written.group,
            written.since,
            written.debts,
            absent=check.absent,
            tainted_at=self._tainted_at(node, written),
            preempted=self._preempted(node),
            purpose=written.purpose,
        )
        drain = self._runner.run_and_report(node, begun, resumed=True)
        self._checks.repeat(uid, check, absent=drain.absent)
        return drain

    def _is_from_proxy(self, written: Intent) -> bool:
        return written.holder.startswith(PROXIES) and written.holder != self._access.holder

    def _is_from_other_installation(self, written: Intent) -> bool:
        """Return whether another installation wrote the mark. Marks of version 0.1.0 have no identity and are ours."""
        return bool(written.identity) and written.identity != self._access.identity

    def _clean_up_after_proxy(self, node: Node, written: Intent) -> Drain | None:
        """Roll back the drain of a proxy whose mark has expired.

        If the proxy requested the machine's termination and the machine still runs, it stays. If the machine is gone,
        the taint stays until the cloud controller deletes the Node.
        """
        runs = written.step is not Step.REMOVING or node.condition("Ready") == "True"
        if written.lapsed(self._access.clock.now()) and runs:
            return self._roll_back(node, written.holder)
        return None

    def _clean_up_after_other(self, node: Node, written: Intent) -> Drain | None:
        """Roll back a drain of another installation if its mark expired more than ABANDONED ago."""
        now = self._access.clock.now()
        if written.step is Step.DRAINING and written.lapsed(now - ABANDONED):
            return self._roll_back(node, written.holder, surge=written.surge)
        return None

    def _roll_back(
        self, node: Node, holder: str, debts: tuple[Debt, ...] = (), surge: SurgeMark | None = None
    ) -> Drain:
        self._report(Swept(InvolvedNode.of(node), holder, Sweep.ROLLED_BACK))
        now = self._access.clock.monotonic()
        if surge is not None:
            return self._runner.run(node, transitions.undo(node.name, self._limits, debts, surge, now))
        return self._runner.run(node, transitions.roll_back(node.name, self._limits, debts, now))


class ProviderSilent(ReschedulerError):
    """The provider does not respond, so the state of its machines is unknown."""


@dataclass(frozen=True, slots=True)
class PendingRemoval:
    """A drain whose machine termination was requested but is not confirmed yet."""

    drain: Drain
    node: Node
    started: float  #: start of the drain in monotonic seconds
    #: Knows the pods that replacement pods have preempted, also before and after the order.
    observation: Observation


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
        handles: Handles = lambda _: True,
    ) -> None:
        """Create the drainer. Its sweeps continue only the drains that it *handles*."""
        self._access = access
        self._view = view
        self._limits = limits
        self._report = report
        checks = RemovalChecks(access.clock)
        self._runner = DrainRunner(access, view, run_state, threads, report, debts, checks)
        self._sweeper = Sweeper(access, view, self._runner, limits, report, checks, handles)

    @property
    def takes_machines(self) -> bool:
        """Whether a provider removes the machines of drained nodes."""
        return self._access.provider.name != "none"

    def notices(self, nodes: Sequence[Node]) -> Mapping[str, datetime]:
        """Return the *nodes* that the provider will reclaim soon, and when. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._provider_errors():
            provider.refresh(deadline=deadline)
            return provider.notices([machine_orders.ref(node) for node in nodes], deadline=deadline)

    def refusal(self, name: str) -> Blocker | None:
        """Return why the provider would not remove the machine of node *name*.

        None if it would, or if the machine belongs to none of its groups. Raises ProviderSilent.
        """
        if not self.takes_machines or (node := self._view.facts.node(name)) is None:
            return None
        orders = MachineOrders(self._access, node, machine_orders.rivals(node, self._view.facts.nodes.values()))
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
            self._report(Trouble(ErrorKind.PROVIDER, said(self._access.provider.name, error)))
            raise ProviderSilent(str(error)) from error

    def ending(self, nodes: Iterable[Node]) -> frozenset[str]:
        """Return the names of the *nodes* whose machine is gone or terminating. Raises ProviderSilent."""
        provider, deadline = self._access.provider, self._access.clock.monotonic() + PROVIDER_SECONDS
        with self._provider_errors():
            provider.refresh(deadline=deadline)
            has_instance = (
                (node.name, provider.has_instance(machine_orders.ref(node), deadline=deadline)) for node in nodes
            )
            return frozenset(name for name, exists in has_instance if exists is False)

    def drain(self, plan: Plan, returned: Callable[[], int] = int) -> Drain | None:
        """Execute *plan*. Return the drain in its final state, or None if the node is already gone.

        *returned* returns how many replacement pods are on nodes that are not spot; it is called at the end.
        """
        if (node := self._view.facts.node(plan.node)) is None:
            return None
        self._report(DrainStarted(InvolvedNode.of(node), plan))
        return self._runner.run_and_report(node, transitions.start(plan, self._limits), returned=returned)

    def order(self, plan: Plan) -> Drain | PendingRemoval | None:
        """Execute *plan*, but do not wait for the machine's termination once the provider has accepted it.

        The caller waits for the termination with `finish`; the next drain can start in the meantime. The provider must
        respond as soon as it has accepted the request.
        """
        if (node := self._view.facts.node(plan.node)) is None:
            return None
        self._report(DrainStarted(InvolvedNode.of(node), plan))
        started, observation = self._access.clock.monotonic(), self._runner.observe(node)
        begun = transitions.start(plan, replace(self._limits, removal=0))
        drain = self._runner.run(node, begun, observation=observation)
        if drain.handed_over:
            return PendingRemoval(drain, node, started, observation)
        return self._runner.report_end(node, drain, started)

    def finish(self, ordered: PendingRemoval) -> Drain:
        """Wait until the machine is terminated. Return the drain in its final state."""
        begun = transitions.await_end(ordered.drain, self._limits, self._access.clock.monotonic())
        drain = self._runner.run(self._with_removal_mark(ordered.node), begun, observation=ordered.observation)
        return self._runner.report_end(ordered.node, drain, ordered.started)

    def _with_removal_mark(self, node: Node) -> Node:
        """Read *node* again and return it if it has our removal mark; otherwise return *node* itself."""
        fresh = read_again(self._access, node)
        written = actions.read(fresh) if fresh is not None else None
        ours = written is not None and written.holder == self._access.holder and written.step is Step.REMOVING
        return fresh if fresh is not None and ours else node

    def sweep(self, ended: Callable[[Drain], object] = lambda _: None, *, ignore_intervals: bool = False) -> bool:
        """Resume or roll back drains of other processes; see :meth:`~rescheduler.execution.drainer.Sweeper.sweep`."""
        return self._sweeper.sweep(ended, ignore_intervals=ignore_intervals)

    def reopen_overdue(self) -> list[Drain]:
        """See :meth:`~rescheduler.execution.drainer.Sweeper.reopen_overdue`."""
        return list(self._sweeper.reopen_overdue())
