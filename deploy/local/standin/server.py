"""An application on a port of this machine: in a thread for tests, or as a process."""

import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

import click
import uvicorn

from deploy.local.cloudpool.faults import App, FaultyApp


class Cloud(Protocol):
    """The state behind the application."""

    def close(self) -> None: ...


class Keeper(Protocol):
    """Keeps a cluster's Nodes in step with the state, from a thread of its own."""

    def start(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=Cloud)


class Server(Generic[C]):
    """A cloud's API below *path*, with faults to inject before it. *options* are uvicorn's."""

    def __init__(self, cloud: C, app: App, *, port: int = 0, path: str = "", **options: Any) -> None:
        self.cloud = cloud
        self.face = FaultyApp(app)
        self._socket = listen(port)
        scheme = "https" if "ssl_certfile" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}{path}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self.face,
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=1,
                **options,
            )
        )

    def run(self) -> None:
        """Serve until a signal comes, or somebody else says so."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Serve from a thread of its own."""
        thread = threading.Thread(target=self.run, name="stand-in")
        thread.start()
        try:
            yield self
        finally:
            self._uvicorn.should_exit = True
            thread.join()
            self.cloud.close()


def listen(port: int) -> socket.socket:
    """A socket that knows its protocol: only then asyncio turns Nagle's algorithm off, which costs 40 ms an answer."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def serve(server: Server[C], nodes: Callable[[], Keeper] | None) -> None:
    """The process: the URL on standard output, then answers, and Nodes kept in step, until a signal comes."""
    keeper = nodes() if nodes else None
    click.echo(server.url)
    sys.stdout.flush()
    # uvicorn stops at a signal and then raises it again, for whoever handled it before.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if keeper:
        keeper.start()
    try:
        server.run()
    finally:
        if keeper:
            keeper.close()
        server.cloud.close()
