"""Forward requests and return responses unchanged, both streamed."""

import re
import ssl
from collections.abc import Iterable
from typing import Final

import httpx2

from rescheduler.cloudpool.proxy.messages import (
    AsgiScope,
    AsgiSend,
    ClientGone,
    ClientSlow,
    Header,
    Receive,
    RequestClient,
    error,
)
from rescheduler.errors import AuthError
from rescheduler.net.config_files import Credentials
from rescheduler.net.server import READING
from rescheduler.net.transport import proxy_of

FAILED: Final = "failed to forward request to backend: failed to complete backend cloudpool request"

#: Headers that concern a single connection: from RFC 9110, 7.6.1, and from older clients.
_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding"
    b" upgrade".split()
)
#: Headers that we set or drop: the backend gets its own Host, and no Expect, because our server has sent a 100.
_OURS: Final = frozenset({b"host", b"expect"})
#: Some servers let certain headers override the method or path. Their names contain one of these words, and otherwise
#: only words of _QUALIFIERS. Gateways write other characters of a header name as underscores or dashes.
_TARGETS: Final = frozenset(b"method verb path prefix uri url".split())
_QUALIFIERS: Final = frozenset(
    b"x http request original orig rewrite rewritten override overrides overwrite replaced forwarded proxy real custom"
    b" unencoded raw envoy arr ms waws".split()
)
#: Maximum number of characters in a log line.
_LONGEST_PATH: Final = 256
_LONGEST_METHOD: Final = 16


class BrokenOff(Exception):
    """The backend's response ended early."""


class Forwarder:
    """A forwarder to the backend for requests that the proxy does not interpret. Connections are pooled.

    A request that is not safe to repeat uses a new connection: the backend may be closing an idle one.
    *timeout* applies to the backend and *patience* to each part of the client's request body; both are in seconds.
    *consumes_authorization*: the client's credentials are meant for the proxy and are not forwarded.
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
        self._parsed = httpx2.URL(url)
        self._base = self._parsed.raw_path.rstrip(b"/")
        self._credentials = credentials
        self._consumes_authorization = consumes_authorization
        self._timeout = httpx2.Timeout(timeout).as_dict()
        tls: ssl.SSLContext = credentials.tls()
        proxy_url = proxy_of(url)
        # Transports, not clients: no cookies, redirects, decoding or default headers.
        unkept = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
        self._fresh = httpx2.AsyncHTTPTransport(verify=tls, limits=unkept, proxy=proxy_url)
        self._kept = httpx2.AsyncHTTPTransport(verify=tls, limits=httpx2.Limits(max_connections=None), proxy=proxy_url)

    async def close(self) -> None:
        await self._kept.aclose()
        await self._fresh.aclose()

    async def forward(self, scope: AsgiScope, receive: Receive, send: AsgiSend, body: bytes | None = None) -> None:
        """Forward the request of *scope*. *body*, if given, replaces its body, which may already have been read.

        If the client disconnects, the request is canceled.
        """
        client = RequestClient(receive, self._patience, sends=body is None and _has_body(scope["headers"]))
        async with client.cancel_on_disconnect():
            await self._exchanged(scope, client, send, body)

    async def _exchanged(self, scope: AsgiScope, client: RequestClient, send: AsgiSend, body: bytes | None) -> None:
        try:
            response = await self._sent(scope, client, body)
        except ClientGone:
            return
        except ClientSlow as failure:
            await error(408, FAILED, str(failure))(scope, client.receive, send)
            return
        except httpx2.TimeoutException as failure:
            await error(504, FAILED, self._reason(failure))(scope, client.receive, send)
            return
        except (httpx2.HTTPError, AuthError) as failure:
            await error(502, FAILED, self._reason(failure))(scope, client.receive, send)
            return
        try:
            await _hand_back(response, send)
        except httpx2.HTTPError as failure:
            # Sent parts of the response cannot be revoked: the server closes the connection to tell the client.
            raise BrokenOff(f"{request_line(scope)}: {self._reason(failure)}") from failure
        finally:
            await response.aclose()

    async def _sent(self, scope: AsgiScope, client: RequestClient, body: bytes | None) -> httpx2.Response:
        if client.sends or body is not None or scope["method"] not in READING:
            return await self._fresh.handle_async_request(self._request(scope, client, body))
        try:
            return await self._kept.handle_async_request(self._request(scope, client, None))
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            return await self._fresh.handle_async_request(self._request(scope, client, None))

    def _request(self, scope: AsgiScope, client: RequestClient, body: bytes | None) -> httpx2.Request:
        headers = self._headers(scope, new_length=None if body is None else len(body))
        content = client.body() if client.sends else body
        extensions = {"target": self._target(scope), "timeout": self._timeout}
        self._credentials.tls()
        return httpx2.Request(scope["method"], self._parsed, headers=headers, content=content, extensions=extensions)

    def _reason(self, failure: Exception) -> str:
        text = " ".join(str(failure).split())
        if isinstance(failure, httpx2.TimeoutException):
            text = text or f"{type(failure).__name__} after {self._timeout['read']:g} s"
        return f"{self._url}: {text or type(failure).__name__}"

    def _target(self, scope: AsgiScope) -> bytes:
        """Return the unchanged path and query, appended to the backend's own path."""
        query: bytes = scope["query_string"]
        return self._base + raw_path(scope).encode("ascii") + (b"?" + query if query else b"")

    def _headers(self, scope: AsgiScope, new_length: int | None) -> list[Header]:
        dropped = set(_OURS)
        if new_length is not None:
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
    """Return whether some servers let a header of this name override the method or the path."""
    words = set(re.findall(rb"[a-z0-9]+", name.lower()))
    return bool(words & _TARGETS) and words <= _TARGETS | _QUALIFIERS


