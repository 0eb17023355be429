"""The parts of the proxy that work on the watched cluster: its view, updates of the pool, and sweeps between
them. Separate from the composition root, so that tests can run it without a server.
"""

import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.cloudpool.pool import CloudPool, Ending
from rescheduler.cloudpool.provider import CloudpoolProvider
from rescheduler.cloudpool.proxy.config import DrainSection, ProxyFile
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from rescheduler.cloudpool.proxy.removal import FailedDrains, KeptMemory, RemovalMethod, RemovalMethods
from rescheduler.cloudpool.proxy.updates import PoolUpdates
from rescheduler.draining import actions
from rescheduler.draining.actions import ANNOTATION, Intent, Mark, Step
from rescheduler.draining.state import Drain, Limits
from rescheduler.errors import MarkLost, NotFound, ReschedulerError
from rescheduler.execution import machine_orders
from rescheduler.execution.actions import NodeMarks
from rescheduler.execution.cluster_view import ClusterView, ViewSources, why_unusable
from rescheduler.execution.context import DrainContext, Threads
from rescheduler.execution.drainer import Drainer, PendingRemoval
from rescheduler.facts.round_facts import Known
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.state import ClusterState
from rescheduler.kube.unwatched import PodGroups
from rescheduler.observe import events
from rescheduler.observe.events import ErrorKind, Report, Trouble, WatchAges
from rescheduler.observe.pages import Health
from rescheduler.planning.answers.removals import plan_removals
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.policy import Destination, LeaderFacts, MoveJobs, Policy, Surging
from rescheduler.planning.rules.candidates import PROXIES, control_plane_nodes
from rescheduler.providers.base import CloudProvider, NodeRef
from rescheduler.providers.none import NoProvider
from rescheduler.providers.order_life import OrderResult

# The view of the cluster that the proxy's drains and updates use.

#: How the removal of a pool's node differs from a drain of the daemon. By the rules of kubeaware-cloudpool-proxy, pods
#: may go to any other node that is Ready and not of the control plane, pods of kube-system end with their node, local
#: storage of any kind keeps it, and only the first reason for each pod is told. It has no options for pods of other
#: schedulers and of Jobs, and no priorities: it moves them all. It shortens long grace periods. Plans are not rejected
#: because of forecasts.
_POLICY: Final = Policy(
    destination=Destination.OTHERS,
    system_pods_stay=True,
    keep_any_local_volume=True,
    wait_for_terminating=True,
    one_reason_per_pod=True,
    skip_nodes_with_local_storage=False,
    skip_nodes_with_system_pods=False,
    scheduler_names=(),
    expendable_pods_priority_cutoff=-(2**31),
    move_jobs=MoveJobs.ALWAYS,
    shorten_grace_periods=True,
    surge=Surging.OFF,
    planning_timeout=1.0,
    allow_fragile_plans=True,
    allow_returning_plans=True,
)


def policy(drain: DrainSection) -> Policy:
    """Return the policy of a proxy whose drains have these limits."""
    limits = drain.limits()
    return replace(_POLICY, max_graceful_termination=limits.grace).of_drains(limits.eviction)


#: The maximum wait until the watched state shows released nodes, and the wait between two checks, in seconds.
RELEASE_SECONDS: Final = 3.0
RELEASE_POLL_SECONDS: Final = 0.2


def choose(view: ClusterView, nodes: Iterable[str], limit: int) -> Planning:
    """Plan the removal of at most *limit* of *nodes*; see :func:`.plan_removals`."""
    view.catch_up()
    return plan_removals(nodes, limit, view.planner.round(view.circumstances))


_NOT_SWEPT: Final = "interrupted drains of an earlier process have not been looked for yet"


