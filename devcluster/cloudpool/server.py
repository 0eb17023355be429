"""The HTTP server of the reference cloudpool, in a thread for tests or as a process."""

import base64
import ssl
from pathlib import Path
from typing import Any

from devcluster.cloudpool.app import Authenticated, Dated, admin_routes, application
from devcluster.cloudpool.pool import ReferencePool
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin import server
from devcluster.standin.faults import App
from rescheduler.clock import Clock


class CloudpoolServer(server.StandinServer[ReferencePool]):
    """A pool and its HTTP server. Paths in the settings are relative to *folder*."""

    def __init__(self, settings: CloudpoolSettings, folder: Path, clock: Clock, *, port: int = 0) -> None:
        self.pool = ReferencePool(settings, clock)
        app = application(self.pool)
        inner: App = Dated(app, clock)
        if authorization := _authorization(settings, folder):
            inner = Authenticated(inner, authorization)
        path = f"/cloudpools/{settings.multipool_name}" if settings.api == "multipool" else ""
        super().__init__(self.pool, inner, port=port, path=path, date_header=False, **_tls(settings, folder))
        if settings.admin:
            app.routes.extend(admin_routes(self.pool, self.faulty_app.inject))


def _authorization(settings: CloudpoolSettings, folder: Path) -> str | None:
    if settings.token_file:
        return f"Bearer {(folder / settings.token_file).read_text().strip()}"
    if settings.username and settings.password_file:
        password = (folder / settings.password_file).read_text().strip()
        return f"Basic {base64.b64encode(f'{settings.username}:{password}'.encode()).decode()}"
    return None


def _tls(settings: CloudpoolSettings, folder: Path) -> dict[str, Any]:
    if not settings.cert_file:
        return {}
    options: dict[str, Any] = {
        "ssl_certfile": folder / settings.cert_file,
        "ssl_keyfile": folder / (settings.key_file or settings.cert_file),
    }
    if settings.client_ca_file:
        options |= {"ssl_ca_certs": str(folder / settings.client_ca_file), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
