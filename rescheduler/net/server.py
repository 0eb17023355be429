"""Serve ASGI applications in separate threads, until a signal stops the process, and not to web pages."""

import asyncio
import contextlib
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from http import HTTPStatus
from types import FrameType
from typing import Any, Final, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE

from rescheduler.errors import ReschedulerError
from rescheduler.net.accepting import BACKLOG, AcceptLoop
from rescheduler.net.connection import MAX_PAGE_HEAD, HttpConnection
from rescheduler.settings import OWN_ADDRESS, ListenAddress, PageHosts

# Requests that a web page can make a browser send, to services that only programs call.
#
# A page on any site can send a request to an address that the browser reaches, with the client certificate of its user.
# Browsers mark such requests with ``Origin`` (all that can change something, and all that a script reads) and
# ``Sec-Fetch-Site``. A page cannot send JSON to another site without asking that site first. With DNS rebinding, a page
# can make its own name point to our address; the ``Host`` header then still has that name.

#: Header fields as in ASGI: names in lower case.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

#: For HTML pages: no page of another site may show ours in a frame, where it could lead the user's clicks.
FRAMES: Final = "frame-ancestors 'none'"
#: The headers of responses that are not HTML documents with a policy of their own.
SECURED: Final = {
    b"content-security-policy": f"default-src 'none'; {FRAMES}".encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}

MISDIRECTED: Final = "the Host header has none of the names of this service"

_FROM_ELSEWHERE: Final = frozenset({"cross-site", "same-site"})
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON: Final = "application/json"


def refusal(method: str, headers: Headers, names: Collection[str]) -> tuple[HTTPStatus, str] | None:
    """Return the status and the text for a request that is refused; `None` if it is not. *names*: see `misdirected`."""
    fields = [(name, value.decode("latin-1").strip().lower()) for name, value in headers]
    if misdirected(headers, names):
        return HTTPStatus.MISDIRECTED_REQUEST, MISDIRECTED
    if any(name == b"origin" or (name == b"sec-fetch-site" and value in _FROM_ELSEWHERE) for name, value in fields):
        return HTTPStatus.FORBIDDEN, "requests of web pages are refused: they have the header Origin or Sec-Fetch-Site"
    sends = any(name == b"transfer-encoding" or (name == b"content-length" and value != "0") for name, value in fields)
    kinds = {value.partition(";")[0].rstrip() for name, value in fields if name == b"content-type"}
    # A page can also send a body without a type (a Blob), and old browsers send no Origin with it.
    if method.upper() not in READING and sends and kinds != {_JSON}:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected the header Content-Type: {_JSON}"
    return None


def misdirected(headers: Headers, names: Collection[str]) -> bool:
    """Return whether the Host header has a name that is not one of *names*; if there are none, all are accepted.

    IP addresses are always accepted, because a page cannot be loaded by the address of somebody else.
    """
    return bool(names) and not all(host in names or _is_address(host) for host in _hosts(headers))


