"""What the proxy is made of, put together and taken apart."""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from rescheduler.backends.config import Endpoint
from rescheduler.backends.credentials import Credentials, keys_as
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.state import ClusterState
from rescheduler.observe.events import Started, tee
from rescheduler.observe.health import Health
from rescheduler.observe.kube_events import KubeEvents, Words
from rescheduler.observe.logs import NOTICE, Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.server import application
from rescheduler.observe.server import serving as serving_pages
from rescheduler.observe.status import Status
from rescheduler.proxy.app import Patience, Proxy
from rescheduler.proxy.config import ProxyFile, Server
from rescheduler.proxy.forward import Forwarder
from rescheduler.proxy.login import source
from rescheduler.proxy.metrics import ProxyMetrics
from rescheduler.proxy.server import serving
from rescheduler.proxy.service import Service, Standing
from rescheduler.recording import recording
from rescheduler.settings import PROTOBUF, Address
from rescheduler.stopping import on_signals
from rescheduler.threads import running as running_threads
from rescheduler.version import VERSION
from rescheduler.view import unfit

#: Seconds between two looks for drains that were left unfinished, and until the first one can be had.
SWEEP_SECONDS: Final = 10.0
FIRST_SECONDS: Final = 0.2

#: The backend's keys as its configuration file has them.
_BACKEND_KEYS: Final = {
    "caFile": "backend.auth.caCertPath",
    "clientCertFile": "backend.auth.clientCertPath",
    "clientKeyFile": "backend.auth.clientKeyPath",
    "passwordFile": "backend.auth.passwordPath",
    "tokenFile": "backend.auth.tokenPath",
}

#: Who tells the Kubernetes Events, and in which words.
NAME: Final = "cloudpool-proxy"
WORDS: Final = Words(
    planned="move to the nodes that remain",
    evicted="evicted from node {node}, whose machine leaves the pool",
)

log = logging.getLogger(__name__)


def run(file: ProxyFile, host: str, port: int, pages: Address, own_node: str = "", *, other_port: bool = False) -> int:
    """The proxy, to its end; *own_node* is the one that it runs on.

    With *other_port*, any free port serves *pages* where theirs is taken.

    Raises UsageError and ReschedulerError for what keeps it from starting.
    """
    clock = SystemClock()
    with contextlib.ExitStack() as parts:
        login = parts.enter_context(source(file.api_server))
        client = Client(login, clock, f"{NAME}/{VERSION}", read_seconds=file.api_server.timeout)
        state = ClusterState(client, clock, PROTOBUF)
        health = Health(
            clock,
            SWEEP_SECONDS,
            lambda: state.synced and standing.listening and not standing.stopping,
            lambda: unfit(state) or "the pool's clients are not served",
        )
        standing = Standing(health)
        registry, status = CollectorRegistry(), Status()
        metrics = ProxyMetrics(registry)
        told = KubeEvents(parts.enter_context(recording(client, clock, NAME)), WORDS)
        report = tee(Logs(), Metrics(registry), metrics, status, told)
        address = parts.enter_context(_pages(application(registry, health, status), pages, other_port=other_port))
        threads = parts.enter_context(running_threads())
        with keys_as(lambda key: _BACKEND_KEYS[key]):
            service = Service(file, state, client, standing, threads, report, own_node)
        parts.callback(service.pool.close)
        report(Started(VERSION, service.holder, str(address), dry_run=False))
        state.start()
        parts.callback(state.stop)
        listening = parts.enter_context(serving(_proxy(file, service, metrics), host, port, file.server))
        parts.enter_context(on_signals(lambda _: standing.stop.set()))
        standing.listening = True
        log.log(NOTICE, "forwarding port %d to %s", listening, file.backend_url)
        if open_to := _exposed(file.server, Address(host, listening)):
            log.warning("whoever reaches port %d can remove machines: %s", listening, open_to)
        swept = False
        while not clock.wait(SWEEP_SECONDS if swept else FIRST_SECONDS, standing.stop):
            standing.beat()
            swept = service.sweep() or swept
    return 0


@contextlib.contextmanager
def _pages(content: Starlette, pages: Address, *, other_port: bool) -> Iterator[Address]:
    """Serve the pages; the original had none, so nothing else of the proxy depends on their port."""
    with contextlib.ExitStack() as parts:
        try:
            address = parts.enter_context(serving_pages(content, pages))
        except ReschedulerError as failure:
            if not other_port:
                raise
            address = parts.enter_context(serving_pages(content, Address(pages.host, 0)))
            log.log(NOTICE, "%s; /metrics, /healthz and /readyz are served on %s", failure, address)
        yield address


def _exposed(server: Server, address: Address) -> str:
    """What is missing for the clients to be known on *address*; "" for nothing."""
    if address.loopback:
        return ""
    if server.tls is None:
        return "it is served in plain text; set server.tls, and server.tls.clientCaPath or server.bearerTokenPath"
    if not (server.tls.client_ca_path or server.bearer_token_path):
        return "clients show nothing; set server.tls.clientCaPath or server.bearerTokenPath"
    return ""


def _proxy(file: ProxyFile, service: Service, metrics: ProxyMetrics) -> Proxy:
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
    patience = Patience(request=file.server.timeout, queue=file.server.queue_timeout)
    return Proxy(service.updates, forwarder, patience, shown, metrics)
