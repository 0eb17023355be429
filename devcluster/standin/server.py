"""An HTTP server for an application, in a thread for tests or as a process."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

import click
import uvicorn

from devcluster.standin.faults import App, FaultyApp


class ClosableCloud(Protocol):
    """The state behind the application."""

    def close(self) -> None: ...


class NodeSynchronizer(Protocol):
    """A controller that synchronizes a cluster's Nodes with the state in a background thread."""

    def start(self) -> None: ...

    def close(self) -> None: ...


C = TypeVar("C", bound=ClosableCloud)


class _AbortingServer(uvicorn.Server):
    """A server that stops at once, and closes the connections whose requests have not ended in time.

    uvicorn leaves these open. In a thread, they would be reported as unclosed when they are garbage collected. It also
    looks only ten times a second whether it should stop: hundreds of tests would wait for that.
    """

    _GLANCE = 0.005  #: seconds between two looks at what is left

    async def main_loop(self) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), 0.1)

    def stop(self) -> None:
        """Stop the server, which runs in another thread."""
        self.should_exit = True
        if hasattr(self, "_stopped"):
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._stopped.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for closable in (*self.servers, *(sockets or ())):
            closable.close()
        state, looks = self.server_state, int((self.config.timeout_graceful_shutdown or 0) / self._GLANCE)
        for connection in list(state.connections):
            connection.shutdown()
        while (state.connections or state.tasks) and (looks := looks - 1) > 0 and not self.force_exit:  # noqa: ASYNC110 - uvicorn has no event
            await asyncio.sleep(self._GLANCE)
        for task in state.tasks:
            task.cancel()
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)  # the loop closes the sockets of aborted transports in its next cycle


class StandinServer(Generic[C]):
    """An HTTP server for a cloud's API below *path*, with fault injection. *options* are passed to uvicorn."""

    def __init__(self, cloud: C, app: App, *, port: int = 0, path: str = "", **options: Any) -> None:
        self.cloud = cloud
        self.faulty_app = FaultyApp(app)
        self._socket = listen(port)
        scheme = "https" if "ssl_certfile" in options else "http"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}{path}"
        self._uvicorn = _AbortingServer(
            uvicorn.Config(
                self.faulty_app,
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
        """Serve until a signal arrives or `running` ends."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    @contextlib.contextmanager
    def running(self) -> Iterator[Self]:
        """Serve in a background thread."""
        thread = threading.Thread(target=self.run, name="stand-in")
        thread.start()
        try:
            yield self
        finally:
            self._uvicorn.stop()
            thread.join()
            self.cloud.close()


def listen(port: int) -> socket.socket:
    """Return a listening socket. asyncio disables Nagle's algorithm, which costs 40 ms, only if the protocol is set."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def serve(server: StandinServer[C], nodes: Callable[[], NodeSynchronizer] | None) -> None:
    """Print the URL, then serve and synchronize Nodes until a signal arrives."""
    controller = nodes() if nodes else None
    click.echo(server.url)
    sys.stdout.flush()
    # uvicorn stops at a signal and then raises it again for the previous handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if controller:
        controller.start()
    try:
        server.run()
    finally:
        if controller:
            controller.close()
        server.cloud.close()