def raw_path(scope: AsgiScope) -> str:
    """Return the path of the request line; for an absolute URL (RFC 9112, 3.2.2), the part after the host."""
    path: str = scope["raw_path"].decode("ascii")
    if path.startswith("/") or "://" not in path:
        return path
    _, _, rest = path.partition("://")
    return "/" + rest.partition("/")[2]


def request_line(scope: AsgiScope) -> str:
    """Return the method and the path for log lines. Clients must not be able to fill the log, so both are cut."""
    return f"{_cut(scope['method'], _LONGEST_METHOD)} {_cut(raw_path(scope), _LONGEST_PATH)}"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[:longest] + "…"


def client_address(scope: AsgiScope) -> str:
    """Return the client's address; a dual-stack socket shows IPv4 clients as ``::ffff:10.0.0.1``."""
    host: str = scope["client"][0] if scope.get("client") else "unknown"
    return host.removeprefix("::ffff:")


async def _hand_back(response: httpx2.Response, send: AsgiSend) -> None:
    headers = list(_end_to_end(response.headers.raw))
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    async for chunk in stream:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _has_body(headers: Iterable[Header]) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _end_to_end(headers: Iterable[Header]) -> list[Header]:
    """Return *headers* without hop-by-hop headers, including those named in the Connection header."""
    pairs = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower() for name, value in pairs if name == b"connection" for token in value.split(b",") if token
    }
    return [(name, value) for name, value in pairs if name not in _HOP_BY_HOP and name not in named]


def _with_client(headers: list[Header], scope: AsgiScope) -> list[Header]:
    """Return *headers* with the client's address appended to X-Forwarded-For, in one line."""
    before = [value for name, value in headers if name == b"x-forwarded-for" and value.strip()]
    rest = [(name, value) for name, value in headers if name != b"x-forwarded-for"]
    client = [client_address(scope).encode()] if scope.get("client") else []
    return [*rest, (b"x-forwarded-for", b", ".join([*before, *client]))] if before or client else rest
