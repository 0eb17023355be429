"""One-time reads for commands: the cluster, prices of a cloud provider, the ledger, and the state of an
installation.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

from predicates.objects import AutoscalerGroup, AutoscalerGroups, Node, ObjectMeta
from predicates.snapshot import Snapshot
from rescheduler import providers
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.draining import actions
from rescheduler.errors import Forbidden, InputError, ReschedulerError, UsageError
from rescheduler.execution import machine_orders
from rescheduler.execution.room import templates
from rescheduler.housekeeping.synced_memory import MEMORY
from rescheduler.kube import consistent_reads
from rescheduler.kube import state as kube_state
from rescheduler.kube.api_server import server_version
from rescheduler.kube.client import Client, connect
from rescheduler.kube.installations import InstallationFinder, config_map_of, dry_runs, holder
from rescheduler.kube.lease import LeaseObject, LeaseStore
from rescheduler.kube.lister import RESOURCES, TEMPLATES
from rescheduler.kube.memory import MEMORY_KEY, Absent, MemoryStore, Stored, UnreadableMemory
from rescheduler.kube.state import read_cluster as state_read_cluster
from rescheduler.kube.unwatched import PodGroups
from rescheduler.observe.events import Waiting
from rescheduler.planning.debts import OpenDebt
from rescheduler.planning.forms import stamp, utc
from rescheduler.planning.memory import Memory, StoredSettings
from rescheduler.planning.money.savings import SavingsLedger
from rescheduler.planning.money.savings_form import load_ledger
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.pauses import ManualPause, closed_until, manual_pause, parse_window
from rescheduler.planning.waits import Cooldown
from rescheduler.providers.base import CloudProvider, GroupFlags, NotSupported
from rescheduler.settings import MEMORY_NAME, ApiServerConnection, NamedInstallation, Provider, Scheduling

# Prices of nodes from the cloud provider.

#: Timeout in seconds for the prices of all nodes together. They are read right before a drain.
PRICE_SECONDS: Final = 10.0

_HOUR: Final = timedelta(hours=1)

#: Prices of at least this amount are implausible and are ignored.
_MAX_PRICE: Final = 1e9


def provider_prices(provider: CloudProvider, nodes: Iterable[Node], clock: Clock) -> dict[str, Decimal]:
    """Return the hourly prices of *nodes* from *provider*, by node name. Nodes without a known price are left out.

    Nodes that are not queried within PRICE_SECONDS are left out as well.
    """
    deadline, prices = clock.monotonic() + PRICE_SECONDS, {}
    for node in nodes:
        now = clock.now()
        try:
            price = provider.node_price(machine_orders.ref(node), now, now + _HOUR, deadline=deadline)
        except NotSupported:
            break
        except ReschedulerError:
            if clock.monotonic() >= deadline:
                break
            continue
        if math.isfinite(price) and 0 <= price < _MAX_PRICE:
            prices[node.name] = Decimal(repr(float(price)))
    return prices


#: Where the permissions of the commands that only read are shipped.
VIEWER: Final = "deploy/components/viewer has the permissions (in the chart: rbac.viewer)"


def read_cluster(
    connection: ApiServerConnection, scheduling: Scheduling, warn: Callable[[str], None], *, creators: bool = False
) -> Snapshot:
    """Read the cluster once, with what creates nodes if *creators* is set.

    *warn* receives the assumption that is made if a permission is missing.
    """
    clock = SystemClock()
    client = connect(connection, clock)
    with naming_the_role():
        return _read_cluster(client, clock, scheduling, warn, creators=creators)


@contextlib.contextmanager
def naming_the_role() -> Iterator[None]:
    """Add to a Forbidden which role permits what the commands read."""
    try:
        yield
    except Forbidden as error:
        raise Forbidden(f"{error}; {VIEWER}") from error


def _read_cluster(
    client: Client, clock: Clock, scheduling: Scheduling, warn: Callable[[str], None], *, creators: bool
) -> Snapshot:
    version = server_version(client)
    if (assumption := scheduling.assumption(version)) is not None:
        warn(assumption)
    snapshot = kube_state.read_cluster(client, clock, warn=warn, scheduler=scheduling.scheduler(version))
    forbidden: list[str] = []
    for resource in TEMPLATES:
        unread = partial(lambda plural, _: forbidden.append(plural), resource.plural)
        kube_state.read_cluster(client, clock, resources=(resource,), warn=unread, into=snapshot)
    PodGroups(client, clock, warn, creators=creators).refresh(snapshot)
    if forbidden:
        warn(
            f"{', '.join(forbidden)} may not be listed; planning assumes that replacement pods are like the running "
            f"pods, and that no quota rejects them; {VIEWER}"
        )
    return snapshot


def dump_cluster(connection: ApiServerConnection, warn: Callable[[str], None]) -> list[bytes]:
    """Return the objects of the cluster as JSON; see :func:`rescheduler.kube.consistent_reads.items`.

    The last one is not an object of the cluster, but contains the version of the API server.
    """
    clock = SystemClock()
    client = connect(connection, clock)
    with naming_the_role():
        return [*consistent_reads.items(client, clock, warn), consistent_reads.version_item(server_version(client))]


def read_prices(settings: Provider, nodes: Iterable[Node]) -> Mapping[str, Decimal]:
    """Return the hourly prices that the cloud provider has for *nodes*, by node name."""
    clock = SteadyClock(SystemClock())
    provider = load_provider(settings, clock)
    try:
        return provider_prices(provider, nodes, clock)
    finally:
        provider.close()


def read_templates(settings: Provider, spot_label: NodeLabels, *, has_spot: bool) -> AutoscalerGroups:
    """Return the groups of the cloud provider that create spot nodes of which none shows what they are like."""
    clock = SteadyClock(SystemClock())
    provider, deadline = load_provider(settings, clock), clock.monotonic() + PRICE_SECONDS
    try:
        return provider_groups(provider, spot_label, deadline=deadline, has_spot=has_spot)
    finally:
        provider.close()


def provider_groups(
    provider: CloudProvider, spot_label: NodeLabels, *, deadline: float, has_spot: bool
) -> AutoscalerGroups:
    """Return the groups with templates; none if the provider has no templates or does not respond."""
    try:
        found = list(templates(provider, spot_label, deadline=deadline, has_spot=has_spot))
    except ReschedulerError:
        found = []
    groups = (AutoscalerGroup(group.id, size, maximum=group.max_size, template=node) for group, size, node in found)
    return AutoscalerGroups(ObjectMeta(name="cloud-provider"), tuple(groups))


def load_provider(settings: Provider, clock: Clock) -> CloudProvider:
    """Return the cloud provider that *settings* name. Raises the errors of :func:`rescheduler.providers.load`."""
    flags = GroupFlags(settings.nodes, settings.cluster_name)
    return providers.load(settings.name, settings.config, clock, flags)


# Read the ledger of savings that a daemon keeps.


def stored_ledger(store: MemoryStore) -> SavingsLedger:
    """Return the ledger in *store*. Raises Retryable, and InputError if the ledger is missing or unreadable."""
    match store.read():
        case Stored(content):
            try:
                return load_ledger(content)
            except InputError as error:
                raise InputError(f"{store}: {error}") from error
        case Absent(version):
            advice = "the daemon writes it after its first drain; see --namespace and --savings-name"
            raise InputError(f"{store}: {'empty' if version else 'not found'}: {advice}")
        case UnreadableMemory(why):
            raise InputError(why)


# The state of an installation as stored in the cluster: its Lease, its memory and its marks on nodes.


@dataclass(frozen=True, slots=True)
class Installation:
    """Where an installation stores its state."""

    namespace: str
    lease_name: str
    memory_name: str
    node_drain_delay: timedelta | None = None  #: None: the one that the daemon has stored
    landing_timeout: timedelta | None = None  #: likewise

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.lease_name}"


@dataclass(frozen=True, slots=True)
class InstallationStatus:
    """The state of an installation at one moment."""

    at: datetime
    installation: Installation
    lease: LeaseObject | None = None  #: None if it does not exist
    memory: Memory | None = None  #: None if it does not exist or cannot be read
    memory_trouble: str = ""  #: why the memory cannot be read, or ""
    drains: Mapping[str, actions.Intent | None] | None = None  #: by node; None: the mark cannot be read
    dry_runs: tuple[str, ...] = ()  #: running pods of daemons that are dry runs

    @property
    def leader(self) -> str:
        """The holder of the Lease, or ""."""
        return (self.lease.spec.holder_identity or "") if self.lease is not None else ""

    @property
    def pause(self) -> ManualPause | None:
        return manual_pause(self.lease.annotations, self.at) if self.lease is not None else None

    def waiting(self) -> tuple[Waiting, str] | None:
        """Return why no drain may start, with a message, or None. Only reasons in the stored state are known."""
        if self.pause is not None:
            return Waiting.PAUSED, self.pause.text
        if self.memory_trouble:
            return Waiting.MEMORY_UNREADABLE, self.memory_trouble
        if self.memory is None:
            return None
        held = _waiting(self.memory, self.installation, self.at)
        return held if held is not None else _outside_windows(self.memory.settings, self.at)

    def why_nothing_is_drained(self) -> str:
        """Return a sentence about why no drain starts now, or which one runs; "" if neither is known."""
        if self.drains:
            node, mark = min(self.drains.items())
            return f"node {node} is being drained{f' ({mark.step} since {utc(mark.since)})' if mark else ''}"
        if self.dry_runs:
            return f"the daemon is a dry run (pod {self.dry_runs[0]})"
        waiting = self.waiting()
        return "" if waiting is None else f"{waiting[0]}: {waiting[1]}"

    def _settings(self) -> dict[str, Any]:
        """Return the flags of the daemon, each None if neither the daemon has stored it nor the user gives it."""
        stored, place = self.memory.settings if self.memory is not None else StoredSettings(), self.installation
        delay = _known(place.node_drain_delay, stored.node_drain_delay)
        landing = _known(place.landing_timeout, stored.landing_timeout)
        return {
            "nodeDrainDelaySeconds": None if delay is None else delay.total_seconds(),
            "landingTimeoutSeconds": None if landing is None else landing.total_seconds(),
            "drainWindows": list(stored.drain_windows),
        }

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values. Times are in UTC."""
        memory, waiting, pause = self.memory or Memory(), self.waiting(), self.pause
        return {
            "at": stamp(self.at),
            "installation": self.installation.identity,
            "leader": self.leader or None,
            "dryRuns": list(self.dry_runs),
            "leaseRenewed": self.lease.spec.renew_time if self.lease is not None else None,
            "paused": None
            if pause is None
            else {"until": stamp(pause.until), "reason": pause.reason or None, "unreadable": pause.unreadable or None},
            "waiting": None if waiting is None else {"reason": waiting[0].value, "detail": waiting[1]},
            "draining": [_drain(node, mark) for node, mark in sorted((self.drains or {}).items())],
            "coolingDown": [
                _cooldown(node, cooldown) for node, cooldown in sorted(memory.cooldowns.active(self.at).items())
            ],
            "owed": [_owed(owed) for owed in memory.debts],
            "notRecovered": [
                {"name": name, "until": stamp(wait.until), "failures": wait.failures}
                for name, wait in sorted(memory.not_recovered.active(self.at).items())
            ],
            "spotPools": [pool.as_json() for pool in memory.pools.states({}, {}, self.at)],
            "lastDrain": stamp(memory.drained_at),
            "lastDrainNode": memory.drained_node or None,
            "settings": self._settings(),
        }


