"""The proxy's listener."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import uvicorn

from rescheduler import pem
from rescheduler.errors import ReschedulerError
from rescheduler.observe.connection import HttpConnection
from rescheduler.observe.server import running
from rescheduler.proxy.app import Proxy
from rescheduler.proxy.config import Server, ServerTls


@contextlib.contextmanager
def serving(proxy: Proxy, host: str, port: int, config: Server) -> Iterator[int]:
    """Serve from a thread of its own for the length of the block; yields the port.

    At the end requests under way are waited for: whoever ends the block has told updates to stop before.
    Raises ReschedulerError where the address cannot be listened on, UsageError for certificates of no use.
    """
    settings = _settings(proxy, config)
    listener = _listen(host, port)
    with running(settings, listener, "proxy") as where:
        yield where


def _settings(proxy: Proxy, config: Server) -> uvicorn.Config:
    settings = uvicorn.Config(
        proxy,
        # The application tells a client that its body is late, a second before the connection goes.
        http=partial(HttpConnection, head_seconds=config.timeout, body_seconds=config.timeout + 1),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        # The backend's own are handed back.
        server_header=False,
        date_header=False,
        # The client is who connects, whatever X-Forwarded-For says.
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
    certificate = pem.File("server.tls.certPath", Path(tls.cert_path))
    pem.present(context, certificate, pem.File("server.tls.keyPath", Path(tls.key_path)))
    if tls.client_ca_path:
        context.verify_mode = ssl.CERT_REQUIRED
        pem.trust(context, pem.File("server.tls.clientCaPath", Path(tls.client_ca_path)))
    return context


def _listen(host: str, port: int) -> socket.socket:
    """A socket that knows its protocol: only then asyncio turns Nagle's algorithm off."""
    family = socket.AF_INET6 if not host or ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not host:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host or "::", port))
        listener.listen(128)
    except OSError as failure:
        listener.close()
        raise ReschedulerError(f"--port {port}: cannot listen there: {failure.strerror}") from failure
    return listener
