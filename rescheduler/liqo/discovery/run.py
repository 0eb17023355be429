"""The composition root of ``rescheduler liqo discovery``: the server, its sources, and the signals that stop
them. It is imported when the command is called.
"""

import contextlib
import datetime as dt
import logging
import re
import threading
from dataclasses import dataclass
from typing import Final, cast

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge

from predicates.objects import ObjectMeta
from rescheduler import decoding
from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import ReschedulerError, Retryable, UsageError
from rescheduler.kube.client import Client, connect
from rescheduler.kube.codec import WatchedChange
from rescheduler.kube.lister import Listing, Resource, StructCodec
from rescheduler.kube.reflector import Reflector
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.discovery.app import SECRET, AgentUpdates, ClientAccess, ClusterStore, DatedDescription, discovery
from rescheduler.liqo.discovery.messages import Description, Info
from rescheduler.liqo.serving import HEALTH_FLAG, HttpsListener, serving
from rescheduler.net.server import on_signals
from rescheduler.net.server import serving as serving_pages
from rescheduler.observe.events import NOTICE
from rescheduler.observe.logs import configure
from rescheduler.observe.pages import Health, application
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PageHosts

# Discovery's metrics for Prometheus.


class DiscoveryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._clusters = Gauge("spot_rescheduler_liqo_clusters", "Clusters that discovery lists.", registry=registry)
        self._unreadable = Gauge(
            "spot_rescheduler_liqo_unreadable_secrets", "Secrets that describe no cluster.", registry=registry
        )
        self._expired = Counter(
            "spot_rescheduler_liqo_expired_total",
            "Cluster registrations that expired without renewal.",
            registry=registry,
        )

    def update(self, clusters: int, unreadable: int) -> None:
        self._clusters.set(clusters)
        self._unreadable.set(unreadable)

    def expired(self, count: int) -> None:
        self._expired.inc(count)


# Secrets as a source: each one describes the cluster with the same name for as long as it exists.
#
# The Secret has the keys of Liqo's cluster autoscaler: ``info``, in JSON, and ``kubeconfig``.

KIND: Final = "Secret"

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

#: The syntax of label selectors (k8s.io/apimachinery/pkg/labels): requirements separated by commas.
_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = rf"({_PART}(\.{_PART})*/)?{_NAME}"
_VALUE: Final = rf"\s*+({_NAME})?\s*+"
_SOME: Final = rf"\s*(=|==|!=){_VALUE}|\s*[<>]\s*[0-9]{{1,18}}|\s+(in|notin)\s*\({_VALUE}(,{_VALUE})*\)"
_REQUIREMENT: Final = rf"\s*+(!\s*+{_KEY}|{_KEY}({_SOME})?)\s*+"
_SELECTOR: Final = re.compile(rf"\s*|{_REQUIREMENT}(,{_REQUIREMENT})*")

secrets_log = logging.getLogger(__name__)


class Secret(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    data: dict[str, bytes] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.name})"


