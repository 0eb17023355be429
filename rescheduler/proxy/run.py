"""The composition root of the proxy: start its parts, run them, and stop them."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.execution.event_recording import recording
from rescheduler.execution.threads import running as running_threads
from rescheduler.kube.client import Client
from rescheduler.kube.server_version import SchedulerWatch
from rescheduler.kube.state import ClusterState
from rescheduler.net.browsers import host_names
from rescheduler.net.config_files import Endpoint
from rescheduler.net.credentials import Credentials, keys_as
from rescheduler.net.server import serving as serving_pages
from rescheduler.net.stopping import on_signals
from rescheduler.observe.events import Started, tee
from rescheduler.observe.kube_events import EventTexts, KubeEvents
from rescheduler.observe.log_lines import NOTICE
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import application
from rescheduler.observe.status import Status
from rescheduler.proxy.app import ClientTimeouts, ProxyApplication
from rescheduler.proxy.config import ProxyFile, ServerSection
from rescheduler.proxy.forward import Forwarder
from rescheduler.proxy.login import source
from rescheduler.proxy.metrics import ProxyMetrics
from rescheduler.proxy.server import serving
from rescheduler.proxy.service import AlwaysLeading, ProxyService
from rescheduler.settings import ListenAddress, Scheduling
from rescheduler.version import VERSION

#: Seconds between two sweeps, and between attempts at the first sweep.
SWEEP_SECONDS: Final = 10.0
FIRST_SECONDS: Final = 0.2

#: Keys of our endpoint → keys of the proxy's configuration file.
_BACKEND_KEYS: Final = {
    "caFile": "backend.auth.caCertPath",
    "clientCertFile": "backend.auth.clientCertPath",
    "clientKeyFile": "backend.auth.clientKeyPath",
    "passwordFile": "backend.auth.passwordPath",
    "tokenFile": "backend.auth.tokenPath",
}

#: The component name and the wording of Kubernetes Events.
NAME: Final = "cloudpool-proxy"
WORDS: Final = EventTexts(
    targets="to the nodes that remain",
    evicted="evicted from node {node}, whose machine leaves the pool",
)

log = logging.getLogger(__name__)


def run(
    file: ProxyFile, host: str, port: int, pages: ListenAddress, own_node: str = "", *, other_port: bool = False
) -> int:
    """Run the proxy until it is stopped; *own_node* is the node on which it runs.

    With *other_port*, *pages* are served on any free port if their own port is in use.

    Raises UsageError and ReschedulerError if it cannot start.
    """
    clock = SystemClock()
    with contextlib.ExitStack() as parts:
        login = parts.enter_context(source(file.api_server))
        client = Client(login, clock, f"{NAME}/{VERSION}", read_seconds=file.api_server.timeout)
        state = ClusterState(client, clock, scheduler=SchedulerWatch(client, clock, Scheduling()).current)
        standing = AlwaysLeading(clock, state, SWEEP_SECONDS)
        registry, status = CollectorRegistry(), Status()
        metrics = ProxyMetrics(registry)
        kube_events = KubeEvents(parts.enter_context(recording(client, clock, NAME)), WORDS)
        report = tee(Logs(), Metrics(registry), metrics, status, kube_events)
        content = application(registry, standing.health, status)
        address = parts.enter_context(_pages(content, pages, other_port=other_port))
        threads = parts.enter_context(running_threads())
        with keys_as(lambda key: _BACKEND_KEYS[key]):
            service = ProxyService(file, state, client, standing, threads, report, own_node)
        parts.callback(service.pool.close)
        report(Started(VERSION, service.holder, str(address), dry_run=False))
        state.start()
        parts.callback(state.stop)
        listening = parts.enter_context(serving(_proxy(file, service, metrics, host), host, port, file.server))
        parts.enter_context(on_signals(lambda _: standing.stop.set()))
        standing.listening = True
        _log_listening(file, ListenAddress(host, listening))
        _sweep_until_stopped(service, standing, clock)
    return 0


def _sweep_until_stopped(service: ProxyService, standing: AlwaysLeading, clock: Clock) -> None:
    swept = False
    while not clock.wait(SWEEP_SECONDS if swept else FIRST_SECONDS, standing.stop):
        standing.beat()
        swept = service.sweep() or swept


@contextlib.contextmanager
def _pages(content: Starlette, pages: ListenAddress, *, other_port: bool) -> Iterator[ListenAddress]:
    """Serve the pages. The original proxy had none, so a port in use must not prevent the start."""
    with contextlib.ExitStack() as parts:
        try:
            address = parts.enter_context(serving_pages(content, pages))
        except ReschedulerError as failure:
            if not other_port:
                raise
            address = parts.enter_context(serving_pages(content, ListenAddress(pages.host, 0)))
            log.log(NOTICE, "%s; /metrics, /healthz and /readyz are served on %s", failure, address)
        yield address


def _log_listening(file: ProxyFile, address: ListenAddress) -> None:
    log.log(NOTICE, "forwarding port %d to %s", address.port, file.backend_url)
    if missing := _exposed(file.server, address):
        log.warning("anyone who can reach port %d can remove machines: %s", address.port, missing)


def _exposed(server: ServerSection, address: ListenAddress) -> str:
    """Return the missing settings for the authentication of clients on *address*; "" if none is missing."""
    if address.loopback:
        return ""
    if server.tls is None:
        return "traffic is not encrypted; set server.tls, and server.tls.clientCaPath or server.bearerTokenPath"
    if not (server.tls.client_ca_path or server.bearer_token_path):
        return "clients are not authenticated; set server.tls.clientCaPath or server.bearerTokenPath"
    return ""


def _proxy(file: ProxyFile, service: ProxyService, metrics: ProxyMetrics, host: str) -> ProxyApplication:
    shown = None
    if path := file.server.bearer_token_path:
        with keys_as(lambda _: "server.bearerTokenPath"):
            accepted = Credentials(Endpoint(url=file.backend_url, token_file=path), Path())

        def shown() -> str:
            return accepted.headers()["authorization"].removeprefix("Bearer ")

    forwarder = Forwarder(
        file.backend_url,
        Credentials(file.pool().backend, Path(), password=file.url_password),
        file.backend.timeout,
        patience=file.server.timeout,
        consumes_authorization=shown is not None,
    )
    patience = ClientTimeouts(request=file.server.timeout, queue=file.server.queue_timeout)
    names = host_names(host, file.server.host_names)
    return ProxyApplication(service.updates, forwarder, patience, shown, metrics, names=names)
