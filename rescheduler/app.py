"""The composition root: what the daemon is made of, put together and taken apart."""

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry

from predicates.snapshot import Snapshot
from rescheduler import backends
from rescheduler.access import Access
from rescheduler.backends.base import CloudProvider, GroupFlags
from rescheduler.candidates import Candidates
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.drainer import Drainer
from rescheduler.draining.state import Limits
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.kube import state as kube_state
from rescheduler.kube.client import Client, connect
from rescheduler.kube.cluster import Cluster
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.elector import Elector, identity
from rescheduler.kube.guard import ReadOnly
from rescheduler.kube.memory import MemoryStore
from rescheduler.kube.rights import Right, RightsReview, rights_of_a_dry_run, rights_of_the_daemon, told
from rescheduler.kube.state import ClusterState
from rescheduler.landings import Landings
from rescheduler.loop import Actors, Knowledge, Loop, Mode, Outcome
from rescheduler.new_nodes import NewNodes
from rescheduler.observe import logs as log_lines
from rescheduler.observe.events import Report, Started, tee
from rescheduler.observe.health import Health
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.server import application, serving
from rescheduler.observe.status import Status
from rescheduler.ownership import Ownership
from rescheduler.planning.policy import Policy
from rescheduler.planning.spot_losses import SpotWatch
from rescheduler.recollection import Recollection
from rescheduler.recording import recording
from rescheduler.records import DrainRecords
from rescheduler.settings import Connection, Logging, Provider, Running, Timing
from rescheduler.soft_taint import SoftTaint
from rescheduler.stopping import on_signals
from rescheduler.threads import running as running_threads
from rescheduler.version import VERSION
from rescheduler.view import View, unfit

#: How long ``--once`` waits for the cluster to be read, and for the Lease.
ONCE_PATIENCE: Final = timedelta(minutes=2)

#: Seconds for which the order of a machine is followed before other nodes have their turn, and with ``--once``.
REMOVAL_SECONDS: Final = 30.0
ONCE_REMOVAL_SECONDS: Final = 600.0

log = logging.getLogger(__name__)


class Standing:
    """Whether we may act: not told to stop, and leading where there is an election."""

    def __init__(self, clock: Clock) -> None:
        self.elector: Elector | None = None
        self._clock = clock
        self._stop = threading.Event()
        self.health: Health | None = None

    @property
    def leading(self) -> bool:
        return self.elector is None or self.elector.leading

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def beat(self) -> None:
        if self.health is not None:
            self.health.beat()

    def pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)

    def stop(self) -> None:
        self._stop.set()

    def told(self, signal: str) -> None:
        log.warning("%s: rolling back the current drain, then exiting", signal)
        self.stop()


def read_cluster(connection: Connection, warn: Callable[[str], None]) -> Snapshot:
    """The cluster as it is, read once; *warn* is told what is assumed where a right is missing."""
    clock = SystemClock()
    return kube_state.read_cluster(connect(connection, clock), clock, connection.content_type, warn=warn)


def run(connection: Connection, policy: Policy, running: Running, logs: Logging) -> int:
    """The daemon, to its end; the exit code. Raises UsageError and ReschedulerError for what keeps it from starting."""
    log_lines.configure(logs)
    clock = SystemClock()
    standing = Standing(clock)
    with contextlib.ExitStack() as parts:
        parts.enter_context(on_signals(standing.told))
        provider = _provider(running.provider, SteadyClock(clock))
        parts.callback(provider.close)
        policy = daemon_policy(policy, running.timing)
        loop = _assembled(parts, connect(connection, clock), provider, standing, connection, policy, running, clock)
        if not running.once:
            loop.run()
            return 0
        outcome = loop.once(ONCE_PATIENCE)
        if outcome is Outcome.UNFIT:
            raise ReschedulerError(_gave_up(standing, running))
        return 1 if outcome in (Outcome.FAILED, Outcome.BROKEN) else 0


def _provider(settings: Provider, clock: Clock) -> CloudProvider:
    flags = GroupFlags(settings.nodes, settings.cluster_name)
    return backends.load(settings.name, settings.config, clock, flags)


def _gave_up(standing: Standing, running: Running) -> str:
    """Why a single round was none."""
    if standing.stopping:
        return "told to stop before the round could begin"
    if standing.leading:
        return f"gave up: the cluster could not be read within {ONCE_PATIENCE}"
    rival = standing.elector.rival if standing.elector is not None else ""
    why = f"another replica leads: {rival}" if rival else "it could not be acquired"
    return f"gave up: lease {running.identity} was not ours within {ONCE_PATIENCE}: {why}"


