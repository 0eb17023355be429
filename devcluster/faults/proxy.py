"""The proxy: TLS or plain HTTP/1.1, a thread per connection, streaming of watches."""

import contextlib
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any, Final, Self

from devcluster.faults.calls import ApiCall, Identify, http_call, kubernetes_call
from devcluster.faults.catalog import DEFAULT_SECONDS, FaultSeconds, all_faults
from devcluster.faults.exchange import ConnectionEnded, ProxiedRequest
from devcluster.faults.injected import ExpiredToken, InjectedError, InjectedFault, StaleList
from devcluster.faults.rules import FaultRules
from devcluster.faults.upstream import Connections, Upstream, UpstreamAnswer
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request that the proxy received."""

    call: ApiCall
    target: str
    at: float  #: monotonic seconds
    fault: InjectedFault | None
    accept: str  #: the header


class FaultProxy:
    """A proxy in front of *upstream*. Use it as a context manager; its methods are thread-safe.

    With *tls* it is an HTTPS server. Without rules it forwards everything unchanged, including the client's token, but
    not client certificates. *watcher* is called with each request before it is handled.
    """

    def __init__(
        self,
        upstream: Upstream,
        identify: Identify,
        tls: ssl.SSLContext | None = None,
        watcher: Callable[[ProxiedRequest], None] = lambda _: None,
    ) -> None:
        self._clock = SystemClock()
        self.upstream, self.identify, self.tls, self.watcher = upstream, identify, tls, watcher
        self.rules = FaultRules(self._clock.monotonic)
        self.connections = Connections()
        self._lock = threading.Lock()
        self._seen: list[SeenRequest] = []
        self._lists: dict[tuple[str, str], UpstreamAnswer] = {}
        self._expired: set[str] = set()
        self._stopping = threading.Event()
        self._server = _FaultServer(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="fault-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self.drop()
        self._thread.join()

    @property
    def url(self) -> str:
        scheme = "https" if self.tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def seen(self) -> list[SeenRequest]:
        """All requests since the last call of `forget`, in order of arrival."""
        with self._lock:
            return list(self._seen)

    def forget(self) -> None:
        """Remove all rules, expired tokens, recorded lists and requests, and close all connections."""
        self.drop()
        self.rules.forget()
        with self._lock:
            self._seen.clear()
            self._lists.clear()
            self._expired.clear()

    def drop(self) -> None:
        """Close all connections to clients and to the server, and end all waits."""
        stopping, self._stopping = self._stopping, threading.Event()
        stopping.set()
        self.connections.shut()

    # -- faults that need the proxy's state

    def stale_list(self) -> StaleList:
        """Return a fault: the oldest response to the same LIST since `forget`."""
        return StaleList(lambda request: self._lists.get(_list_key(request)))

    @property
    def has_expired_tokens(self) -> bool:
        return bool(self._expired)

    def expired_token(self) -> ExpiredToken:
        """Return a fault: the token of the request is rejected from then on, until `forget`."""
        return ExpiredToken(self._expired.add)

    def all_faults(self, seconds: FaultSeconds = DEFAULT_SECONDS) -> dict[str, InjectedFault]:
        """Return all faults by name, for rules of this proxy."""
        return all_faults(self.stale_list(), self.expired_token(), seconds)

    # -- called by the connection threads

    def handle(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        call = self.identify(handler.command, handler.path, body)
        fault, accept = self.rules.fault_for(call), handler.headers.get("accept", "")
        with self._lock:
            self._seen.append(SeenRequest(call, handler.path, self._clock.monotonic(), fault, accept))
        request = ProxiedRequest(call, body, handler, self.upstream, self.connections, self._stopping)
        self.watcher(request)
        try:
            if request.header("authorization") in self._expired:
                InjectedError(http.client.UNAUTHORIZED).play(request)
            elif fault is not None:
                fault.play(request)
            else:
                self._pass_on(request)
        finally:
            request.release()

    def _pass_on(self, request: ProxiedRequest) -> None:
        response = request.forward()
        if request.call.verb == "list" and response.status == http.client.OK:
            response = response.read()
            with self._lock:
                self._lists.setdefault(_list_key(request), response)
        request.pass_on(response)


def _list_key(request: ProxiedRequest) -> tuple[str, str]:
    return request.target, request.header("accept")


class _FaultServer(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not print tracebacks: broken connections are expected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _FaultServer

    def setup(self) -> None:
        proxy = self.server.proxy
        if proxy.tls is not None:
            self.request = proxy.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        with self.server.proxy.connections.holding(self.connection), contextlib.suppress(*_BROKEN):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        with contextlib.suppress(OSError):
            self.connection.close()

    def __getattr__(self, name: str) -> Any:
        if name.removeprefix("do_") in _METHODS:
            return self._exchange
        raise AttributeError(name)

    def _exchange(self) -> None:
        self.close_connection = False
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            self.server.proxy.handle(self, body)
        except _BROKEN:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


_BROKEN: Final = (ConnectionEnded, OSError, ValueError, http.client.HTTPException)


def before_cloudpool(url: str, watcher: Callable[[ProxiedRequest], None] = lambda _: None) -> FaultProxy:
    """Return a proxy in front of the HTTP server at *url*, such as a cloudpool; plain HTTP on both sides."""
    return FaultProxy(Upstream(url), http_call, watcher=watcher)


@contextlib.contextmanager
def before_api_server(plane: ControlPlane) -> Iterator[FaultProxy]:
    """Run a proxy in front of the API server of *plane*, with the same certificate; clients' tokens are forwarded."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates = plane.layout.certificates
    tls.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
    trusted = ssl.create_default_context(cafile=plane.ca)
    with FaultProxy(Upstream(plane.server, trusted), kubernetes_call, tls) as proxy:
        yield proxy


def redirected(kubeconfig: Path, proxy: FaultProxy, target: Path) -> Path:
    """Write a copy of *kubeconfig* with the URL of *proxy* to *target* and return it."""
    config = json.loads(kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = proxy.url
    new = target.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(config))
    return new.replace(target)