class ClusterNodes:
    """The watched cluster (implements `removal.NodeOperations`)."""

    def __init__(
        self,
        view: ClusterView,
        access: DrainContext,
        report: Report,
        stop: threading.Event,
        owed: Callable[[], str],
    ) -> None:
        """Create the operations. The provider of *access* is not used. Once *stop* is set, waits end.

        *owed* returns the pods that failed drains still owe.
        """
        self._view, self._access = view, access
        self._clock, self._holder, self._report = access.clock, access.holder, report
        self._stop, self._owed = stop, owed
        self._marks: dict[str, NodeMarks] = {}  # of the nodes of the last call of `taint`
        self.not_swept = _NOT_SWEPT  #: why drains that were interrupted may not have ended; "" after a sweep
        self.sweep: Callable[[], None] = lambda: None  #: ends them

    def why_unusable(self) -> str:
        if why := self.why_unknown():
            return why
        if self.not_swept:  # the watched state was not usable, or a request failed, when the update began
            self.sweep()
        return self.not_swept

    def why_unknown(self) -> str:
        """Return why the watched state cannot be used, or ""."""
        return self._view.why_unusable() or self._view.stale()

    def owed(self) -> str:
        self._view.advance()  # a termination may have been waited for
        return self._owed()

    def leaving(self) -> Collection[str]:
        return self._marked(Step.REMOVING)

    def draining(self) -> Collection[str]:
        """Return the nodes with our marks for which no machine termination was requested."""
        return self._marked(Step.DRAINING)

    def end_sweep(self) -> None:
        """Wait briefly until the watched state no longer shows our marks. No drain may start while nodes have them."""
        self.wait_for_release()
        left = [name for name in sorted(self.draining()) if self._is_marked(name)]  # the watch may be late
        self.not_swept = (
            f"node {left[0]} has the marks of an interrupted drain, which are being removed" if left else ""
        )

    def wait_for_release(self) -> None:
        """Wait briefly until the watched state no longer shows our marks."""
        deadline = self._clock.monotonic() + RELEASE_SECONDS
        while self.draining() and self._clock.monotonic() < deadline:
            if self._clock.wait(RELEASE_POLL_SECONDS, self._stop):
                break

    def _marked(self, step: Step) -> Collection[str]:
        self._view.advance()
        return {name for name, node in self._view.facts.nodes.items() if self._has_mark(node, step)}

    def _has_mark(self, node: Node, step: Step) -> bool:
        mark = actions.read(node)
        return mark is not None and mark.holder == self._holder and mark.step is step

    def _is_marked(self, name: str) -> bool:
        """Return whether a node has our mark of a drain now, or may have it."""
        try:
            return self._has_mark(self._access.cluster.node(name), Step.DRAINING)
        except NotFound:
            return False
        except ReschedulerError:
            return True

    def refs(self) -> Sequence[NodeRef]:
        control = frozenset(control_plane_nodes(self._view.advance()))
        return [
            machine_orders.ref(node, control_plane=node.name in control) for node in self._view.facts.nodes.values()
        ]

    def refs_now(self) -> Sequence[NodeRef]:
        return [machine_orders.ref(node) for node in self._access.cluster.nodes()]

    def choose(self, nodes: Sequence[str], limit: int) -> Planning:
        planning = choose(self._view, nodes, limit)
        known = {name: events.InvolvedNode.of(node) for name, node in self._view.facts.nodes.items()}
        self._report(events.Chosen(planning.plans, planning.rejected, known))
        return planning

    def taint(self, nodes: Sequence[str]) -> None:
        self._marks.clear()
        for name in nodes:
            if (node := self._view.facts.node(name)) is None:
                raise NotFound(f"node {name} is gone")
            written = actions.read(node)
            if ANNOTATION in node.metadata.annotations and (written is None or written.holder != self._holder):
                raise MarkLost(f"node {name}: another program drains it")
            marks = self._marks[name] = NodeMarks(self._access, node)
            marks.write(Mark(Step.DRAINING))
            self._report(events.Tainted(events.InvolvedNode.of(node)))

    def release(self, nodes: Sequence[str]) -> None:
        for name in nodes:
            marks = self._marks.pop(name, None)
            try:
                if marks is not None:
                    marks.remove()
            except (NotFound, MarkLost):  # nothing left to release
                continue
            except ReschedulerError as error:
                self._report(Trouble(ErrorKind.WRITE, f"the taint could not be removed: {error}", name))
        if nodes:
            self.wait_for_release()


log = logging.getLogger(__name__)


class AlwaysLeading:
    """The leadership of the proxy: a pool has only one proxy, which leads until it stops."""

    leading = True
    paused = ""  #: a proxy has no Lease, and its drains are ordered by the pool's clients

    def __init__(self, clock: Clock, state: ClusterState, sweep_seconds: float) -> None:
        self.stop = threading.Event()
        self.listening = False  #: whether the pool's clients are served
        self.health = Health(
            clock,
            sweep_seconds,
            lambda: state.synced and self.listening and not self.stopping,
            lambda: why_unusable(state) or "the pool's clients are not served",
        )

    @property
    def stopping(self) -> bool:
        return self.stop.is_set()

    def beat(self) -> None:
        self.health.beat()