def _assembled(
    parts: contextlib.ExitStack,
    client: Client,
    provider: CloudProvider,
    standing: Standing,
    connection: Connection,
    policy: Policy,
    running: Running,
    clock: Clock,
) -> Loop:
    """Create and start all parts; *parts* stops them in reverse order.

    The Lease is released after the last write: after the drain's requests and the Events about them.
    """
    holder = identity(running.pod_name)
    elector = _elector(client, holder, running, clock)
    standing.elector = elector
    state = ClusterState(client, clock, connection.content_type)
    rights = RightsReview(client, clock, _rights(running), lambda: _is_refused(state, elector))
    standing.health = _health(state, rights, running, clock)
    registry, status = CollectorRegistry(), Status()
    address = parts.enter_context(serving(application(registry, standing.health, status), running.listen))
    _start(parts, state, elector)
    writer = _writer(client, elector, running)
    report = tee(Logs(), Metrics(registry), status, *_events(parts, writer, running, clock))
    threads = parts.enter_context(running_threads())

    report(Started(VERSION, holder, str(address), running.dry_run))
    lease = running.lease_name if elector is not None else ""
    store = MemoryStore(writer, running.namespace, running.memory_name, lease)
    recollection = Recollection(store, running.timing, clock, report, lambda: standing.leading, dry_run=running.dry_run)
    cooling, own_node = recollection.cooling, running.node_name
    view = View(state, policy, clock, holder, own_node, cooling=cooling, identity=running.identity)
    cluster, controllers = Cluster(writer), Ownership(ControllerReader(client, clock))
    access = Access(cluster, provider, clock, holder, controllers, running.identity, leads=lambda: standing.leading)
    records = DrainRecords(recollection, view, clock, report, returns_pause=not policy.allow_returning_plans)
    drainer = Drainer(access, view, standing, threads, _limits(running), report, records)
    refusal = drainer.refusal if not running.dry_run else None  # a dry run asks no provider
    soft_taint = SoftTaint(cluster, report, view.is_on_demand, wanted=running.manage_soft_taint)
    actors = Actors(drainer, soft_taint, NewNodes(access, report), records)
    knowledge = Knowledge(
        recollection,
        Candidates(view, controllers, recollection, policy, clock, refusal),
        Landings(view, controllers, recollection, report),
        SpotWatch(running.timing.spot_settle),
        rights.why,
    )
    mode = Mode(running.timing, running.dry_run, policy.min_on_demand_nodes)
    return Loop(view, actors, knowledge, standing, mode, clock, report)


def _start(parts: contextlib.ExitStack, state: ClusterState, elector: Elector | None) -> None:
    """Start to read the cluster and, with an elector, to acquire the Lease."""
    state.start()
    parts.callback(state.stop)
    if elector is not None:
        elector.start()
        parts.callback(elector.stop)


def _health(state: ClusterState, rights: RightsReview, running: Running, clock: Clock) -> Health:
    """Ready while the cluster is read and no right is missing."""
    return Health(
        clock,
        running.timing.housekeeping_interval.total_seconds(),
        lambda: state.synced and not rights.missing,
        lambda: told(rights.missing) or unfit(state),
    )


def _is_refused(state: ClusterState, elector: Elector | None) -> bool:
    """Whether a kind may not be read, or the Lease not be held."""
    refused = any(isinstance(error, Forbidden) for error in state.errors.values())
    return refused or (elector is not None and elector.forbidden)


def _rights(running: Running) -> tuple[Right, ...]:
    if running.dry_run:
        return rights_of_a_dry_run()
    lease = running.lease_name if running.leader_elect else ""
    removes = running.provider.name != "none"
    return rights_of_the_daemon(running.namespace, running.memory_name, lease, removes_nodes=removes)


def _elector(client: Client, holder: str, running: Running, clock: Clock) -> Elector | None:
    if running.dry_run or not running.leader_elect:
        return None
    return Elector(client, clock, running.namespace, running.lease_name, holder)


def _writer(client: Client, elector: Elector | None, running: Running) -> Client:
    """The client by which everything is written but the Lease itself."""
    if running.dry_run:
        return client.guarded(ReadOnly())
    return client if elector is None else client.guarded(elector)


def _events(parts: contextlib.ExitStack, writer: Client, running: Running, clock: Clock) -> list[Report]:
    if running.dry_run:
        return []
    return [KubeEvents(parts.enter_context(recording(writer, clock)))]


def daemon_policy(policy: Policy, timing: Timing) -> Policy:
    """*policy* for the daemon: evictions that are refused for now are tried again, as long as *timing* allows."""
    return replace(
        policy,
        budgets_in_steps=True,
        pod_eviction_timeout=timing.pod_eviction_timeout.total_seconds(),
        max_graceful_termination=timing.max_graceful_termination.total_seconds(),
    )


def _limits(running: Running) -> Limits:
    """A single round waits for the machine's end: no later one would look."""
    timing = running.timing
    return Limits(
        removal=ONCE_REMOVAL_SECONDS if running.once else REMOVAL_SECONDS,
        eviction=timing.pod_eviction_timeout.total_seconds(),
        grace=timing.max_graceful_termination.total_seconds(),
        landing=timing.landing_timeout.total_seconds(),
    )
