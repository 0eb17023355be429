"""The parts of the daemon, created from its settings, and the state of its process. Separate from the
composition root, which starts and stops these parts.
"""

import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.draining.events import EvictionFailed, EvictionRefused
from rescheduler.draining.state import Limits
from rescheduler.errors import Forbidden
from rescheduler.execution.cluster_view import ClusterView, why_unusable
from rescheduler.execution.context import ClusterApi, DrainContext, querying
from rescheduler.execution.room import SpotRequests, SpotTemplates
from rescheduler.housekeeping.bookkeeping import Bookkeeping, NoBookkeeping, Pricing
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.command_reads import provider_prices
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.order_finder import KnownPrices, NodePrices, OrderFinder, OrderPrices, PriceFile
from rescheduler.housekeeping.placeholder_room import NoRoomOrders, PlaceholderWrites, RoomOrders
from rescheduler.housekeeping.provider_room import ProviderRoomOrders
from rescheduler.kube.api_server import (
    AccessRight,
    RightsReview,
    describe_missing,
    rights_of_a_dry_run,
    rights_of_the_daemon,
)
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Elector, Seat
from rescheduler.kube.lease import LeaseNotes, LeaseReader
from rescheduler.kube.memory import SAVINGS_KEY, MemoryStore
from rescheduler.kube.responses import ReadOnly
from rescheduler.kube.state import ClusterState
from rescheduler.observe.events import DrainEnded, DrainStarted, Event, InvolvedLease, Report, RoundEnded
from rescheduler.observe.pages import Health
from rescheduler.observe.status import Status
from rescheduler.planning.memory import StoredSettings
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.pauses import manual_pause
from rescheduler.planning.policy import Policy
from rescheduler.providers.base import CloudProvider
from rescheduler.settings import Running

# The state of the daemon's process: whether it is the leader, paused by a user, or stopping.

log = logging.getLogger(__name__)


class DaemonState:
    """Whether the daemon may act: it is the leader (if leader election is on) and was not told to stop."""

    def __init__(self, clock: Clock, running: Running, observer: Report = lambda _: None) -> None:
        """Create the state. *observer* receives all events, too."""
        self.elector: Elector | None = None
        self.lease_reader: LeaseReader | None = None  #: used if there is no elector
        self._clock = clock
        self._running = running
        self._stop = threading.Event()
        self._woken = threading.Event()  #: ends the wait between two rounds
        self._draining = ""  # the node whose drain runs
        self._observer = observer
        self.health: Health | None = None

    @property
    def leading(self) -> bool:
        return self.elector is None or self.elector.leading

    @property
    def lease(self) -> InvolvedLease:
        return InvolvedLease(self._running.namespace, self._running.lease_name, self._notes.uid)

    @property
    def paused(self) -> str:
        """Why a user paused drains, or ""."""
        pause = manual_pause(self._notes.annotations, self._clock.now())
        return pause.text if pause is not None else ""

    @property
    def _notes(self) -> LeaseNotes:
        source = self.elector or self.lease_reader
        return source.notes if source is not None else LeaseNotes()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def rival(self) -> str:
        return self.elector.rival if self.elector is not None else ""

    def beat(self) -> None:
        if self.health is not None:
            self.health.beat()

    def pause(self, seconds: float) -> None:
        if not self.stopping:
            self._clock.wait(seconds, self._woken)
            self._woken.clear()

    def wake(self) -> None:
        """End the wait between two rounds."""
        self._woken.set()

    def stop(self) -> None:
        self._stop.set()
        self.wake()

    def on_stop_signal(self, signal: str) -> None:
        drain = f"rolling back the drain of node {self._draining}, then exiting" if self._draining else "exiting"
        log.warning("%s: %s", signal, drain)
        self.stop()

    def observe(self, event: Event) -> None:
        """Record which node is being drained (a listener)."""
        self._observer(event)
        if isinstance(event, DrainStarted):
            self._draining = event.node.name
        elif isinstance(event, DrainEnded | RoundEnded):
            self._draining = ""


# The parts of the daemon, created from its settings.

