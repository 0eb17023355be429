"""The composition root of ``rescheduler liqo node-manager``: server, upkeep, and the signals that stop both. It
is imported when the command is called.
"""

import contextlib
import logging
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError, Retryable, UsageError
from rescheduler.kube.client import connect
from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.node_manager.app import Clients, node_manager
from rescheduler.liqo.node_manager.catalog import DiscoveryClient
from rescheduler.liqo.node_manager.cluster import KubeLiqo, LiqoCluster
from rescheduler.liqo.node_manager.config import Configuration, configuration
from rescheduler.liqo.node_manager.liqoctl import Liqoctl, Tool
from rescheduler.liqo.node_manager.service import NodeManagerService, Ports
from rescheduler.liqo.node_manager.store import NodeManagerStore
from rescheduler.liqo.node_manager.upkeep import NodeManagerMetrics, Peering, Upkeep
from rescheduler.liqo.serving import HEALTH_FLAG, HttpsListener, serving
from rescheduler.net.config_files import Endpoint, check_endpoint, keys_as, private
from rescheduler.net.server import on_signals
from rescheduler.net.server import serving as serving_pages
from rescheduler.observe.events import NOTICE
from rescheduler.observe.logs import configure
from rescheduler.observe.pages import Health, application
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PageHosts

#: Seconds between two steps of upkeep, unless a request triggers a step.
STEP_SECONDS: Final = 2.0

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class NodeManagerSettings:
    """The settings from the flags."""

    listener: HttpsListener
    pages: ListenAddress  #: of /metrics, /healthz and /readyz, in plain text
    discovery_url: str
    connection: ApiServerConnection
    database: str
    discovery_ca: Path | None = None
    config: Path | None = None
    liqoctl: str | None = None  #: path of the program; none: peerings are not managed
    liqo_namespace: str = "liqo"
    liqoctl_timeout: float = 600.0  #: seconds
    liqoctl_arguments: tuple[str, ...] = ()
    post_only: bool = False
    allowed_hosts: tuple[str, ...] = ()  #: by which the pages may be addressed
    clients: frozenset[str] = frozenset()  #: names in client certificates; empty: every client of the CA is allowed


def run(settings: NodeManagerSettings, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises UsageError and ReschedulerError on a failed start."""
    configure(logs)
    clock = SystemClock()
    file = configuration(settings.config)
    settings.listener.certificates()
    if settings.listener.plaintext and settings.clients:
        raise UsageError("--client: expected with mutual TLS; with plain text, clients have no names")
    with contextlib.ExitStack() as parts:
        ports = _ports(parts, settings, clock)
        service = NodeManagerService(ports, file.groups, peers=settings.liqoctl is not None)
        registry = CollectorRegistry()
        metrics = NodeManagerMetrics(registry)
        upkeep = Upkeep(ports, service, file.patience, metrics)
        peering = _peering(parts, settings, ports, service, upkeep, file)
        first_read(ports.liqo)
        rounds = NodeManagerLoop(service, upkeep, peering, clock)
        pages = application(registry, rounds.health)
        parts.enter_context(on_signals(rounds.stop_on))
        parts.enter_context(serving_pages(pages, settings.pages, HEALTH_FLAG, PageHosts(settings.allowed_hosts)))
        app: ASGIApp = node_manager(service, post_only=settings.post_only)
        if settings.clients:
            app = Clients(app, settings.clients)
        address = parts.enter_context(serving(app, settings.listener, "node-manager"))
        how = "plain text" if settings.listener.plaintext else "mutual TLS"
        log.log(NOTICE, "serving %s on %s, %s", ", ".join(service.groups()), address, how)
        rounds.run()
    return 0


class NodeManagerLoop:
    """Repeats upkeep until stopped."""

    def __init__(self, service: NodeManagerService, upkeep: Upkeep, peering: Peering | None, clock: Clock) -> None:
        self._service, self._upkeep, self._peering, self._clock = service, upkeep, peering, clock
        self._stop = threading.Event()
        self._ready = False
        self._complaint = ""
        self.health = Health(clock, STEP_SECONDS, lambda: self._ready)

    def stop_on(self, signal: str) -> None:
        log.warning("%s: stopping after the calls in progress", signal)
        self._stop.set()
        self._service.woken.set()

    def run(self) -> None:
        while not self._stop.is_set():
            self._service.woken.clear()
            self.health.beat()
            self._round()
            if not self._stop.is_set():
                self._clock.wait(STEP_SECONDS, self._service.woken)

    def _round(self) -> None:
        try:
            clusters = self._upkeep.step()
            if self._peering is not None:
                self._peering.establish(clusters.awaited)
                self._peering.release(clusters.used)
        except ReschedulerError as error:
            if str(error) != self._complaint:
                log.warning("%s", error)
            self._complaint = str(error)
            return
        self._ready, self._complaint = True, ""


def first_read(liqo: LiqoCluster) -> None:
    """Read the cluster once. Raise permanent errors (no Liqo, no permissions); log temporary ones."""
    try:
        liqo.read()
        liqo.peerings()
    except Retryable as error:
        log.warning("%s", error)


def _ports(parts: contextlib.ExitStack, settings: NodeManagerSettings, clock: Clock) -> Ports:
    keys = {"caFile": "--discovery-ca" if settings.discovery_ca else "--tls-client-ca"}
    with keys_as(lambda key: keys.get(key, key)):
        discovery = DiscoveryClient(_endpoint(settings), clock)
    parts.callback(discovery.close)
    client = connect(settings.connection, clock)
    store = NodeManagerStore(settings.database)
    parts.callback(store.close)
    return Ports(KubeLiqo(client), discovery, store, clock)


def _endpoint(settings: NodeManagerSettings) -> Endpoint:
    """Return the endpoint of discovery, for which we use our own certificate."""
    listener = settings.listener
    ca = settings.discovery_ca or listener.client_ca
    endpoint = Endpoint(
        url=settings.discovery_url,
        ca_file=str(ca.absolute()) if ca else None,
        client_cert_file=str(listener.cert.absolute()) if listener.cert else None,
        client_key_file=str(listener.key.absolute()) if listener.key else None,
    )
    check_endpoint(endpoint, "--discovery-url", "discovery")
    if not private(endpoint.url):
        raise UsageError("--discovery-url: expected https, or http to a loopback address")
    return endpoint


def _peering(
    parts: contextlib.ExitStack,
    settings: NodeManagerSettings,
    ports: Ports,
    service: NodeManagerService,
    upkeep: Upkeep,
    file: Configuration,
) -> Peering | None:
    if settings.liqoctl is None:
        if file.unpeer_after is not None:
            raise UsageError("unpeerAfter: expected together with --liqoctl, which ends peerings")
        return None
    tool = Tool(
        settings.liqoctl,
        _state(parts, settings.database),
        timeout=settings.liqoctl_timeout,
        kubeconfig=settings.connection.kubeconfig,
        context=settings.connection.context,
        namespace=settings.liqo_namespace,
        arguments=settings.liqoctl_arguments,
    )
    peering = Peering(ports, Liqoctl(tool), upkeep, service, file.unpeer_after)
    parts.callback(peering.close)
    return peering


def _state(parts: contextlib.ExitStack, database: str) -> Path:
    """Return the path of the folder for our files, next to the database."""
    if database == MEMORY:
        return Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="node-manager-")))
    return Path(database).absolute().parent
