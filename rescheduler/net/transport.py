"""The transport to a system's HTTP API, with proxies from the environment and a limit on a request's total time."""

import ipaddress
import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from rescheduler import durations
from rescheduler.clock import Clock
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import usable_url

#: The base classes of httpcore2's errors.
_CORE_ERRORS: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    httpcore2.UnsupportedProtocol,
)

_LEAST = 0.001  #: seconds; a socket timeout of zero means non-blocking, which fails with another error


def proxy_of(url: str) -> str | None:
    """Return the URL of the environment's HTTP proxy for *url*, if any. Raises ConfigError if it is invalid.

    NO_PROXY may contain networks, as in Go programs; httpx2 fails on some of them.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    value = proxies.get(parts.scheme) or proxies.get("all")
    if not value or proxy_bypass(host) or _in_networks(host, proxies.get("no", "")):
        return None
    proxy = value if "://" in value else f"http://{value}"
    if not usable_url(proxy):
        name = f"{parts.scheme.upper()}_PROXY" if proxies.get(parts.scheme) else "ALL_PROXY"
        raise ConfigError(f"environment: {name}: expected http(s)://[user:password@]host[:port]")
    return proxy


class ThreadDeadline(threading.local):
    """The deadline, on `clock.monotonic()`, of all reads and writes of the current thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = math.inf

    @contextmanager
    def until(self, moment: float) -> Iterator[None]:
        self._until = moment
        try:
            yield
        finally:
            self._until = math.inf

    def within(self, timeout: float | None) -> float | None:
        """Return *timeout*, or the remaining time if that is shorter."""
        left = max(self._until - self._clock.monotonic(), _LEAST)
        shorter = left if timeout is None else min(timeout, left)
        return None if math.isinf(shorter) else min(shorter, durations.LONGEST_WAIT)


class Transport(httpx2.BaseTransport):
    """A transport that limits the total time. The transports of httpx2 only limit each read: a slow server could block.

    It uses httpcore2 directly, whose connection pools accept a network backend.
    """

    def __init__(self, tls: SSLContext, proxy: str | None, limits: httpx2.Limits, bounds: ThreadDeadline) -> None:
        through = None if proxy is None else httpx2.Proxy(proxy)
        self._pool = httpcore2.ConnectionPool(
            ssl_context=tls,
            proxy=None if through is None else httpcore2.Proxy(_core_url(through.url), through.raw_auth),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Network(bounds),
        )

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        assert isinstance(request.stream, httpx2.SyncByteStream)
        sent = httpcore2.Request(
            request.method,
            _core_url(request.url),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _httpx_errors():
            response = self._pool.handle_request(sent)
        assert isinstance(response.stream, Iterable)
        return httpx2.Response(
            response.status, headers=response.headers, stream=_Body(response), extensions=response.extensions
        )

    def close(self) -> None:
        self._pool.close()


class _Body(httpx2.SyncByteStream):
    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _httpx_errors():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


@contextmanager
def _httpx_errors() -> Iterator[None]:
    """Convert the errors of httpcore2 to those of httpx2, which have the same names."""
    try:
        yield
    except _CORE_ERRORS as error:
        converted: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__, httpx2.TransportError)
        raise converted(str(error)) from error


def _core_url(url: httpx2.URL) -> httpcore2.URL:
    return httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


class _Network(httpcore2.NetworkBackend):
    def __init__(self, bounds: ThreadDeadline) -> None:
        self._sockets, self._bounds = httpcore2.SyncBackend(), bounds

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *args: Any, **more: Any) -> "_Stream":
        within = self._bounds.within(timeout)
        return _Stream(self._sockets.connect_tcp(host, port, within, *args, **more), self._bounds)


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, bounds: ThreadDeadline) -> None:
        self._stream, self._bounds = stream, bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._bounds.within(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._bounds.within(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "_Stream":
        within = self._bounds.within(timeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, within), self._bounds)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _in_networks(host: str, names: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in network for name in names.split(",") if (network := _network(name.strip())))


def _network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(name, strict=False)
    except ValueError:
        return None
