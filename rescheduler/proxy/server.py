"""The proxy's HTTP server."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import uvicorn

from rescheduler.errors import ReschedulerError
from rescheduler.net import pem
from rescheduler.net.accepting import BACKLOG
from rescheduler.net.connection import HEAD_SECONDS, HttpConnection
from rescheduler.net.server import running
from rescheduler.proxy.app import ProxyApplication
from rescheduler.proxy.config import ServerSection, ServerTls


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
    certificate = pem.PemFile("server.tls.certPath", Path(tls.cert_path))
    pem.present(context, certificate, pem.PemFile("server.tls.keyPath", Path(tls.key_path)))
    if tls.client_ca_path:
        context.verify_mode = ssl.CERT_REQUIRED
        pem.trust(context, pem.PemFile("server.tls.clientCaPath", Path(tls.client_ca_path)))
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
