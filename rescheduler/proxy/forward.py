"""Requests handed on as they came, and answers handed back as they came, both streamed."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import httpx

from rescheduler.backends.base import AuthError
from rescheduler.backends.credentials import Credentials
from rescheduler.backends.transport import way_out
from rescheduler.proxy.answers import error

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

FAILED: Final = "failed to forward request to backend: failed to complete backend cloudpool request"

#: RFC 9110, 7.6.1, and what older clients send; they concern one connection only.
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding"
    b" upgrade".split()
)
#: Ours towards the backend: its own name, and no promise of a 100 that the server in front has given already.
_OURS: Final = frozenset({b"host", b"expect"})
#: Some servers take a request for one of another method or path where such a header names it: one of the first words,
#: and beside it only words of the second. Gateways write other characters of a name as underscores or dashes.
_TARGETS: Final = frozenset(b"method verb path prefix uri url".split())
_QUALIFIERS: Final = frozenset(
    b"x http request original orig rewrite rewritten override overrides overwrite replaced forwarded proxy real custom"
    b" unencoded raw envoy arr ms waws".split()
)
_REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


class ClientSlow(Exception):
    """The client does not send what it promised."""


class BrokenOff(Exception):
    """The backend's answer ended before its end."""


class Forwarder:
    """The backend, for requests that are not ours to understand. Connections are pooled.

    A request that is not safe to repeat gets a connection of its own: the backend may be closing an idle one.
    *timeout* is the backend's, *patience* the client's for each piece of its body, both in seconds.
    *consumes_authorization* says that the client's credentials were meant for us and go no further.
    """

    def __init__(
        self,
        url: str,
        credentials: Credentials,
        timeout: float,
        *,
        patience: float = 60.0,
        consumes_authorization: bool = False,
    ) -> None:
        self._url, self._patience = url, patience
        self._parsed = httpx.URL(url)
        self._base = self._parsed.raw_path.rstrip(b"/")
        self._credentials = credentials
        self._consumes_authorization = consumes_authorization
        self._timeout = httpx.Timeout(timeout).as_dict()
        tls: ssl.SSLContext = credentials.tls()
        way = way_out(url)
        # Transports and no clients: cookies, redirects, decoding and default headers are none of ours.
        unkept = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._fresh = httpx.AsyncHTTPTransport(verify=tls, limits=unkept, proxy=way)
        self._kept = httpx.AsyncHTTPTransport(verify=tls, limits=httpx.Limits(max_connections=None), proxy=way)

    async def close(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()

    async def forward(self, scope: Scope, receive: Receive, send: Send, body: bytes | None = None) -> None:
        """Hand on the request of *scope*, with *body* in place of its own where one is given; it may be read already.

        A client that leaves takes its request along.
        """
        client = _Client(receive, self._patience, sends=body is None and _has_body(scope["headers"]))
        async with client.attended():
            await self._exchanged(scope, client, send, body)

    async def _exchanged(self, scope: Scope, client: "_Client", send: Send, body: bytes | None) -> None:
        try:
            response = await self._sent(scope, client, body)
        except ClientGone:
            return
        except ClientSlow as failure:
            await error(408, FAILED, str(failure))(scope, client.receive, send)
            return
        except httpx.TimeoutException as failure:
            await error(504, FAILED, self._reason(failure))(scope, client.receive, send)
            return
        except (httpx.HTTPError, AuthError) as failure:
            await error(502, FAILED, self._reason(failure))(scope, client.receive, send)
            return
        try:
            await _hand_back(response, send)
        except httpx.HTTPError as failure:
            # What was sent already cannot be taken back: the server closes the connection, and the client sees it.
            raise BrokenOff(f"{scope['method']} {raw_path(scope)}: {self._reason(failure)}") from failure
        finally:
            await response.aclose()

    async def _sent(self, scope: Scope, client: "_Client", body: bytes | None) -> httpx.Response:
        if client.sends or body is not None or scope["method"] not in _REPEATABLE:
            return await self._fresh.handle_async_request(self._request(scope, client, body))
        try:
            return await self._kept.handle_async_request(self._request(scope, client, None))
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            return await self._fresh.handle_async_request(self._request(scope, client, None))

    def _request(self, scope: Scope, client: "_Client", body: bytes | None) -> httpx.Request:
        headers = self._headers(scope, new_length=None if body is None else len(body))
        content = client.body() if client.sends else body
        extensions = {"target": self._target(scope), "timeout": self._timeout}
        self._credentials.tls()
        return httpx.Request(scope["method"], self._parsed, headers=headers, content=content, extensions=extensions)

    def _reason(self, failure: Exception) -> str:
        text = " ".join(str(failure).split())
        if isinstance(failure, httpx.TimeoutException):
            text = text or f"{type(failure).__name__} after {self._timeout['read']:g} s"
        return f"{self._url}: {text or type(failure).__name__}"

    def _target(self, scope: Scope) -> bytes:
        """Path and query to the byte, below the backend's own path."""
        query: bytes = scope["query_string"]
        return self._base + raw_path(scope).encode("ascii") + (b"?" + query if query else b"")

    def _headers(self, scope: Scope, new_length: int | None) -> list[Header]:
        dropped = set(_OURS)
        # Of both, the transfer coding says how long the body is (RFC 9112, 6.3).
        if new_length is not None or any(name == b"transfer-encoding" for name, _ in scope["headers"]):
            dropped.add(b"content-length")
        if self._consumes_authorization:
            dropped.add(b"authorization")
        kept = [
            (name, value) for name, value in _end_to_end(scope["headers"]) if name not in dropped and not rewrites(name)
        ]
        names = {name for name, _ in kept}
        for name, value in self._credentials.headers().items():
            if name.encode() not in names:
                kept.append((name.encode(), value.encode()))
        return _with_client(kept, scope)


def rewrites(name: bytes) -> bool:
    """Whether a header of this name changes the method or the path of a request for some servers."""
    words = set(re.findall(rb"[a-z0-9]+", name.lower()))
    return bool(words & _TARGETS) and words <= _TARGETS | _QUALIFIERS


def raw_path(scope: Scope) -> str:
    """The path as it stood in the request line; of a URL there (RFC 9112, 3.2.2), what follows the host."""
    path: str = scope["raw_path"].decode("ascii")
    if path.startswith("/") or "://" not in path:
        return path
    _, _, rest = path.partition("://")
    return "/" + rest.partition("/")[2]


def client_address(scope: Scope) -> str:
    """Who asks; a socket for both families shows clients of IPv4 as ``::ffff:10.0.0.1``."""
    host: str = scope["client"][0] if scope.get("client") else "unknown"
    return host.removeprefix("::ffff:")


async def _hand_back(response: httpx.Response, send: Send) -> None:
    headers = list(_end_to_end(response.headers.raw))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    async for chunk in stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


class _Client:
    """The other end of a request: its body, and then whether it is still there."""

    def __init__(self, receive: Receive, patience: float, *, sends: bool) -> None:
        self.receive, self.sends = receive, sends
        self._patience = patience
        self._sent = asyncio.Event()
        if not sends:
            self._sent.set()

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            try:
                message = await asyncio.wait_for(self.receive(), self._patience)
            except TimeoutError:
                raise ClientSlow(f"no more of the request's body came for {self._patience:g} s") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                self._sent.set()
                return

    @asynccontextmanager
    async def attended(self) -> AsyncIterator[None]:
        """Ends the block early, and quietly, when the client leaves."""
        working = asyncio.current_task()
        assert working is not None
        left = over = False

        def leave(_: object) -> None:
            nonlocal left
            if not over:
                left = True
                working.cancel()

        watching = asyncio.ensure_future(self._gone())
        watching.add_done_callback(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not left or working.uncancel():  # somebody else cancelled it too
                raise
        finally:
            over = True
            watching.cancel()

    async def _gone(self) -> None:
        await self._sent.wait()
        await gone(self.receive)


async def gone(receive: Receive) -> None:
    """Ends when the client has left; its request has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _has_body(headers: Iterable[Header]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _end_to_end(headers: Iterable[Header]) -> list[Header]:
    """Without those of the connection, and without those that its Connection header names."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower() for name, value in pairs if name == b"connection" for token in value.split(b",") if token
    }
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]


def _with_client(headers: list[Header], scope: Scope) -> list[Header]:
    """X-Forwarded-For grows by the client's address, in one line."""
    before = [value for name, value in headers if name == b"x-forwarded-for" and value.strip()]
    rest = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
    client = [client_address(scope).encode()] if scope.get("client") else []
    return [*rest, (b"x-forwarded-for", b", ".join([*before, *client]))] if before or client else rest