_ONLY_NODES: Final = tuple(resource for resource in RESOURCES if resource.kind == "Node")


def read_nodes(connection: ApiServerConnection) -> list[Node]:
    """Read the nodes of the cluster, and nothing else. Raises the errors of the API server."""
    clock = SystemClock()
    return list(state_read_cluster(connect(connection, clock), clock, resources=_ONLY_NODES).nodes)


def read_daemon(
    connection: ApiServerConnection, clock: Clock, named: NamedInstallation, *, required: bool
) -> InstallationStatus | None:
    """Return the state of the daemon that is *named* and holds a Lease of the cluster, or None if none does.

    Only if a daemon is *required*, the errors of searching and reading it are raised.
    """
    try:
        finder = InstallationFinder(connect(connection, clock), clock.now(), lambda namespace, _: namespace)
        lease = finder.find(named, lambda lease: bool(dry_runs(finder.client, lease.metadata.namespace)))
        memory = config_map_of(finder.client, lease, None, MEMORY_NAME, MEMORY_KEY)
        place = Installation(lease.metadata.namespace, lease.metadata.name, memory.name)
        return read_status(finder.client, clock, place)
    except ReschedulerError:
        if required:
            raise
        return None


def read_status(client: Client, clock: Clock, installation: Installation) -> InstallationStatus:
    """Read the state of *installation*. Raises ReschedulerError if a request fails."""
    lease = LeaseStore(client, installation.namespace, installation.lease_name).read()
    memory, trouble = _memory(MemoryStore(client, installation.namespace, installation.memory_name))
    nodes = state_read_cluster(client, clock, resources=_ONLY_NODES).nodes
    marks, now = _marks(nodes, installation.identity), clock.now()
    led = lease is not None and holder(lease, now)
    dry = () if led else tuple(dry_runs(client, installation.namespace))
    return InstallationStatus(now, installation, lease, memory, trouble, marks, dry)


