"""The HTTPS listener of discovery and of the node manager: mutual TLS, and an end to whatever takes too long.

An authority issues the certificates of all parts: each shows its own and accepts only those of that authority. Each
handshake asks whether the files are new.
"""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from rescheduler.backends.certificates import PLAINTEXT, Certificates, of_listener
from rescheduler.errors import UsageError
from rescheduler.liqo.bounds import Bounded
from rescheduler.liqo.connection import Connection
from rescheduler.observe.server import listen, running
from rescheduler.settings import Address

HEALTH_FLAG: Final = "--health-address"  #: of the pages in plain text, which are served beside the face

#: Connections at once; the next ones are answered with 503.
_AT_ONCE: Final = 256
_IDLE_SECONDS: Final = 75  #: longer than common clients keep a connection for use
_GRACE_SECONDS: Final = 30  #: for requests under way when the server stops


@dataclass(frozen=True, slots=True)
class Face:
    """Where to listen, and the files of mutual TLS: all three, or none with *plaintext*, which is for loopback."""

    listen: Address
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    plaintext: bool = False

    def certificates(self) -> Certificates | None:
        """The files, read and checked; `None` for plain text. Raises UsageError."""
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
def serving(application: ASGIApp, face: Face, name: str) -> Iterator[Address]:
    """Serve from a thread *name* for the length of the block; yields the address, port filled in.

    At the end requests under way are waited for. Raises ReschedulerError where the address cannot be listened on,
    UsageError for flags that do not belong together and files of no use.
    """
    certificates = face.certificates()
    listener = listen(face.listen, "--listen")
    with running(_settings(application, certificates), listener, name) as port:
        yield Address(face.listen.host, port)


def _settings(application: ASGIApp, certificates: Certificates | None) -> uvicorn.Config:
    settings = uvicorn.Config(
        Bounded(application),
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The client is who connects, whatever X-Forwarded-For says.
        proxy_headers=False,
        limit_concurrency=_AT_ONCE,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    settings.load()
    settings.ssl = _context(certificates) if certificates else None
    return settings


def _context(certificates: Certificates) -> ssl.SSLContext:
    """The listener's, which hands every handshake on to the context of the files as they are."""

    def renewed(connection: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        certificates.renewed()
        connection.context = certificates.server_context

    context = certificates.server_context
    context.sni_callback = renewed
    # A session that is taken up again would not ask whether its certificate is still of an authority of ours; before
    # TLS 1.3 that cannot be kept from happening.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    return context