class Secrets:
    """A reflector's sink that keeps the store up to date with the Secrets."""

    def __init__(self, store: ClusterStore, clock: Clock, namespace: str) -> None:
        self._store, self._clock, self._namespace = store, clock, namespace
        self._failing = False
        self.unreadable: dict[str, str] = {}  #: names of invalid Secrets, and why they are invalid
        self.read = False  #: whether all Secrets have been listed

    def listed(self, kind: str, listing: Listing) -> None:
        self.unreadable = {}
        descriptions: dict[str, DatedDescription] = {}
        for secret in cast("list[Secret]", listing.objects):
            if description := self._dated_description(secret):
                descriptions[secret.metadata.name] = description
        for key, unreadable in listing.unreadable.items():
            self._refuse(key.rpartition("/")[2], unreadable.why)
        self._store.replace(SECRET, descriptions, self._clock.now())
        self.read = True
        secrets_log.info("%d clusters, each a %s of namespace %s", len(descriptions), kind, self._namespace)

    def changed(self, kind: str, change: WatchedChange) -> None:
        name = change.key.rpartition("/")[2]
        self.unreadable.pop(name, None)
        if change.unreadable is not None:
            self._refuse(name, change.unreadable.why)
        description = self._dated_description(cast("Secret", change.object)) if change.object is not None else None
        descriptions, gone = ({name: description}, ()) if description else ({}, (name,))
        if self._store.change(SECRET, descriptions, gone, self._clock.now()) and change.type == "DELETED":
            secrets_log.info("cluster %s: its %s is gone", name, kind)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        if error is not None:
            secrets_log.warning("%ss of namespace %s: %s", kind, self._namespace, error)
        elif self._failing:
            secrets_log.warning("%ss of namespace %s are read again", kind, self._namespace)
        self._failing = error is not None

    def _dated_description(self, secret: Secret) -> DatedDescription | None:
        """Return the Secret's description; log a warning and return `None` if it is invalid."""
        try:
            return DatedDescription(description_of(secret))
        except UsageError as error:
            self._refuse(secret.metadata.name, str(error))
        return None

    def _refuse(self, name: str, why: str) -> None:
        self.unreadable[name] = why
        secrets_log.warning("Secret %s/%s is ignored: %s", self._namespace, name, why)


def description_of(secret: Secret) -> Description:
    """Decode a Secret. Raises UsageError that names the key and the expected value."""
    messages.cluster_id(secret.metadata.name)
    data = secret.data or {}
    if "info" not in data:
        raise UsageError("info: expected JSON with resources, labels and hasNat under this key")
    try:
        info = decoding.decode(data["info"], Info)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"info: {error}") from error
    try:
        kubeconfig = data.get("kubeconfig", b"").decode()
    except UnicodeDecodeError:
        raise UsageError("kubeconfig: expected UTF-8") from None
    return Description(
        kubeconfig=messages.kubeconfig(kubeconfig) if kubeconfig else None,
        resources=messages.quantities(info.resources, "info.resources"),
        labels=messages.labels(info.labels),
        has_nat=info.has_nat,
        price=None if info.price is None else messages.price(info.price),
        free=None if info.free is None else messages.quantities(info.free, "info.free"),
    )


def resource(namespace: str, selector: str) -> Resource:
    """Return the API resource of the Secrets in *namespace* that match *selector*. Raises UsageError."""
    if not _NAMESPACE.fullmatch(namespace):
        raise UsageError(f"--namespace {namespace!r}: expected the name of a namespace")
    if not _SELECTOR.fullmatch(selector):
        expected = "expected a label selector as for kubectl, such as autoscaling=true or country in (it, fr)"
        raise UsageError(f"--secret-selector {selector!r}: {expected}")
    return Resource(KIND, f"/api/v1/namespaces/{namespace}/secrets", selector=selector)


def first_read(client: Client, resource: Resource) -> None:
    """List the resource once. Raise permanent errors, such as missing permissions; log temporary ones."""
    try:
        client.request(f"list {resource.plural}", "GET", resource.path, query={"limit": "1"} | resource.query)
    except Retryable as error:
        secrets_log.warning("%s", error)


def reflector(client: Client, clock: Clock, resource: Resource, sink: Secrets) -> Reflector:
    """Return a reflector that keeps *sink* up to date with *resource*."""
    return Reflector(resource, client, StructCodec(KIND, Secret), sink, clock)


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
    allowed_hosts: tuple[str, ...] = ()  #: by which the pages may be addressed


def run(settings: DiscoverySettings, logs: Logging) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code. Raises UsageError and ReschedulerError on a failed start."""
    configure(logs)
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
        hosts = PageHosts(settings.allowed_hosts)
        parts.enter_context(serving_pages(application(registry, rounds.health), settings.pages, HEALTH_FLAG, hosts))
        updates = AgentUpdates(store, clock, settings.expire_after)
        app = discovery(store, updates, settings.access, clock)
        address = parts.enter_context(serving(app, settings.listener, "discovery"))
        how = "plain text" if settings.listener.plaintext else "mutual TLS"
        log.log(NOTICE, "serving the list of clusters on %s, %s", address, how)
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
