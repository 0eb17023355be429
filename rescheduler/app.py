"""The composition root: what the daemon is made of, put together and taken apart."""

import contextlib
import logging
import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from prometheus_client import CollectorRegistry

from predicates.snapshot import Snapshot
from rescheduler import backends
from rescheduler.acts import Access
from rescheduler.backends.base import CloudProvider, GroupFlags
from rescheduler.clock import Clock, SystemClock
from rescheduler.drainer import Drainer
from rescheduler.draining.state import Limits
from rescheduler.errors import ReschedulerError
from rescheduler.kube import state as kube_state
from rescheduler.kube.client import Client, connect
from rescheduler.kube.cluster import Cluster
from rescheduler.kube.elector import Elector
from rescheduler.kube.resources import RESOURCES
from rescheduler.kube.state import ClusterState
from rescheduler.loop import Actors, Loop, Mode, Outcome
from rescheduler.observe import logs as log_lines
from rescheduler.observe.events import Report, Started, tee
from rescheduler.observe.health import Health
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.server import application, serving
from rescheduler.observe.status import Status
from rescheduler.planning.policy import Policy
from rescheduler.recording import recording
from rescheduler.settings import Address, Connection, Logging, Provider, Running, Timing
from rescheduler.soft_taint import SoftTaint
from rescheduler.stopping import on_signals
from rescheduler.threads import running as running_threads
from rescheduler.version import VERSION
from rescheduler.view import View

#: How long ``--once`` waits for the cluster to be read, and for the Lease.
ONCE_PATIENCE: Final = timedelta(minutes=2)

LEASE: Final = "k8s-spot-rescheduler"

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
        log.warning("%s: taking back what was begun, then ending", signal)
        self.stop()


def read_cluster(connection: Connection, progress: Callable[[str, int], None] | None = None) -> Snapshot:
    """The cluster as it is, read once; *progress* is told a kind's plural and the number read so far."""
    clock = SystemClock()
    return kube_state.read_cluster(connect(connection, clock), clock, connection.content_type, progress=progress)


def run(connection: Connection, policy: Policy, running: Running, logs: Logging) -> int:
    """The daemon, to its end; the exit code. Raises UsageError and ReschedulerError for what keeps it from starting."""
    log_lines.configure(logs)
    clock = SystemClock()
    standing = Standing(clock)
    with contextlib.ExitStack() as parts:
        parts.enter_context(on_signals(standing.told))
        provider = _provider(running.provider, clock)
        parts.callback(provider.close)
        policy = replace(policy, budgets_in_steps=True)  # evictions that are refused for now are tried again
        loop = _assembled(parts, connect(connection, clock), provider, standing, connection, policy, running, clock)
        if running.once:
            return _exit_code(loop.once(ONCE_PATIENCE))
        loop.run()
    return 0


def _provider(settings: Provider, clock: Clock) -> CloudProvider:
    flags = GroupFlags(settings.nodes, settings.cluster_name)
    return backends.load(settings.name, settings.config, clock, flags)


def _exit_code(outcome: Outcome) -> int:
    if outcome is Outcome.UNFIT:
        raise ReschedulerError(
            f"gave up: the cluster could not be read within {ONCE_PATIENCE}, or another replica leads"
        )
    return 1 if outcome in (Outcome.FAILED, Outcome.BROKEN) else 0


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
    """All parts, started; *parts* stops them in the opposite order."""
    elector = None
    if running.leader_elect and not running.dry_run:
        elector = Elector(client, clock, running.namespace, LEASE)
    standing.elector = elector
    state = ClusterState(client, clock, connection.content_type)
    interval = running.timing.housekeeping_interval.total_seconds()
    standing.health = Health(clock, interval, lambda: state.synced)

    report, address = _telling(parts, client, standing.health, running, clock)
    threads = parts.enter_context(running_threads())
    state.start()
    parts.callback(state.stop)
    if elector is not None:
        elector.start()
        parts.callback(elector.stop)

    holder = elector.identity if elector is not None else f"{socket.gethostname()}_{uuid.uuid4()}"
    report(Started(VERSION, holder, str(address), running.dry_run))
    optional = [one.kind for one in RESOURCES if one.optional]
    view = View(state, policy, clock, holder, optional, running.node_name)
    cluster = Cluster(client)
    access = Access(cluster, provider, clock, holder)
    drainer = Drainer(access, view, standing, threads, _limits(running.timing), report)
    soft_taint = SoftTaint(cluster, report, view.is_on_demand, wanted=running.manage_soft_taint)
    return Loop(view, Actors(drainer, soft_taint), standing, Mode(running.timing, running.dry_run), clock, report)


def _telling(
    parts: contextlib.ExitStack, client: Client, health: Health, running: Running, clock: Clock
) -> tuple[Report, Address]:
    """Whoever is told what happens, and where the pages about it are."""
    registry, status = CollectorRegistry(), Status()
    listeners: list[Report] = [Logs(), Metrics(registry), status]
    address = parts.enter_context(serving(application(registry, health, status), running.listen))
    if not running.dry_run:
        listeners.append(KubeEvents(parts.enter_context(recording(client, clock))))
    return tee(*listeners), address


def _limits(timing: Timing) -> Limits:
    return Limits(timing.pod_eviction_timeout.total_seconds(), timing.max_graceful_termination.total_seconds())