def host_names(listen_host: str, configured: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a service that listens on *listen_host*: the *configured* ones, and the host unless it is an
    address or empty.
    """
    own = () if not listen_host or _is_address(listen_host) else (listen_host,)
    return frozenset(name.lower().rstrip(".") for name in (*configured, *own))


def page_hosts(address: ListenAddress, hosts: PageHosts) -> Callable[[str], bool]:
    """Return whether pages that are served on *address* answer a host (a name in lower case, or an IP address).

    On a loopback address, nothing but this machine and *hosts* leads to them. Elsewhere, any IP address may: that of a
    pod, of its Service or of a load balancer.
    """
    names = host_names(address.host, hosts.allowed)
    if address.loopback or address.every_interface:  # kubectl port-forward leads to the loopback address
        names |= {"localhost"}
    services = () if address.loopback else _service_domains(hosts.namespace)

    def answered(host: str) -> bool:
        if _is_address(host):
            return host in names or not address.loopback or ListenAddress(host, address.port).loopback
        name, dot, domain = host.partition(".")
        return host in names or (name != "" and dot + domain in services)

    return answered


def _service_domains(namespace: str) -> tuple[str, ...]:
    """Return what follows the name of a Service of *namespace* in its DNS names.

    A namespace can have the name of a top-level domain, in which anybody may register a name, unless it has a hyphen.
    """
    if not namespace:
        return ()
    short = (f".{namespace}",) if "-" in namespace and not namespace.startswith("xn--") else ()
    return (f".{namespace}.svc", f".{namespace}.svc.cluster.local", *short)


def _hosts(headers: Headers) -> list[str]:
    """Return the names and addresses in the Host headers, in lower case and without their ports."""
    values = [value.decode("latin-1").strip().lower() for name, value in headers if name == b"host"]
    return [(v.rpartition("]")[0].removeprefix("[") or v.partition(":")[0]).rstrip(".") for v in values]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


# Serve ASGI applications in separate threads.

_STOP_SECONDS: Final = 5.0

#: How often an idle server wakes up, in seconds: the Date header has whole seconds. Uvicorn itself wakes up ten times
#: as often.
_TICK_SECONDS: Final = 1.0

#: How long a computing thread delays the server's thread each time that thread waits for the interpreter, in seconds.
#: It waits several times per request, and Python's default is five times as long.
_SWITCH_SECONDS: Final = 0.001


class QuietServer(uvicorn.Server):
    """A server that uses little CPU while it has no requests, and stops at once."""

    def __init__(self, settings: uvicorn.Config) -> None:
        super().__init__(settings)
        self._woken: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, but with our own accept loops."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self.servers = [AcceptLoop(listener, self._connection, self.config.ssl) for listener in sockets or ()]  # type: ignore[misc]
        self.started = True

    def _connection(self) -> HttpConnection:
        protocol: type[HttpConnection] = self.config.http_protocol_class  # type: ignore[assignment]
        return protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def main_loop(self) -> None:
        woken = asyncio.Event()
        self._woken = asyncio.get_running_loop(), woken
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(woken.wait(), _TICK_SECONDS)

    def stop(self) -> None:
        """Signal the server to stop. May be called from any thread."""
        self.should_exit = True
        if self._woken is not None:
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._woken[0].call_soon_threadsafe(self._woken[1].set)


class SecuredPages:
    """An ASGI middleware that checks the Host header, and adds headers that limit what browsers do with the pages."""

    _MISDIRECTED: Final = f"{MISDIRECTED}; --allowed-host adds one\n"

    def __init__(self, application: ASGIApp, answered: Callable[[str], bool]) -> None:
        self._application, self._answered = application, answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                added = [(name, value) for name, value in SECURED.items() if name not in present]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        application = self._application
        if not all(map(self._answered, _hosts(scope["headers"]))):
            application = PlainTextResponse(self._MISDIRECTED, HTTPStatus.MISDIRECTED_REQUEST)
        await application(scope, receive, secured)


@contextlib.contextmanager
def serving(
    application: Starlette, address: ListenAddress, flag: str = "--listen-address", hosts: PageHosts = OWN_ADDRESS
) -> Iterator[ListenAddress]:
    """Serve *application* in a separate thread while the block runs. Yield the address with the actual port.

    Requests for other hosts than the address and *hosts* are refused (421), see `page_hosts`.
    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    pages = SecuredPages(application, page_hosts(address, hosts))
    protocol: Any = partial(HttpConnection, max_head=MAX_PAGE_HEAD)
    settings = uvicorn.Config(pages, log_config=None, access_log=False, lifespan="off", ws="none", http=protocol)
    sys.setswitchinterval(min(_SWITCH_SECONDS, sys.getswitchinterval()))
    with running(settings, listen(address, flag), "http", _STOP_SECONDS) as port:
        yield ListenAddress(address.host, port)


@contextlib.contextmanager
def running(
    settings: uvicorn.Config, listener: socket.socket, name: str, patience: float | None = None
) -> Iterator[int]:
    """Serve *listener* in a thread *name* while the block runs. Yield its port, and close the listener at the end.

    Then wait for requests in progress, for *patience* seconds or as long as *settings* allow.
    """
    server = QuietServer(settings)
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=patience is not None)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.stop()
        thread.join(patience)
        listener.close()


def listen(address: ListenAddress, flag: str) -> socket.socket:
    """Return a listening socket. The server does not create it itself, so that errors in the address can be reported.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    try:
        addresses = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # As in Go, prefer IPv4 for a name with addresses of both families.
        family, kind, protocol, _, socket_address = min(
            addresses, key=lambda candidate: candidate[0] is not socket.AF_INET
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ReschedulerError(f"{flag} {address}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ReschedulerError(f"{flag} {address}: cannot listen there: {error.strerror}") from error
    return listener


# Signal handling: the first SIGTERM or SIGINT requests a graceful stop, and the second one ends the process.

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_signals(handle: Callable[[str], object]) -> Iterator[None]:
    """Within the block, call *handle* with the name of the first signal. A second signal ends the process.

    For the main thread only.
    """

    def handle_first(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        handle(signal.Signals(number).name)

    before = {number: signal.signal(number, handle_first) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
