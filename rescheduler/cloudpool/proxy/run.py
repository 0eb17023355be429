"""The composition root of the proxy: start its parts and its HTTP server, run them, and stop them. It is
imported when the command is called.
"""

import contextlib
import json
import logging
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import uvicorn
import yaml
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from rescheduler import VERSION
from rescheduler.clock import Clock, SystemClock
from rescheduler.cloudpool.proxy.app import ClientTimeouts, ProxyApplication
from rescheduler.cloudpool.proxy.config import ApiServerAuth, ApiServerSection, ProxyFile, ServerSection, ServerTls
from rescheduler.cloudpool.proxy.forward import Forwarder
from rescheduler.cloudpool.proxy.paths import ProxyMetrics
from rescheduler.cloudpool.proxy.removal import KeptMemory
from rescheduler.cloudpool.proxy.service import AlwaysLeading, ProxyService
from rescheduler.errors import ConfigError, ReschedulerError
from rescheduler.execution.context import recording
from rescheduler.execution.context import running as running_threads
from rescheduler.kube import connection
from rescheduler.kube.api_server import SchedulerWatch
from rescheduler.kube.client import Client
from rescheduler.kube.connection import CredentialSource
from rescheduler.kube.elector import PoolLease
from rescheduler.kube.state import ClusterState
from rescheduler.net import files
from rescheduler.net.accepting import BACKLOG
from rescheduler.net.config_files import Credentials, Endpoint, keys_as
from rescheduler.net.connection import HEAD_SECONDS, HttpConnection
from rescheduler.net.server import host_names, on_signals, running
from rescheduler.net.server import serving as serving_pages
from rescheduler.observe.events import NOTICE, EventTexts, Report, Started, tee
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import application
from rescheduler.observe.status import Status
from rescheduler.settings import OWN_ADDRESS, ListenAddress, PageHosts, PoolLeaseName, Scheduling

# The proxy's HTTP server.


@contextlib.contextmanager
def serving(proxy: ProxyApplication, host: str, port: int, config: ServerSection) -> Iterator[int]:
    """Serve in a separate thread while the block runs; yield the port.

    At the end, requests in progress are awaited, so callers must stop the updates before they leave the block.
    Raises ReschedulerError if the address cannot be used, and ConfigError for invalid certificates.
    """
    settings = _settings(proxy, config)
    listener = _listen(host, port)
    with running(settings, listener, "proxy") as where:
        yield where


def _settings(proxy: ProxyApplication, config: ServerSection) -> uvicorn.Config:
    settings = uvicorn.Config(
        proxy,
        # The application reports a late body one second before the connection is closed.
        http=partial(
            HttpConnection,  # type: ignore[arg-type]
            head_seconds=min(config.timeout, HEAD_SECONDS),
            body_seconds=config.timeout + 1,
        ),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # Responses have the backend's own headers.
        server_header=False,
        date_header=False,
        # The client is the peer of the connection, regardless of X-Forwarded-For.
        proxy_headers=False,
        timeout_keep_alive=int(config.timeout),
    )
    settings.load()
    settings.ssl = _context(config.tls) if config.tls else None
    return settings


def _context(tls: ServerTls) -> ssl.SSLContext:
    """Return the TLS context. Raises ConfigError with the key of an invalid file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate = files.PemFile("server.tls.certPath", Path(tls.cert_path))
    files.present(context, certificate, files.PemFile("server.tls.keyPath", Path(tls.key_path)))
    if tls.client_ca_path:
        context.verify_mode = ssl.CERT_REQUIRED
        files.trust(context, files.PemFile("server.tls.clientCaPath", Path(tls.client_ca_path)))
    return context


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Its protocol is set, because asyncio disables Nagle's algorithm only in that case."""
    family = socket.AF_INET6 if not host or ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host or "::", port))
        listener.listen(BACKLOG)
    except OSError as failure:
        listener.close()
        raise ReschedulerError(f"--port {port}: cannot listen there: {failure.strerror}") from failure
    return listener


# The credentials for the API server in the configuration file.


@contextmanager
def source(api: ApiServerSection) -> Iterator[CredentialSource]:
    """Provide the source of credentials for the block: a kubeconfig, the pod's service account, or single files."""
    auth = api.auth
    if auth.in_cluster:
        yield connection.source(in_cluster=True)
    elif auth.kube_config_path:
        path = str(Path(auth.kube_config_path).expanduser())
        yield connection.source(path, auth.context or _context_of(Path(path), api.url))
    else:
        _check_pems(auth)
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "kubeconfig"
            written.write_text(json.dumps(_kubeconfig(api.url, auth)))
            yield connection.source(str(written))