class ExclusiveUpdates:
    """Updates that never run at the same time as sweeps, because both read the same snapshot and mark nodes.

    Each update starts with a sweep, which finishes or rolls back drains that another process left behind.
    """

    def __init__(self, updates: PoolUpdates, lock: threading.Lock, sweep: Callable[[], None]) -> None:
        self._updates, self._lock, self._sweep = updates, lock, sweep

    def set_size(self, desired: int) -> str:
        with self._after_sweep():
            return self._updates.set_size(desired)

    def terminate(self, machine: str, *, decrement: bool) -> str:
        with self._after_sweep():
            return self._updates.terminate(machine, decrement=decrement)

    def dispose(self, machine: str) -> str:
        with self._after_sweep():
            return self._updates.dispose(machine)

    def detach(self, machine: str, *, decrement: bool) -> str:
        with self._after_sweep():
            return self._updates.detach(machine, decrement=decrement)

    def is_inactive(self, machine: str) -> bool:
        return self._updates.is_inactive(machine)

    def reactivate(self, machine: str, *, evictable: bool) -> str:
        with self._after_sweep():
            return self._updates.reactivate(machine, evictable=evictable)

    @contextlib.contextmanager
    def _after_sweep(self) -> Iterator[None]:
        with self._lock:
            self._sweep()
            yield


