"""The application on a port: in a thread for tests, or as the process."""

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from deploy.local.cloudpool.app import Authenticated, Dated, admin_routes, application
from deploy.local.cloudpool.faults import App, FaultyApp
from deploy.local.cloudpool.pool import Pool
from deploy.local.cloudpool.settings import Settings
from rescheduler.clock import Clock


class Server:
    """A pool and its HTTP face. Paths in the settings count from *folder*."""

    def __init__(self, settings: Settings, folder: Path, clock: Clock, *, port: int = 0) -> None:
        self.pool = Pool(settings, clock)
        app = application(self.pool)
        inner: App = Dated(app, clock)
        if authorization := _authorization(settings, folder):
            inner = Authenticated(inner, authorization)
        self.face = FaultyApp(inner)
        if settings.admin:
            app.routes.extend(admin_routes(self.pool, self.face.inject))
        self._socket = listen(port)
        path = f"/cloudpools/{settings.multipool_name}" if settings.api == "multipool" else ""
        scheme = "https" if settings.cert_file else "http"
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}{path}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self.face,
                lifespan="off",
                ws="none",
                http="h11",
                loop="asyncio",
                log_level="critical",
                date_header=False,
                timeout_graceful_shutdown=1,
                **_tls(settings, folder),
            )
        )

    def run(self) -> None:
        """Serve until a signal comes, or somebody else says so."""
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    @contextlib.contextmanager
    def running(self) -> Iterator["Server"]:
        """Serve from a thread of its own."""
        thread = threading.Thread(target=self.run, name="cloudpool")
        thread.start()
        try:
            yield self
        finally:
            self._uvicorn.should_exit = True
            thread.join()
            self.pool.close()


def listen(port: int) -> socket.socket:
    """A socket that knows its protocol: only then asyncio turns Nagle's algorithm off, which costs 40 ms an answer."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def _authorization(settings: Settings, folder: Path) -> str | None:
    if settings.token_file:
        return f"Bearer {(folder / settings.token_file).read_text().strip()}"
    if settings.username and settings.password_file:
        password = (folder / settings.password_file).read_text().strip()
        return f"Basic {base64.b64encode(f'{settings.username}:{password}'.encode()).decode()}"
    return None


def _tls(settings: Settings, folder: Path) -> dict[str, Any]:
    if not settings.cert_file:
        return {}
    options: dict[str, Any] = {
        "ssl_certfile": folder / settings.cert_file,
        "ssl_keyfile": folder / (settings.key_file or settings.cert_file),
    }
    if settings.client_ca_file:
        options |= {"ssl_ca_certs": str(folder / settings.client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
