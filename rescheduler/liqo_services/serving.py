"""The HTTPS server of discovery and of the node manager: mutual TLS, with limits on time and size.

One CA issues all certificates: every component presents its own and accepts only those of this CA. Each handshake
checks the files for changes.
"""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from rescheduler.errors import UsageError
from rescheduler.liqo_services.bounds import Bounded
from rescheduler.liqo_services.connection import PeerConnection
from rescheduler.net.browsers import host_names
from rescheduler.net.certificates import PLAINTEXT, Certificates, of_listener
from rescheduler.net.server import listen, running
from rescheduler.settings import ListenAddress

HEALTH_FLAG: Final = "--health-address"  #: sets an additional address, for pages in plain text

_IDLE_SECONDS: Final = 75  #: seconds; longer than common clients keep idle connections
_GRACE_SECONDS: Final = 30  #: seconds for requests in progress when the server stops


@dataclass(frozen=True, slots=True)
class HttpsListener:
    """The address and the files of mutual TLS: all three, or none with *plaintext* on a loopback address."""

    listen: ListenAddress
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    plaintext: bool = False

    def certificates(self) -> Certificates | None:
        """Read and validate the files; `None` for plain text. Raises UsageError."""
        if self.plaintext and not self.listen.loopback:
            raise UsageError(f"{PLAINTEXT}: expected --listen on a loopback address, got {self.listen}")
        return of_listener(
            ("--tls-key", self.key),
            ("--tls-cert", self.cert),
            ("--tls-client-ca", self.client_ca),
            plaintext=self.plaintext,
            permitted=self.plaintext,
        )


@contextlib.contextmanager
def serving(application: ASGIApp, listener: HttpsListener, name: str) -> Iterator[ListenAddress]:
    """Serve in a thread called *name* while the block runs; yield the address with the actual port.

    At the end, wait for requests in progress. Raises ReschedulerError if the address cannot be used, and UsageError
    for invalid combinations of flags and invalid files.
    """
    certificates = listener.certificates()
    sock = listen(listener.listen, "--listen")
    with running(_settings(application, certificates, host_names(listener.listen.host)), sock, name) as port:
        yield ListenAddress(listener.listen.host, port)


def _settings(application: ASGIApp, certificates: Certificates | None, names: frozenset[str]) -> uvicorn.Config:
    settings = uvicorn.Config(
        Bounded(application, names=names),
        http=PeerConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The client is the peer of the connection, regardless of X-Forwarded-For.
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    settings.load()
    settings.ssl = _context(certificates) if certificates else None
    return settings


def _context(certificates: Certificates) -> ssl.SSLContext:
    """Return the server's TLS context, which switches each handshake to the context of the current files."""

    def renewed(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        certificates.renewed()
        connection.context = certificates.server_context

    context = certificates.server_context
    context.sni_callback = renewed
    # A resumed session would not be checked against a changed CA. Before TLS 1.3, resumption cannot be disabled
    # reliably.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    return context