class ProxyService:
    """The parts of the proxy that work on the watched cluster."""

    def __init__(
        self,
        file: ProxyFile,
        state: ClusterState,
        client: Client,
        standing: AlwaysLeading,
        threads: Threads,
        report: Report,
        own_node: str,
        ledger: KeptMemory,
        waive: str,
    ) -> None:
        self.pool = CloudPool(file.pool(), Path(), SteadyClock(SystemClock()), file.url_password)
        self._standing, self._threads, self._report = standing, threads, report
        self._clock: Clock = self.pool.clock
        self._cluster = KubeCluster(client)
        self._controllers = ControllerReader(client, self._clock)
        # The same after a restart, and different for another pool.
        self.holder = f"{PROXIES}{hashlib.sha256(file.backend_url.encode()).hexdigest()[:8]}"
        limits = file.drain.limits()
        # Victims stay marked while earlier ones are drained. No drain starts after the deadline of the update.
        self._mark_validity = timedelta(seconds=file.server.update_timeout + limits.longest)
        groups = PodGroups(client, self._clock, buffers=False)
        known = Known(holder=self.holder, leader=LeaderFacts(own=own_node, ends_machines=True))
        sources = ViewSources(memory=lambda: self._failed.memory, unwatched=(groups.refresh,))
        self._view = ClusterView(state, policy(file.drain), self._clock, known, sources)
        patience = timedelta(seconds=limits.landing or limits.eviction)
        ready = limits.landing > 0
        self._failed = FailedDrains(
            self._view,
            self._controllers,
            self._clock,
            report,
            patience,
            self._cluster.node_leases,
            ledger,
            ready=ready,
            waive=waive,
        )
        self._drainers: dict[Ending, Drainer] = {}
        methods = self._methods(limits)
        access = self._access(NoProvider())
        self._nodes = ClusterNodes(self._view, access, report, standing.stop, self._failed.owed)
        self._nodes.sweep = partial(self._tidy, ignore_intervals=True)
        self._lock = threading.Lock()
        updates = PoolUpdates(self.pool, self._nodes, methods, file.server.update_timeout, ledger, standing.stop)
        self._finish = updates.finish
        self._looked_for_begun = False  # for what a killed process has begun
        self.updates = ExclusiveUpdates(updates, self._lock, self._nodes.sweep)

    def sweep(self) -> bool:
        """Finish requested removals and roll back abandoned drains; return whether the cluster's state allowed that.

        During an update, which starts with a sweep, nothing is done.
        """
        self._report(WatchAges(self._view.ages()))
        if self._lock.acquire(blocking=False):
            try:
                self._tidy()
            finally:
                self._lock.release()
        return not self._nodes.why_unknown()

    def _tidy(self, *, ignore_intervals: bool = False) -> None:
        """Sweep once. Errors are reported and not raised; the next sweep retries. *ignore_intervals* as in `sweep`.

        An update that follows repeats a sweep that failed, or fails: the drain that a killed process left behind may
        have evicted pods, and its marks are like our own.
        """
        self._nodes.not_swept = _NOT_SWEPT
        if (unknown := self._nodes.why_unknown()) and self._looked_for_begun:
            return
        if why := self._failed.unknown():  # what the drain of a killed process owes is stored with it
            self._nodes.not_swept = _NOT_SWEPT if unknown else why
            self._report(Trouble(ErrorKind.READ, why))
            return
        self._finish_reactivation()  # at the start at once: the pool may end a machine at its next update
        if unknown:
            return
        try:
            self._view.catch_up()
            for drainer in self._drainers.values():
                drainer.sweep(self._failed.note, ignore_intervals=ignore_intervals)
        except Exception as error:
            log.exception("a sweep failed with an internal error")
            self._report(Trouble(ErrorKind.ROUND, f"{type(error).__name__}: {error}"))
            return
        self._nodes.end_sweep()

    def _finish_reactivation(self) -> None:
        """Finish what a killed process has begun. The next sweep, and each update, tries it again."""
        self._looked_for_begun = True
        try:
            self._finish()
        except UpdateFailed as failure:
            self._report(Trouble(ErrorKind.PROVIDER, f"a machine was not made active again: {failure.detail}"))

    def _methods(self, limits: Limits) -> RemovalMethods:
        """Return the methods of removing machines. Each one that deletes machines has a drainer, also for sweeps."""
        methods: dict[Ending, RemovalMethod] = {}
        for ending in Ending:
            provider = CloudpoolProvider([self.pool], ending, prompt=True)
            self._drainers[ending] = self._drainer(provider, limits, ending)
            methods[ending] = self._removal_method(self._drainers[ending], provider)
        keeping = NoProvider()
        return RemovalMethods(
            shrink=methods[Ending.SHRINK],
            replace=methods[Ending.REPLACE],
            dispose=methods[Ending.DISPOSE],
            keep=self._removal_method(self._drainer(keeping, limits, Ending.SHRINK), keeping),
        )

    def _removal_method(self, drainer: Drainer, provider: CloudProvider) -> RemovalMethod:
        def drain(plan: Plan) -> Drain | PendingRemoval | None:
            ended = drainer.order(plan)
            if ended is not None:
                self._failed.note(ended.drain if isinstance(ended, PendingRemoval) else ended)
            return ended

        def finish(ordered: PendingRemoval) -> Drain:
            ended = drainer.finish(ordered)
            if ended.handed_over and ended.released and self._is_accepted(ordered):
                ended = replace(ended, confirmed=True)
            self._failed.note(ended)
            return ended

        return RemovalMethod(drain, finish, provider)

    def _is_accepted(self, ordered: PendingRemoval) -> bool:
        """Return whether the pool accepted the termination order of a drain whose Node is already gone.

        A controller may delete the Node of a terminated machine before the pool lists its machines again.
        """
        machine = self.pool.ledger.machine_of(machine_orders.ref(ordered.node))
        order = self.pool.ledger.order(machine) if machine is not None else None
        return order is not None and order.result is OrderResult.DONE

    def _drainer(self, provider: CloudProvider, limits: Limits, ending: Ending) -> Drainer:
        access, handles = self._access(provider), partial(self._is_ours, ending)
        return Drainer(
            access, self._view, self._standing, self._threads, limits, self._report, handles=handles, debts=self._failed
        )

    def _access(self, provider: CloudProvider) -> DrainContext:
        return DrainContext(
            self._cluster, provider, self._clock, self.holder, self._controllers, mark_validity=self._mark_validity
        )

    def _is_ours(self, ending: Ending, written: Intent | None) -> bool:
        """Return whether the drainer with this *ending* handles the drain that *written* describes.

        Ending.SHRINK also handles drains whose ending is not recorded yet, and expired drains of other proxies.
        """
        if written is None:
            return False
        if written.holder != self.holder:
            lapsed = written.holder.startswith(PROXIES) and written.lapsed(self._clock.now())
            return lapsed and ending is Ending.SHRINK
        named = (
            suffix for suffix in Ending if suffix and written.step is Step.REMOVING and written.group.endswith(suffix)
        )
        return ending is next(named, Ending.SHRINK)
