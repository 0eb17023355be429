"""The HTTPS server of discovery and of the node manager: mutual TLS, limits on time and size, and its responses."""

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rescheduler import decoding
from rescheduler.errors import Conflict, Forbidden, NotFound, RateLimited, ReschedulerError, Retryable, UsageError
from rescheduler.net import connection, server
from rescheduler.net.config_files import decode
from rescheduler.net.files import PLAINTEXT, Certificates, of_listener
from rescheduler.net.server import host_names, listen, running
from rescheduler.providers.base import AboveMaximum, BelowMinimum, UnknownGroup
from rescheduler.settings import ListenAddress

# Connections of the HTTPS services, whose requests carry the names from the client's certificate.


class PeerConnection(connection.HttpConnection):
    """An HTTP connection that adds the names from the client's certificate to each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = self.app_state | {"peer": certificate_names(transport.get_extra_info("peercert") or {})}


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common name and the DNS and URI names of a certificate (from `ssl.SSLSocket.getpeercert`)."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in {"DNS", "URI"}]
    return frozenset(subject + alternatives)


def client_names(request: Request) -> frozenset[str]:
    """Return the names in the client's certificate; the set is empty over plain text."""
    certified: frozenset[str] = request.state.peer
    return certified


# The responses of the HTTPS services: JSON, with errors in one line.

T = TypeVar("T")

#: The first class that matches decides; 500 for all others.
_STATUSES: Final[Sequence[tuple[type[ReschedulerError], int]]] = (
    (UsageError, 400),
    (Forbidden, 403),
    (UnknownGroup, 404),
    (NotFound, 404),
    (BelowMinimum, 409),
    (AboveMaximum, 409),
    (Conflict, 409),
    (RateLimited, 429),
    (Retryable, 503),
)

log = logging.getLogger(__name__)


def json_response(value: object, status: int = 200) -> Response:
    """Return *value* as JSON."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, text: str, **more: object) -> Response:
    """Return an error as ``{"error": text, …}``."""
    return json_response({"error": " ".join(text.split()), **more}, status)


def body(raw: bytes, shape: type[T]) -> T:
    """Decode a request's body as *shape*. Raises UsageError that names the key and the expected value."""
    try:
        return decoding.decode(raw, shape, dec_hook=decode)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"body: {error}") from error


def application(routes: Sequence[BaseRoute]) -> Starlette:
    """Return an application with *routes* and ``/healthz``, which converts our errors to responses."""
    handlers: Mapping[Any, Any] = {
        ReschedulerError: _failed,
        HTTPException: _refused,
        Exception: _unexpected,
    }
    health = Route("/healthz", lambda _: PlainTextResponse("ok\n"), methods=["GET"])
    return Starlette(routes=[*routes, health], exception_handlers=handlers)


def status_of(error: ReschedulerError) -> int:
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def _failed(request: Request, error: ReschedulerError) -> Response:
    status = status_of(error)
    ours = status == HTTPStatus.INTERNAL_SERVER_ERROR
    log.log(logging.WARNING if ours else logging.INFO, "%s %s: %s", request.method, request.url.path, error)
    response = problem(status, str(error))
    if (after := getattr(error, "retry_after", None)) is not None:
        response.headers["retry-after"] = str(int(after))
    return response


def _refused(_: Request, error: HTTPException) -> Response:
    response = problem(error.status_code, error.detail or HTTPStatus(error.status_code).phrase)
    response.headers.update(error.headers or {})
    return response


def _unexpected(_: Request, error: Exception) -> Response:
    # Starlette raises the error again after the response, and the server logs it.
    return problem(500, f"internal error: {type(error).__name__}")


# Limits on requests: their senders and size, and the time that clients take to send them and to receive responses.

MAX_BODY: Final = 4 << 20  #: maximum bytes of a body; a kubeconfig has about 10 KiB
BODY_SECONDS: Final = 30.0  #: seconds to receive a request's body
TAKING_SECONDS: Final = 60.0  #: seconds for a client to receive a part of the response


class Bounded:
    """An ASGI middleware that passes on requests of programs with a complete body of limited size.

    *names* are the host names of the service; if there are none, requests may have any Host.
    """

    def __init__(
        self,
        application: ASGIApp,
        *,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
        taking_seconds: float = TAKING_SECONDS,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._application, self._max_body = application, max_body
        self._names = names
        self._body_seconds, self._taking_seconds = body_seconds, taking_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if of_page := server.refusal(scope["method"], scope["headers"], self._names):
            await problem(int(of_page[0]), of_page[1])(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            async with asyncio.timeout(self._taking_seconds):
                await send(message)

        with contextlib.suppress(TimeoutError):
            refusal: ASGIApp
            try:
                async with asyncio.timeout(self._body_seconds):
                    body = await self._body(receive)
            except TimeoutError:
                refusal = problem(408, f"the body did not arrive within {self._body_seconds:g} s")
            else:
                if body is None:
                    return
                if len(body) <= self._max_body:
                    await self._application(scope, _replay(body, receive), sending)
                    return
                refusal = problem(413, f"the body is larger than {self._max_body} bytes")
            refusal.headers["connection"] = "close"
            await refusal(scope, receive, sending)

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the body, up to slightly more than the limit; `None` if the client has disconnected."""
        body = bytearray()
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > self._max_body or not message.get("more_body", False):
                return bytes(body)
        return None


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields the body once, and then the client's disconnect."""
    read = False

    async def replayed() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


# One CA issues all certificates: every component presents its own and accepts only those of this CA. Each handshake
# checks the files for changes.

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
