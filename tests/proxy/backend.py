"""A backend that records requests and sends preset responses."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn

from devcluster.standin.server import listen
from rescheduler.cloudpool.proxy import run
from rescheduler.cloudpool.proxy.app import ClientTimeouts, ProxyApplication
from rescheduler.cloudpool.proxy.config import ServerSection
from rescheduler.cloudpool.proxy.forward import Forwarder
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from rescheduler.cloudpool.proxy.paths import ProxyMetrics
from rescheduler.net import server as observe
from rescheduler.net.config_files import Credentials, Endpoint
from rescheduler.net.connection import HttpConnection

Message = MutableMapping[str, Any]

#: The header of requests that change something.
JSON: Final = {"content-type": "application/json"}


@dataclass
class BackendRequest:
    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    connection: tuple[str, int]

    def all(self, name: str) -> list[str]:
        return [value.decode() for key, value in self.headers if key == name.encode()]


@dataclass
class Backend:
    """An ASGI application; `answer` is called with `send` after the request was read."""

    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    chunks: list[bytes] = field(default_factory=lambda: [b"ok"])
    broken: bool = False  #: closes the connection in the middle of the body
    silent: bool = False  #: does not respond
    forgetful: bool = False  #: closes a connection on its second request
    seen: list[BackendRequest] = field(default_factory=list)
    url: str = ""

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body", False):
                break
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        if self.forgetful and scope["client"] in [request.connection for request in self.seen]:
            send.__self__.transport.abort()  # type: ignore[attr-defined]
            self.silent = True
        self.seen.append(
            BackendRequest(scope["method"], scope["raw_path"] + query, scope["headers"], body, scope["client"])
        )
        while self.silent and (await receive())["type"] != "http.disconnect":
            pass
        if self.silent:
            self.silent = not self.forgetful
            return
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for chunk in self.chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        if self.broken:
            send.__self__.transport.abort()  # type: ignore[attr-defined]
            return
        await send({"type": "http.response.body", "body": b""})


@contextlib.contextmanager
def running(backend: Backend) -> Iterator[Backend]:
    config = uvicorn.Config(
        backend,
        http=HttpConnection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    with observe.running(config, listen(0), "backend") as port:
        backend.url = f"http://127.0.0.1:{port}"
        yield backend


class RecordedUpdates:
    """Updates that record their arguments and return the result of `does`."""

    def __init__(self, does: Callable[[], str] = lambda: "") -> None:
        self.calls: list[tuple[object, ...]] = []
        self.outside: list[str] = []  #: machines without active membership
        self._does = does

    def set_size(self, desired: int) -> str:
        self.calls.append(("size", desired))
        return self._does()

    def terminate(self, machine: str, *, decrement: bool) -> str:
        self.calls.append(("terminate", machine, decrement))
        return self._does()

    def dispose(self, machine: str) -> str:
        self.calls.append(("dispose", machine))
        return self._does()

    def detach(self, machine: str, *, decrement: bool) -> str:
        self.calls.append(("detach", machine, decrement))
        return self._does()

    def is_inactive(self, machine: str) -> bool:
        return machine in self.outside

    def reactivate(self, machine: str, *, evictable: bool) -> str:
        self.calls.append(("take back", machine, evictable))
        return self._does()


def failing(status: int, detail: str) -> Callable[[], str]:
    def fail() -> str:
        raise UpdateFailed(status, detail)

    return fail


@contextlib.contextmanager
def proxying(
    url: str,
    updates: RecordedUpdates | None = None,
    *,
    timeout: float = 60.0,
    patience: ClientTimeouts = ClientTimeouts(60.0, 60.0),  # noqa: B008 -- a value
    token: Callable[[], str] | None = None,
    metrics: ProxyMetrics | None = None,
    config: ServerSection = ServerSection(),  # noqa: B008 -- a value
    folder: Path = Path(),
    host: str = "127.0.0.1",
    **endpoint: Any,
) -> Iterator[str]:
    """Run the proxy in front of *url* and yield its URL."""
    credentials = Credentials(Endpoint(url=url, **endpoint), folder)
    forwarder = Forwarder(
        url, credentials, timeout, patience=patience.request, consumes_authorization=token is not None
    )
    proxy = ProxyApplication(updates or RecordedUpdates(), forwarder, patience, token, metrics)
    with run.serving(proxy, host, 0, config) as port:
        yield f"{'https' if config.tls else 'http'}://127.0.0.1:{port}"