#: How long a drain waits for its machine to terminate before the next drain may start; longer with ``--once``.
REMOVAL_SECONDS: Final = 30.0
ONCE_REMOVAL_SECONDS: Final = 600.0


def new_history(
    writer: Client, report: Report, run_state: DaemonState, policy: Policy, running: Running, clock: Clock
) -> DrainHistory:
    """Return the history of drains, which is stored in a ConfigMap. With an elector, the Lease records its creation."""
    lease = running.lease_name if run_state.elector is not None else ""
    store = MemoryStore(writer, running.namespace, running.memory_name, lease)
    settings = StoredSettings(
        running.timing.node_drain_delay.total_seconds(),
        running.timing.landing_timeout.total_seconds(),
        tuple(window.text for window in policy.drain_windows),
        running.timing.max_moves_per_pod_per_day,
    )
    return DrainHistory(
        store, running.timing, clock, report, lambda: run_state.leading, dry_run=running.dry_run, settings=settings
    )


def new_bookkeeping(
    writer: Client,
    view: ClusterView,
    pricing: Pricing,
    report: Report,
    run_state: DaemonState,
    running: Running,
    clock: Clock,
) -> NoBookkeeping:
    """Return the ledger of savings, which is stored in a separate ConfigMap. A dry run has none."""
    if running.dry_run:
        return NoBookkeeping()
    store = MemoryStore(writer, running.namespace, running.savings_name, key=SAVINGS_KEY)
    return Bookkeeping(store, view, pricing, clock, report, lambda: run_state.leading)


def new_pricing(prices: PriceList, provider: CloudProvider, running: Running, clock: Clock) -> Pricing:
    """Return the user's prices. A dry run does not request prices from the provider."""
    return Pricing(prices) if running.dry_run else Pricing(prices, partial(provider_prices, provider, clock=clock))


def current_prices(pricing: Pricing, status: Status) -> Callable[[], PriceList]:
    """Return a function that returns the prices of the status page, after it has read a changed price file."""
    file = PriceFile(Path(pricing.prices.file)) if pricing.prices.file else None

    def prices() -> PriceList:
        listed = file.changed() if file is not None else None
        if listed is not None and listed != pricing.prices.by_type:
            pricing.prices = replace(pricing.prices, by_type=listed)
            status.list_prices(listed)
        return status.board.prices

    return prices


def new_price_refresh(policy: Policy, view: ClusterView, prices: KnownPrices) -> Callable[[], None]:
    """Return a function that refreshes the prices for the drain order, ``--min-worth`` and the choice of leftovers."""
    if not policy.needs_prices and not prices.has_commitments:
        return lambda: None
    return OrderPrices(view, prices).refresh


def new_room(
    access: DrainContext,
    view: ClusterView,
    history: DrainHistory,
    candidates: Candidates,
    running: Running,
    prices: KnownPrices,
    report: Report,
) -> NoRoomOrders:
    """Return the orders of spot room. If orders are disabled, they only clean up after earlier orders."""
    if running.dry_run:
        return NoRoomOrders()
    settings, clock = running.room, access.clock
    assert access.placeholders is not None
    writes = PlaceholderWrites(access.placeholders, view, settings, running.identity, clock, report)
    templates = SpotTemplates(access, view)
    finder = OrderFinder(view, templates, prices, candidates, history, clock)
    orders = RoomOrders(writes, view, history, finder, settings, clock, report)
    if access.provider.name == "none":
        return orders
    requests = SpotRequests(access, view, templates)
    return ProviderRoomOrders(orders, requests, view, history, finder, settings, clock, report)


def new_node_prices(
    parts: contextlib.ExitStack,
    node: Callable[[str], Node | None],
    pricing: Pricing,
    status: Status,
    run_state: DaemonState,
    running: Running,
    clock: Clock,
) -> list[Report]:
    """Return the listener that completes the prices of the status page. *node* finds a node of the round by its name.

    A dry run sends no requests to the provider.
    """
    if running.dry_run or running.once or running.provider.name == "none":
        return []

    queries = parts.enter_context(querying(clock))
    return [NodePrices(pricing, node, queries, clock, lambda: run_state.stopping, status.show_prices)]


