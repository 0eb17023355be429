"""``rescheduler liqo discovery`` put together: the server, its sources, and the signals that end them."""

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
from rescheduler.liqo.discovery.app import Access, Updates, discovery
from rescheduler.liqo.discovery.metrics import Metrics
from rescheduler.liqo.discovery.secrets import Secrets, first_look, reflector, resource
from rescheduler.liqo.discovery.store import SECRET, Store
from rescheduler.liqo.serving import HEALTH_FLAG, Face, serving
from rescheduler.observe import logs as log_lines
from rescheduler.observe.health import Health
from rescheduler.observe.server import application
from rescheduler.observe.server import serving as serving_pages
from rescheduler.settings import Address, Connection, Logging
from rescheduler.stopping import on_signals

#: Between two looks for what has expired; an expired entry is not listed in any case.
STEP_SECONDS: Final = 10.0
_JOIN_SECONDS: Final = 5.0

log = logging.getLogger("rescheduler")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the flags say. Without a *namespace* no Secrets are read, and no cluster is connected to."""

    face: Face
    pages: Address  #: of /metrics, /healthz and /readyz, in plain text
    connection: Connection
    database: str
    namespace: str
    selector: str
    expire_after: dt.timedelta
    access: Access


def run(settings: Settings, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. Raises UsageError and ReschedulerError for a failed start."""
    log_lines.configure(logs)
    clock = SystemClock()
    settings.face.certificates()
    if settings.face.plaintext and (settings.access.readers or settings.access.updaters):
        raise UsageError("--reader and --updater: expected with mutual TLS, plain text knows no names")
    with contextlib.ExitStack() as parts:
        store = Store(settings.database)
        parts.callback(store.close)
        secrets = _watching(parts, settings, store, clock)
        registry = CollectorRegistry()
        rounds = Rounds(store, secrets, Metrics(registry), clock)
        parts.enter_context(on_signals(rounds.told))
        parts.enter_context(serving_pages(application(registry, rounds.health), settings.pages, HEALTH_FLAG))
        updates = Updates(store, clock, settings.expire_after)
        app = discovery(store, updates, settings.access, clock)
        address = parts.enter_context(serving(app, settings.face, "discovery"))
        how = "plain text" if settings.face.plaintext else "mutual TLS"
        log.log(log_lines.NOTICE, "serving the list of clusters on %s, %s", address, how)
        rounds.run()
    return 0


class Rounds:
    """Forgets what has expired, until told to end."""

    def __init__(self, store: Store, secrets: Secrets | None, metrics: Metrics, clock: Clock) -> None:
        self._store, self._secrets, self._metrics, self._clock = store, secrets, metrics, clock
        self._stop = threading.Event()
        self.health = Health(clock, STEP_SECONDS, lambda: secrets is None or secrets.read)

    def told(self, signal: str) -> None:
        log.warning("%s: ending, calls under way are answered", signal)
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
        silent = self._store.expire(now)
        for name in silent:
            log.warning("cluster %s: its agent has fallen silent, what it said is forgotten", name)
        self._metrics.expired(len(silent))
        unreadable = len(self._secrets.unreadable) if self._secrets else 0
        self._metrics.seen(len(self._store.clusters(now)), unreadable)


def _watching(parts: contextlib.ExitStack, settings: Settings, store: Store, clock: Clock) -> Secrets | None:
    if not settings.namespace:
        store.replace(SECRET, {}, clock.now())  # what was read when there was one
        return None
    client = connect(settings.connection, clock)
    described = resource(settings.namespace, settings.selector)
    first_look(client, described)
    secrets = Secrets(store, clock, settings.namespace)
    watching = reflector(client, clock, described, secrets)
    watching.start()
    parts.callback(watching.join, _JOIN_SECONDS)
    parts.callback(watching.stop)
    return secrets
