"""An application on a port of this machine: in a thread for tests, or as a process."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import click
import uvicorn

from deploy.local.cloudpool.faults import App, FaultyApp
from deploy.local.cloudpool.server import listen
from deploy.local.standin.nodes import Nodes


class Cloud(Protocol):
    """The state behind the application."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Cloud)


class Server(Generic[C]):
    """A cloud's API below *path*, with faults to inject before it."""

    def __init__(self, cloud: C, app: App, *, port: int = 0, path: str = "") -> None:
        self.cloud = cloud
        self.face = FaultyApp(app)
        self._socket = listen(port)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}{path}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self.face,
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                log_level="critical",
                timeout_graceful_shutdown=1,
            )
        )

    def run(self) -> None:
        """Serve until a signal comes, or somebody else says so."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    @contextlib.contextmanager
    def running(self) -> Iterator["Server[C]"]:
        """Serve from a thread of its own."""
        thread = threading.Thread(target=self.run, name="stand-in")
        thread.start()
        try:
            yield self
        finally:
            self._uvicorn.should_exit = True
            thread.join()
            self.cloud.close()


def serve(server: Server[C], nodes: Callable[[], Nodes] | None) -> None:
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
