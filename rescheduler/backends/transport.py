"""The way out to a system's HTTP API: by which proxy, and never longer than until an agreed moment."""

import ipaddress
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from rescheduler import durations
from rescheduler.backends.base import ConfigError
from rescheduler.backends.config import usable_url
from rescheduler.clock import Clock

_LEAST = 0.001  #: seconds; zero would mean "do not wait" to a socket, and be an error of another kind


def way_out(url: str) -> str | None:
    """The HTTP proxy that the environment names for *url*; ConfigError where it is none.

    NO_PROXY may hold networks, as it may for programs in Go; httpx fails on some of them.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    if not found or proxy_bypass(host) or _in_networks(host, proxies.get("no", "")):
        return None
    proxy = found if "://" in found else f"http://{found}"
    if not usable_url(proxy):
        name = f"{parts.scheme.upper()}_PROXY" if proxies.get(parts.scheme) else "ALL_PROXY"
        raise ConfigError(f"environment: {name}: expected http(s)://[user:password@]host[:port]")
    return proxy


class Bounds(threading.local):
    """The moment of `clock.monotonic()` by which what this thread sends and receives must be over."""

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
        """*timeout*, or what is left of the time."""
        left = max(self._until - self._clock.monotonic(), _LEAST)
        shorter = left if timeout is None else min(timeout, left)
        return None if math.isinf(shorter) else min(shorter, durations.LONGEST_WAIT)


class Transport(httpx.HTTPTransport):
    """httpx bounds every single read; a server that sends a byte now and then could keep it for ever."""

    def __init__(self, tls: SSLContext, proxy: str | None, limits: httpx.Limits, bounds: Bounds) -> None:
        super().__init__(verify=tls, limits=limits, proxy=proxy)
        self._pool._network_backend = _Network(bounds)  # noqa: SLF001 -- httpx does not let it through


class _Network(httpcore.NetworkBackend):
    def __init__(self, bounds: Bounds) -> None:
        self._sockets, self._bounds = httpcore.SyncBackend(), bounds

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, *args: Any, **more: Any) -> "_Stream":
        within = self._bounds.within(timeout)
        return _Stream(self._sockets.connect_tcp(host, port, within, *args, **more), self._bounds)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, bounds: Bounds) -> None:
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