def _memory(store: MemoryStore) -> tuple[Memory | None, str]:
    match store.read():
        case Stored(content=content):
            try:
                return MEMORY.loaded(store, content), ""
            except InputError as error:
                return None, str(error)
        case UnreadableMemory(why):
            return None, why
        case _:
            return None, ""


def _marks(nodes: Iterable[Node], identity: str) -> dict[str, actions.Intent | None]:
    """Return the marks on *nodes* that may belong to the installation *identity*, by node."""
    marked = {node.name: actions.read(node) for node in nodes if actions.is_marked(node)}
    return {name: mark for name, mark in marked.items() if mark is None or mark.identity in ("", identity)}


def _outside_windows(settings: StoredSettings, now: datetime) -> tuple[Waiting, str] | None:
    """Return why the drain windows of the daemon keep it waiting, or None."""
    try:
        closed = closed_until([parse_window(text) for text in settings.drain_windows], now)
    except UsageError:  # of a newer version
        return None
    return (Waiting.OUTSIDE_DRAIN_WINDOW, closed) if closed else None


def _known(given: timedelta | None, stored: float | None) -> timedelta | None:
    """Return what the user gives, otherwise what the daemon has stored."""
    return given if given is not None or stored is None else timedelta(seconds=stored)


def _waiting(memory: Memory, installation: Installation, now: datetime) -> tuple[Waiting, str] | None:
    delay = _known(installation.node_drain_delay, memory.settings.node_drain_delay)
    landing = _known(installation.landing_timeout, memory.settings.landing_timeout)
    young = [owed for owed in memory.debts if landing is None or now < owed.since + landing]
    if young:
        owed = ", ".join(sorted({str(owed.debt.controller) for owed in young}))
        unknown = "; how long they delay drains is not known" if landing is None else ""
        return Waiting.LANDING_PENDING, f"replacement pods are owed to {owed}{unknown}"
    if memory.drained_at is not None and delay is not None and now < memory.drained_at + delay:
        return Waiting.DRAIN_DELAY, f"the drain delay runs until {stamp(memory.drained_at + delay)}"
    if (until := memory.returned.active(now)) is not None:
        return Waiting.RETURNED_PODS, f"evicted pods returned to on-demand nodes; drains wait until {stamp(until)}"
    return None


def _drain(node: str, mark: actions.Intent | None) -> dict[str, Any]:
    if mark is None:
        return {"node": node, "step": None, "since": None, "holder": None}
    return {"node": node, "step": mark.step.value, "since": stamp(mark.since), "holder": mark.holder}


def _cooldown(node: str, cooldown: Cooldown) -> dict[str, Any]:
    return {
        "node": node,
        "until": stamp(cooldown.until),
        "failures": cooldown.failures,
        "reason": cooldown.reason or "cooling-down",
        "detail": cooldown.detail,
    }


def _owed(owed: OpenDebt) -> dict[str, Any]:
    return {
        "controller": str(owed.debt.controller),
        "pods": owed.debt.bound,
        "ready": owed.debt.ready,
        "node": owed.node,
        "since": stamp(owed.since),
    }
