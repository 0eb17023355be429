"""The composition root of ``rescheduler liqo discovery``: the server, its sources, and the signals that stop them."""

import contextlib
import datetime as dt
import logging
import threading
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError, UsageError
from rescheduler.kube.client import connect
from rescheduler.liqo_services.discovery.app import AgentUpdates, ClientAccess, discovery
from rescheduler.liqo_services.discovery.metrics import DiscoveryMetrics
from rescheduler.liqo_services.discovery.secrets import Secrets, first_read, reflector, resource
from rescheduler.liqo_services.discovery.store import SECRET, ClusterStore
from rescheduler.liqo_services.serving import HEALTH_FLAG, HttpsListener, serving
from rescheduler.net.server import serving as serving_pages
from rescheduler.net.stopping import on_signals
from rescheduler.observe import log_lines
from rescheduler.observe.health import Health
from rescheduler.observe.pages import application
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging

#: Seconds between two deletions of expired entries, which are no longer listed anyway.
STEP_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 5.0

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """The settings from the flags. Without a *namespace*, no Secrets are read and no cluster is accessed."""

    listener: HttpsListener
    pages: ListenAddress  #: of /metrics, /healthz and /readyz, in plain text
    connection: ApiServerConnection
    database: str
    namespace: str
    selector: str
    expire_after: dt.timedelta
    access: ClientAccess


def run(settings: DiscoverySettings, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises UsageError and ReschedulerError on a failed start."""
    log_lines.configure(logs)
    clock = SystemClock()
    settings.listener.certificates()
    if settings.listener.plaintext and (settings.access.readers or settings.access.updaters):
        raise UsageError("--reader and --updater: expected with mutual TLS; with plain text, clients have no names")
    with contextlib.ExitStack() as parts:
        store = ClusterStore(settings.database)
        parts.callback(store.close)
        secrets = _watching(parts, settings, store, clock)
        registry = CollectorRegistry()
        rounds = DiscoveryLoop(store, secrets, DiscoveryMetrics(registry), clock)
        parts.enter_context(on_signals(rounds.stop_on))
        parts.enter_context(serving_pages(application(registry, rounds.health), settings.pages, HEALTH_FLAG))
        updates = AgentUpdates(store, clock, settings.expire_after)
        app = discovery(store, updates, settings.access, clock)
        address = parts.enter_context(serving(app, settings.listener, "discovery"))
        how = "plain text" if settings.listener.plaintext else "mutual TLS"
        log.log(log_lines.NOTICE, "serving the list of clusters on %s, %s", address, how)
        rounds.run()
    return 0


class DiscoveryLoop:
    """Deletes expired entries periodically, until it is stopped."""

    def __init__(self, store: ClusterStore, secrets: Secrets | None, metrics: DiscoveryMetrics, clock: Clock) -> None:
        self._store, self._secrets, self._metrics, self._clock = store, secrets, metrics, clock
        self._stop = threading.Event()
        self.health = Health(clock, STEP_SECONDS, lambda: secrets is None or secrets.read)

    def stop_on(self, signal: str) -> None:
        log.warning("%s: stopping after the calls in progress", signal)
        self._stop.set()

    def run(self) -> None:
        while not self._stop.is_set():
            self.health.beat()
            try:
                self.step()
            except ReschedulerError as error:
                log.warning("%s", error)
            self._clock.wait(STEP_SECONDS, self._stop)

    def step(self) -> None:
        now = self._clock.now()
        expired = self._store.expire(now)
        for name in expired:
            log.warning("cluster %s: its agent did not renew its update in time; the update is deleted", name)
        self._metrics.expired(len(expired))
        unreadable = len(self._secrets.unreadable) if self._secrets else 0
        self._metrics.update(len(self._store.clusters(now)), unreadable)


def _watching(
    parts: contextlib.ExitStack, settings: DiscoverySettings, store: ClusterStore, clock: Clock
) -> Secrets | None:
    if not settings.namespace:
        store.replace(SECRET, {}, clock.now())  # delete those read by an earlier run with a namespace
        return None
    client = connect(settings.connection, clock)
    described = resource(settings.namespace, settings.selector)
    first_read(client, described)
    secrets = Secrets(store, clock, settings.namespace)
    watching = reflector(client, clock, described, secrets)
    watching.start()
    parts.callback(watching.join, _JOIN_SECONDS)
    parts.callback(watching.stop)
    return secrets
