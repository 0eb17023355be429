"""``rescheduler liqo node-manager`` put together: the server, the upkeep beside it, and the signals that end both."""

import contextlib
import logging
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from rescheduler.backends.config import Endpoint, check_endpoint
from rescheduler.backends.credentials import keys_as
from rescheduler.backends.liqo.config import private
from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError, Retryable, UsageError
from rescheduler.kube.client import connect
from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.nodemanager.access import Clients
from rescheduler.liqo.nodemanager.app import node_manager
from rescheduler.liqo.nodemanager.catalog import Discovery
from rescheduler.liqo.nodemanager.cluster import KubeLiqo, Liqo
from rescheduler.liqo.nodemanager.config import Configuration, configuration
from rescheduler.liqo.nodemanager.liqoctl import Liqoctl, Tool
from rescheduler.liqo.nodemanager.metrics import Metrics
from rescheduler.liqo.nodemanager.peering import Peering
from rescheduler.liqo.nodemanager.service import Ports, Service
from rescheduler.liqo.nodemanager.store import Store
from rescheduler.liqo.nodemanager.upkeep import Upkeep
from rescheduler.liqo.serving import HEALTH_FLAG, Face, serving
from rescheduler.observe import logs as log_lines
from rescheduler.observe.health import Health
from rescheduler.observe.server import application
from rescheduler.observe.server import serving as serving_pages
from rescheduler.settings import Address, Connection, Logging
from rescheduler.stopping import on_signals

#: Between two looks at what is due; what was asked for is begun at once.
STEP_SECONDS: Final = 2.0

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the flags say."""

    face: Face
    pages: Address  #: of /metrics, /healthz and /readyz, in plain text
    discovery_url: str
    connection: Connection
    database: str
    discovery_ca: Path | None = None
    config: Path | None = None
    liqoctl: str | None = None  #: the program; none: peerings are somebody else's affair
    liqo_namespace: str = "liqo"
    liqoctl_timeout: float = 600.0  #: seconds
    liqoctl_arguments: tuple[str, ...] = ()
    post_only: bool = False
    clients: frozenset[str] = frozenset()  #: names of certificates; empty: every one of the authority may ask


def run(settings: Settings, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises UsageError and ReschedulerError for a failed start."""
    log_lines.configure(logs)
    clock = SystemClock()
    file = configuration(settings.config)
    settings.face.certificates()
    if settings.face.plaintext and settings.clients:
        raise UsageError("--client: expected with mutual TLS, plain text knows no names")
    with contextlib.ExitStack() as parts:
        ports = _ports(parts, settings, clock)
        service = Service(ports, file.groups, peers=settings.liqoctl is not None)
        registry = CollectorRegistry()
        metrics = Metrics(registry)
        upkeep = Upkeep(ports, service, file.patience, metrics)
        peering = _peering(parts, settings, ports, service, upkeep, file)
        first_look(ports.liqo)
        rounds = Rounds(service, upkeep, peering, clock)
        pages = application(registry, rounds.health)
        parts.enter_context(on_signals(rounds.told))
        parts.enter_context(serving_pages(pages, settings.pages, HEALTH_FLAG))
        app: ASGIApp = node_manager(service, post_only=settings.post_only)
        if settings.clients:
            app = Clients(app, settings.clients)
        address = parts.enter_context(serving(app, settings.face, "node-manager"))
        how = "plain text" if settings.face.plaintext else "mutual TLS"
        log.log(log_lines.NOTICE, "serving %s on %s, %s", ", ".join(service.groups()), address, how)
        rounds.run()
    return 0


class Rounds:
    """Upkeep again and again, until told to end."""

    def __init__(self, service: Service, upkeep: Upkeep, peering: Peering | None, clock: Clock) -> None:
        self._service, self._upkeep, self._peering, self._clock = service, upkeep, peering, clock
        self._stop = threading.Event()
        self._ready = False
        self._complaint = ""
        self.health = Health(clock, STEP_SECONDS, lambda: self._ready)

    def told(self, signal: str) -> None:
        log.warning("%s: ending, calls under way are answered", signal)
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


def first_look(liqo: Liqo) -> None:
    """What is wrong for good (no Liqo, no rights) ends the start; what may pass is looked at again later."""
    try:
        liqo.look()
        liqo.peerings()
    except Retryable as error:
        log.warning("%s", error)


def _ports(parts: contextlib.ExitStack, settings: Settings, clock: Clock) -> Ports:
    keys = {"caFile": "--discovery-ca" if settings.discovery_ca else "--tls-client-ca"}
    with keys_as(lambda key: keys.get(key, key)):
        discovery = Discovery(_endpoint(settings), clock)
    parts.callback(discovery.close)
    client = connect(settings.connection, clock)
    store = Store(settings.database)
    parts.callback(store.close)
    return Ports(KubeLiqo(client), discovery, store, clock)


def _endpoint(settings: Settings) -> Endpoint:
    """Discovery, which is shown our own certificate."""
    face = settings.face
    ca = settings.discovery_ca or face.client_ca
    endpoint = Endpoint(
        url=settings.discovery_url,
        ca_file=str(ca.absolute()) if ca else None,
        client_cert_file=str(face.cert.absolute()) if face.cert else None,
        client_key_file=str(face.key.absolute()) if face.key else None,
    )
    check_endpoint(endpoint, "--discovery-url", "discovery")
    if not private(endpoint.url):
        raise UsageError("--discovery-url: expected https, or http to a loopback address")
    return endpoint


def _peering(
    parts: contextlib.ExitStack,
    settings: Settings,
    ports: Ports,
    service: Service,
    upkeep: Upkeep,
    file: Configuration,
) -> Peering | None:
    if settings.liqoctl is None:
        if file.unpeer_after is not None:
            raise UsageError("unpeerAfter: expected --liqoctl with it, which ends peerings")
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
    """A folder of ours: beside the database."""
    if database == MEMORY:
        return Path(parts.enter_context(tempfile.TemporaryDirectory(prefix="node-manager-")))
    return Path(database).absolute().parent