def new_lease_reader(client: Client, run_state: DaemonState, running: Running, clock: Clock) -> LeaseReader:
    """Return the reader of the Lease for a daemon without an elector: the Lease may contain a pause of drains."""
    run_state.lease_reader = LeaseReader(client, clock, running.namespace, running.lease_name)
    return run_state.lease_reader


def new_health(
    state: ClusterState, rights: RightsReview, elector: Elector | None, running: Running, clock: Clock
) -> Health:
    """Return the health checks. The daemon is ready while the cluster can be read and no right or Lease is missing."""
    return Health(
        clock,
        running.timing.housekeeping_interval.total_seconds(),
        lambda: state.synced and not rights.missing and not lease_missing(elector),
        lambda: describe_missing(rights.missing) or lease_missing(elector) or why_unusable(state),
    )


def lease_unread(run_state: DaemonState) -> str:
    """Return why it is unknown whether drains are paused, or "". With an elector, it is always known."""
    return run_state.lease_reader.unread if run_state.lease_reader is not None else ""


def lease_missing(elector: Elector | None) -> str:
    """Return which command creates a Lease that is missing and that this account may not create, or ""."""
    return elector.missing if elector is not None else ""


def is_refused(state: ClusterState, elector: Elector | None) -> bool:
    """Return whether reading a kind or holding the Lease is forbidden."""
    refused = any(isinstance(error, Forbidden) for error in state.errors.values())
    return refused or (elector is not None and elector.forbidden)


def needed_rights(running: Running) -> tuple[AccessRight, ...]:
    """Return the rights that the daemon needs with these settings."""
    predicting = (AccessRight("create", "pods"),) if running.predict == "dry-run" else ()
    if running.dry_run:
        return (*rights_of_a_dry_run(), *predicting)
    lease = running.lease_name if running.leader_elect else ""
    removes = running.provider.name != "none"
    names = (running.memory_name, lease)
    rights = rights_of_the_daemon(running.namespace, *names, removes_nodes=removes, savings=running.savings_name)
    return (*rights, *predicting)


def new_elector(client: Client, holder: str, seat: Seat, running: Running, clock: Clock, pace: float) -> Elector | None:
    """Return the elector, or None for a dry run and without leader election. *pace* is that of its times."""
    if running.dry_run or not running.leader_elect:
        return None
    return Elector(client, clock, running.namespace, running.lease_name, holder, seat.is_dead, pace=pace)


def new_writer(client: Client, elector: Elector | None, running: Running) -> Client:
    """Return the client for all writes except those to the Lease."""
    if running.dry_run:
        return client.guarded(ReadOnly())
    return client if elector is None else client.guarded(elector)


def refused_eviction(cluster: ClusterApi, running: Running, pod: PodRef) -> str:
    """Evict *pod* in a dry run. Return why the eviction is refused, or "" if it is not, or if that is not known."""
    outcome = cluster.evict(pod.namespace, pod.name, pod.uid, dry_run=True)
    match outcome:
        case EvictionRefused(why=why):
            return why
        case EvictionFailed(why=why, retryable=False, migrating=migrating):
            return "" if migrating and running.migrating_webhooks == "wait" else why
        case _:
            return ""


def drain_limits(running: Running, policy: Policy) -> Limits:
    """Return the timeouts of a drain. With ``--once``, a drain waits longer for the machine: no later round follows."""
    timing = running.timing
    return Limits(
        removal=ONCE_REMOVAL_SECONDS if running.once else REMOVAL_SECONDS,
        eviction=timing.pod_eviction_timeout.total_seconds(),
        grace=policy.max_graceful_termination,
        landing=timing.landing_timeout.total_seconds(),
        migrations=running.migrating_webhooks == "wait",
        requests=policy.eviction_requests,
    )


def exclude_from_collection() -> None:
    """Exclude all existing objects from garbage collection, which would pause all threads for hundreds of milliseconds.

    Call it once the cluster has been read: most of these objects are long-lived, and hardly any are in cycles.
    """
    gc.collect()
    gc.freeze()
