"""The composition root: create the parts of the daemon, start them, and stop them."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from predicates.objects import Node
from predicates.snapshot import Snapshot
from rescheduler import providers
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.draining.state import Limits
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import DrainContext
from rescheduler.execution.drainer import Drainer
from rescheduler.execution.event_recording import recording
from rescheduler.execution.landings import Landings
from rescheduler.execution.ownership import Ownership
from rescheduler.execution.provider_prices import provider_prices
from rescheduler.execution.watched_state import unfit
from rescheduler.housekeeping.bookkeeping import Bookkeeping, NoBookkeeping, Pricing
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.drain_records import DrainRecords
from rescheduler.housekeeping.loop import Actors, Knowledge, Loop, Mode, RoundOutcome
from rescheduler.housekeeping.new_nodes import NewNodes
from rescheduler.housekeeping.soft_taint import SoftTaint
from rescheduler.kube import state as kube_state
from rescheduler.kube.client import Client, connect
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.elector import Elector, identity
from rescheduler.kube.guard import ReadOnly
from rescheduler.kube.lease_object import LeaseNotes, LeaseReader
from rescheduler.kube.memory import SAVINGS_KEY, MemoryStore
from rescheduler.kube.rights import (
    AccessRight,
    RightsReview,
    describe_missing,
    rights_of_a_dry_run,
    rights_of_the_daemon,
)
from rescheduler.kube.state import ClusterState
from rescheduler.net.server import serving
from rescheduler.observe import logs as log_lines
from rescheduler.observe.events import InvolvedLease, Report, Started, tee
from rescheduler.observe.health import Health
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import application
from rescheduler.observe.status import Status
from rescheduler.planning.pauses import manual_pause
from rescheduler.planning.policy import Policy
from rescheduler.planning.prices import PriceList
from rescheduler.planning.spot_losses import SpotWatch
from rescheduler.providers.base import CloudProvider, GroupFlags
from rescheduler.settings import ApiServerConnection, Logging, Provider, Running, Timing
from rescheduler.stopping import on_signals
from rescheduler.threads import running as running_threads
from rescheduler.version import VERSION

#: How long ``--once`` waits for the caches to sync and for the Lease.
ONCE_PATIENCE: Final = timedelta(minutes=2)

#: How long a drain waits for its machine to terminate before the next drain may start; longer with ``--once``.
REMOVAL_SECONDS: Final = 30.0
ONCE_REMOVAL_SECONDS: Final = 600.0

log = logging.getLogger(__name__)


class DaemonState:
    """Whether the daemon may act: it leads (if leader election is on) and was not asked to stop."""

    def __init__(self, clock: Clock, running: Running) -> None:
        self.elector: Elector | None = None
        self.lease_reader: LeaseReader | None = None  #: instead of an elector
        self._clock = clock
        self._running = running
        self._stop = threading.Event()
        self.health: Health | None = None

    @property
    def leading(self) -> bool:
        return self.elector is None or self.elector.leading

    @property
    def lease(self) -> InvolvedLease:
        return InvolvedLease(self._running.namespace, self._running.lease_name, self._notes.uid)

    @property
    def paused(self) -> str:
        """Why a person paused drains, or ""."""
        pause = manual_pause(self._notes.annotations, self._clock.now())
        return pause.text if pause is not None else ""

    @property
    def _notes(self) -> LeaseNotes:
        source = self.elector or self.lease_reader
        return source.notes if source is not None else LeaseNotes()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def rival(self) -> str:
        return self.elector.rival if self.elector is not None else ""

    def beat(self) -> None:
        if self.health is not None:
            self.health.beat()

    def pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)

    def stop(self) -> None:
        self._stop.set()

    def on_stop_signal(self, signal: str) -> None:
        log.warning("%s: rolling back the current drain, then exiting", signal)
        self.stop()


def read_cluster(connection: ApiServerConnection, warn: Callable[[str], None]) -> Snapshot:
    """Read the cluster once. *warn* receives the assumption that is made if a permission is missing."""
    clock = SystemClock()
    return kube_state.read_cluster(connect(connection, clock), clock, connection.content_type, warn=warn)


def read_prices(settings: Provider, nodes: Iterable[Node]) -> Mapping[str, Decimal]:
    """Return the prices of *nodes* per hour that the cloud provider knows, by node name."""
    clock = SteadyClock(SystemClock())
    provider = _provider(settings, clock)
    try:
        return provider_prices(provider, nodes, clock)
    finally:
        provider.close()


def run(connection: ApiServerConnection, policy: Policy, running: Running, logs: Logging, prices: PriceList) -> int:
    """Run the daemon and return its exit code. Raises UsageError or ReschedulerError if it cannot start."""
    log_lines.configure(logs)
    clock = SystemClock()
    run_state = DaemonState(clock, running)
    with contextlib.ExitStack() as parts:
        parts.enter_context(on_signals(run_state.on_stop_signal))
        provider = _provider(running.provider, SteadyClock(clock))
        parts.callback(provider.close)
        policy = daemon_policy(policy, running.timing)
        client = connect(connection, clock)
        loop = _assemble(parts, client, provider, run_state, connection, policy, prices, running, clock)
        if not running.once:
            loop.run()
            return 0
        outcome = loop.once(ONCE_PATIENCE)
        if outcome is RoundOutcome.UNFIT:
            raise ReschedulerError(_why_gave_up(run_state, running))
        return 1 if outcome in (RoundOutcome.FAILED, RoundOutcome.BROKEN) else 0


def _provider(settings: Provider, clock: Clock) -> CloudProvider:
    flags = GroupFlags(settings.nodes, settings.cluster_name)
    return providers.load(settings.name, settings.config, clock, flags)


def _why_gave_up(run_state: DaemonState, running: Running) -> str:
    """Return why ``--once`` could not complete a round."""
    if run_state.stopping:
        return "asked to stop before the round could start"
    if run_state.leading:
        return f"gave up: the cluster could not be read within {ONCE_PATIENCE}"
    rival = run_state.elector.rival if run_state.elector is not None else ""
    why = f"another replica leads: {rival}" if rival else "it could not be acquired"
    return f"gave up: lease {running.identity} was not ours within {ONCE_PATIENCE}: {why}"


def _assemble(
    parts: contextlib.ExitStack,
    client: Client,
    provider: CloudProvider,
    run_state: DaemonState,
    connection: ApiServerConnection,
    policy: Policy,
    prices: PriceList,
    running: Running,
    clock: Clock,
) -> Loop:
    """Create and start all parts. *parts* stops them in reverse order.

    The Lease is released after the last write, including the drain's requests and its Events.
    """
    holder = identity(running.pod_name)
    elector = _elector(client, holder, running, clock)
    run_state.elector = elector
    state = ClusterState(client, clock, connection.content_type)
    rights = RightsReview(client, clock, _rights(running), lambda: _is_refused(state, elector))
    run_state.health = _health(state, rights, running, clock)
    registry, status = CollectorRegistry(), Status(prices)
    metrics = Metrics(registry, provider.name, prices.currency)  # before the first scrape
    address = parts.enter_context(serving(application(registry, run_state.health, status), running.listen))
    _start(parts, state, elector or _lease_reader(client, run_state, running, clock))
    writer = _writer(client, elector, running)
    report = tee(Logs(), metrics, status, *_events(parts, writer, running, clock))
    threads = parts.enter_context(running_threads())

    report(Started(VERSION, holder, str(address), running.dry_run))
    history = _history(writer, report, run_state, running, clock)
    cooling, own_node = history.cooling, running.node_name
    view = ClusterView(state, policy, clock, holder, own_node, cooling=cooling, identity=running.identity)
    cluster, controllers = KubeCluster(writer), Ownership(ControllerReader(client, clock))
    access = DrainContext(
        cluster, provider, clock, holder, controllers, running.identity, leads=lambda: run_state.leading
    )
    records = DrainRecords(history, view, clock, report, returns_pause=not policy.allow_returning_plans)
    drainer = Drainer(access, view, run_state, threads, _limits(running), report, records)
    refusal = drainer.refusal if not running.dry_run else None  # a dry run sends no requests to the provider
    soft_taint = SoftTaint(cluster, report, view.is_on_demand, wanted=running.manage_soft_taint)
    actors = Actors(drainer, soft_taint, NewNodes(access, report), records)
    knowledge = Knowledge(
        history,
        Candidates(view, controllers, history, policy, clock, refusal),
        Landings(view, controllers, history, report),
        SpotWatch(running.timing.spot_settle),
        lambda: rights.why() or _lease_unread(run_state),
        _bookkeeping(writer, view, Pricing(prices, partial(_ask, provider, clock)), report, run_state, running, clock),
    )
    mode = Mode(running.timing, running.dry_run, policy.min_on_demand_nodes, policy.drain_windows)
    return Loop(view, actors, knowledge, run_state, mode, clock, report)


def _history(writer: Client, report: Report, run_state: DaemonState, running: Running, clock: Clock) -> DrainHistory:
    """Return the history of drains, which is stored in a ConfigMap. With an elector, the Lease records its creation."""
    lease = running.lease_name if run_state.elector is not None else ""
    store = MemoryStore(writer, running.namespace, running.memory_name, lease)
    return DrainHistory(store, running.timing, clock, report, lambda: run_state.leading, dry_run=running.dry_run)


def _bookkeeping(
    writer: Client,
    view: ClusterView,
    pricing: Pricing,
    report: Report,
    run_state: DaemonState,
    running: Running,
    clock: Clock,
) -> NoBookkeeping:
    """Return the ledger of savings, which is stored in a ConfigMap of its own. A dry run has none."""
    if running.dry_run:
        return NoBookkeeping()
    store = MemoryStore(writer, running.namespace, running.savings_name, key=SAVINGS_KEY)
    return Bookkeeping(store, view, pricing, clock, report, lambda: run_state.leading)


def _ask(provider: CloudProvider, clock: Clock, nodes: Iterable[Node]) -> Mapping[str, Decimal]:
    return provider_prices(provider, nodes, clock)


def _start(parts: contextlib.ExitStack, state: ClusterState, lease: Elector | LeaseReader) -> None:
    """Start to read the cluster, and to acquire or read the Lease."""
    state.start()
    parts.callback(state.stop)
    lease.start()
    parts.callback(lease.stop)


def _lease_reader(client: Client, run_state: DaemonState, running: Running, clock: Clock) -> LeaseReader:
    """Return the reader of the Lease for a daemon without an elector: a person may have paused drains there."""
    run_state.lease_reader = LeaseReader(client, clock, running.namespace, running.lease_name)
    return run_state.lease_reader


def _health(state: ClusterState, rights: RightsReview, running: Running, clock: Clock) -> Health:
    """Ready while the cluster is read and no right is missing."""
    return Health(
        clock,
        running.timing.housekeeping_interval.total_seconds(),
        lambda: state.synced and not rights.missing,
        lambda: describe_missing(rights.missing) or unfit(state),
    )


def _lease_unread(run_state: DaemonState) -> str:
    """Return why it is not known whether drains are paused, or "". A leader has read its Lease."""
    return run_state.lease_reader.unread if run_state.lease_reader is not None else ""


def _is_refused(state: ClusterState, elector: Elector | None) -> bool:
    """Return whether reading a kind or holding the Lease is forbidden."""
    refused = any(isinstance(error, Forbidden) for error in state.errors.values())
    return refused or (elector is not None and elector.forbidden)


def _rights(running: Running) -> tuple[AccessRight, ...]:
    if running.dry_run:
        return rights_of_a_dry_run()
    lease = running.lease_name if running.leader_elect else ""
    removes = running.provider.name != "none"
    names = (running.memory_name, lease)
    return rights_of_the_daemon(running.namespace, *names, removes_nodes=removes, savings=running.savings_name)


def _elector(client: Client, holder: str, running: Running, clock: Clock) -> Elector | None:
    if running.dry_run or not running.leader_elect:
        return None
    return Elector(client, clock, running.namespace, running.lease_name, holder)


def _writer(client: Client, elector: Elector | None, running: Running) -> Client:
    """Return the client for all writes except those to the Lease."""
    if running.dry_run:
        return client.guarded(ReadOnly())
    return client if elector is None else client.guarded(elector)


def _events(parts: contextlib.ExitStack, writer: Client, running: Running, clock: Clock) -> list[Report]:
    if running.dry_run:
        return []
    return [KubeEvents(parts.enter_context(recording(writer, clock)))]


def daemon_policy(policy: Policy, timing: Timing) -> Policy:
    """Return *policy* for the daemon, which retries rejected evictions for as long as *timing* allows."""
    return replace(
        policy,
        budgets_in_steps=True,
        pod_eviction_timeout=timing.pod_eviction_timeout.total_seconds(),
        max_graceful_termination=timing.max_graceful_termination.total_seconds(),
    )


def _limits(running: Running) -> Limits:
    """Return the timeouts of a drain. With ``--once`` it waits longer for the machine: there is no later round."""
    timing = running.timing
    return Limits(
        removal=ONCE_REMOVAL_SECONDS if running.once else REMOVAL_SECONDS,
        eviction=timing.pod_eviction_timeout.total_seconds(),
        grace=timing.max_graceful_termination.total_seconds(),
        landing=timing.landing_timeout.total_seconds(),
    )