def _check_pems(auth: ApiServerAuth) -> None:
    """Check the PEM files here, so that errors name their keys instead of the generated kubeconfig."""

    def file(key: str, path: str | None) -> files.PemFile | None:
        return files.PemFile(f"apiServer.auth.{key}", Path(path)) if path else None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority := file("caCertPath", auth.ca_cert_path):
        files.trust(context, authority)
    if certificate := file("clientCertPath", auth.client_cert_path):
        files.present(context, certificate, file("clientKeyPath", auth.client_key_path))


def _kubeconfig(url: str, auth: ApiServerAuth) -> dict[str, Any]:
    """Generate a kubeconfig that refers to files and contains no secrets."""
    files = {
        "client-certificate": auth.client_cert_path,
        "client-key": auth.client_key_path,
        "tokenFile": auth.token_path,
    }
    user = {key: str(Path(path).absolute()) for key, path in files.items() if path}
    cluster = {"server": url}
    if auth.ca_cert_path:
        cluster["certificate-authority"] = str(Path(auth.ca_cert_path).absolute())
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "api", "cluster": cluster}],
        "users": [{"name": "proxy", "user": user}],
        "contexts": [{"name": "proxy", "context": {"cluster": "api", "user": "proxy"}}],
        "current-context": "proxy",
    }


def _context_of(path: Path, url: str) -> str | None:
    """Return the context whose cluster is at *url*; `None` for the current one. Raises ConfigError if several match."""
    if not url:
        return None
    try:
        document = yaml.safe_load(files.read_text(path))
        servers = {named["name"]: str(named["cluster"].get("server", "")).rstrip("/") for named in document["clusters"]}
        contexts = {named["name"]: named["context"].get("cluster") for named in document.get("contexts") or ()}
    except (OSError, ValueError, RecursionError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        return None  # the next reader of the file reports the error
    matching = [name for name, cluster in contexts.items() if servers.get(cluster) == url.rstrip("/")]
    if document.get("current-context") in matching:
        return None
    if len(matching) != 1:
        known = ", ".join(sorted(set(servers.values()))) or "none"
        raise ConfigError(
            f"apiServer.url: {len(matching)} contexts of {path} have {url}, expected one "
            f"(or apiServer.auth.context); its clusters are at: {known}"
        )
    return str(matching[0])


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


#: Returns the ledger of what drains owe, and advice on waiving a debt.
KeepMemory: TypeAlias = Callable[[Client, Clock, Report], tuple[KeptMemory, str]]


def run(
    file: ProxyFile,
    host: str,
    port: int,
    pages: ListenAddress,
    own_node: str = "",
    *,
    other_port: bool = False,
    lease: PoolLeaseName,
    keep: KeepMemory,
    hosts: PageHosts = OWN_ADDRESS,
) -> int:
    """Run the proxy until it is stopped; *own_node* is the node on which it runs.

    With *other_port*, *pages* are served on any free port if their own port is in use. *keep* returns the ledger of
    what drains owe, which is stored in the cluster, and advice on waiving a debt.

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
        address = parts.enter_context(_pages(content, pages, hosts, other_port=other_port))
        threads = parts.enter_context(running_threads(clock))
        with keys_as(lambda key: _BACKEND_KEYS[key]):
            ledger, waive = keep(client, clock, report)
            service = ProxyService(file, state, client, standing, threads, report, own_node, ledger, waive)
        parts.callback(service.pool.close)
        service.pool.turns = parts.enter_context(contextlib.closing(PoolLease(client, clock, lease)))
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
def _pages(content: Starlette, pages: ListenAddress, hosts: PageHosts, *, other_port: bool) -> Iterator[ListenAddress]:
    """Serve the pages. The original proxy had none, so a port in use must not prevent the start."""
    with contextlib.ExitStack() as parts:
        try:
            address = parts.enter_context(serving_pages(content, pages, hosts=hosts))
        except ReschedulerError as failure:
            if not other_port:
                raise
            address = parts.enter_context(serving_pages(content, ListenAddress(pages.host, 0), hosts=hosts))
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
