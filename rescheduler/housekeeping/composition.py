"""The composition root: create the parts of the daemon, start them, and stop them. It is imported when the
command is called.
"""

import contextlib
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry

from predicates.objects import Node
from rescheduler import VERSION
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.draining.state import Limits
from rescheduler.errors import ConfigError, ReschedulerError, UsageError
from rescheduler.execution.cluster_view import ClusterView, ViewSources
from rescheduler.execution.context import DrainContext, recording
from rescheduler.execution.context import running as running_threads
from rescheduler.execution.drainer import Drainer
from rescheduler.execution.landings import Landings
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.execution.room import GroupSizes
from rescheduler.facts.round_facts import Known
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.command_reads import load_provider
from rescheduler.housekeeping.daemon_parts import (
    DaemonState,
    current_prices,
    drain_limits,
    exclude_from_collection,
    is_refused,
    lease_missing,
    lease_unread,
    needed_rights,
    new_bookkeeping,
    new_elector,
    new_health,
    new_history,
    new_lease_reader,
    new_node_prices,
    new_price_refresh,
    new_pricing,
    new_room,
    new_writer,
    refused_eviction,
)
from rescheduler.housekeeping.drain_history import DrainHistory, DrainRecords
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.housekeeping.node_writes import NewNodes, SoftTaint
from rescheduler.housekeeping.order_finder import KnownPrices
from rescheduler.housekeeping.round_plans import Actors, Knowledge, Mode
from rescheduler.kube.api_server import RightsReview, SchedulerWatch
from rescheduler.kube.client import Client, connect
from rescheduler.kube.cluster import KubeCluster, NodeConditions, PlaceholderPods
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.deployments import Deployments, SurgeableDeployments
from rescheduler.kube.elector import Elector, PoolLease, Seat
from rescheduler.kube.eviction_requests import EvictionRequests
from rescheduler.kube.lease import LeaseReader
from rescheduler.kube.recorder import Recorder
from rescheduler.kube.reflector import WATCH_SECONDS
from rescheduler.kube.state import ClusterState
from rescheduler.kube.unwatched import PodGroups, read_quotas, read_templates
from rescheduler.net.server import on_signals, serving
from rescheduler.observe.events import Report, Started, tee
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.logs import Logs, configure
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import Health, ServedPages, application
from rescheduler.observe.prepared_pages import PreparedPages
from rescheduler.observe.status import Status
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_info import is_on_demand
from rescheduler.planning.policy import LeaderFacts, Policy
from rescheduler.planning.rules.interruptions import SpotWatch
from rescheduler.providers.base import CloudProvider
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PageHosts, PoolLeaseName, Running, Timing


class Host:
    """What a process gets from its machine: the clock, places in the election, and ports. A simulation has its own."""

    def __init__(self) -> None:
        self.clock: Clock = SystemClock()
        self.pace = 1.0  #: by which the times of the election, of watches and of rests are multiplied
        self.is_read = True  #: whether anybody may read the metrics, the logs and the status page

    def seat(self, lease: str) -> Seat:
        return Seat(lease)

    def recorder(self, client: Client, clock: Clock, component: str) -> Recorder:
        return Recorder(client, clock, component)

    def serve(
        self, pages: ServedPages, address: ListenAddress, hosts: PageHosts
    ) -> contextlib.AbstractContextManager[object]:
        """Serve *pages* for *hosts* during the block. The block gets the address, with the actual port."""
        return serving(pages, address, hosts=hosts)


#: How long ``--once`` waits for the caches to sync and for the Lease.
ONCE_PATIENCE: Final = timedelta(minutes=2)


def run(connection: ApiServerConnection, policy: Policy, running: Running, logs: Logging, prices: PriceList) -> int:
    """Run the daemon and return its exit code. Raises UsageError or ReschedulerError if it cannot start."""
    configure(logs)
    host = Host()
    clock = host.clock
    run_state = DaemonState(clock, running)
    with contextlib.ExitStack() as parts:
        parts.enter_context(on_signals(run_state.on_stop_signal))
        provider = load_provider(running.provider, SteadyClock(clock))
        parts.callback(provider.close)
        policy = daemon_policy(policy, running.timing)
        client = connect(connection, clock)
        loop = assemble(parts, client, provider, run_state, policy, prices, running, host)
        if not running.once:
            loop.run(after_first=exclude_from_collection)
            return 0
        outcome = loop.once(ONCE_PATIENCE)
        if outcome is RoundOutcome.UNFIT:
            raise ReschedulerError(_why_gave_up(run_state, running))
        return 1 if outcome in (RoundOutcome.FAILED, RoundOutcome.BROKEN) else 0


def _why_gave_up(run_state: DaemonState, running: Running) -> str:
    """Return why ``--once`` could not complete a round."""
    if run_state.stopping:
        return "stopped before the round could start"
    if run_state.leading:
        return f"gave up: the cluster could not be read within {ONCE_PATIENCE}"
    rival = run_state.elector.rival if run_state.elector is not None else ""
    why = f": another replica leads: {rival}" if rival else ""
    return f"gave up: lease {running.identity} was not acquired within {ONCE_PATIENCE}{why}"


def assemble(
    parts: contextlib.ExitStack,
    client: Client,
    provider: CloudProvider,
    run_state: DaemonState,
    policy: Policy,
    prices: PriceList,
    running: Running,
    host: Host,
) -> Loop:
    """Create and start all parts. *parts* stops them in reverse order.

    The Lease is released after the last write, including the drain's requests and its Events.
    """
    clock = host.clock
    holder = _candidacy(parts, client, run_state, running, host)
    elector = run_state.elector
    scheduler = SchedulerWatch(client, clock, running.scheduling).current
    state = ClusterState(client, clock, scheduler=scheduler, watch_seconds=WATCH_SECONDS * host.pace)
    rights = RightsReview(client, clock, needed_rights(running), lambda: is_refused(state, elector))
    run_state.health = new_health(state, rights, elector, running, clock)
    metrics, status, pages, address = _serve(parts, provider, prices, run_state.health, running, host)
    _start(parts, state, elector or new_lease_reader(client, run_state, running, clock))
    writer = new_writer(client, elector, running)
    pricing = new_pricing(prices, provider, running, clock)

    def node(name: str) -> Node | None:
        return view.facts.node(name)  # the view reports to the listeners, so it is created after them

    node_prices = new_node_prices(parts, node, pricing, status, run_state, running, clock)
    written = _events(parts, writer, run_state, running, host)
    report = tee(run_state.observe, Logs(), metrics, status, *node_prices, *written, pages)
    report(Started(VERSION, holder, address, running.dry_run))
    history = new_history(writer, report, run_state, policy, running, clock)
    access = _drain_context(client, writer, provider, run_state, running, clock, holder)
    view = _view(state, client, access, policy, history, running)
    records = DrainRecords(history, view, clock, report, returns_pause=not policy.allow_returning_plans)
    drainer = _drainer(parts, access, view, run_state, drain_limits(running, policy), report, records)
    provider.use_cluster(MachineObjects(_machines_client(provider, writer, run_state, running, clock)))
    _share_pool(parts, provider, client, running, host)
    candidates = _candidates(view, access, history, drainer, client, policy, running)
    known = KnownPrices(pricing, clock)
    room = new_room(access, view, history, candidates, running, known, report)
    actors = Actors(drainer, _soft_taint(access, policy, running, report), NewNodes(access, report), records, room)
    knowledge = Knowledge(
        history,
        candidates,
        Landings(
            view,
            access.controllers,
            history,
            report,
            clock,
            running.timing.landing_timeout,
            access.cluster.node_leases,
        ),
        SpotWatch(running.timing.spot_settle, policy.spot_pool_labels),
        lambda: rights.why() or lease_missing(elector) or lease_unread(run_state),
        new_bookkeeping(writer, view, pricing, report, run_state, running, clock),
        new_price_refresh(policy, view, known),
        current_prices(pricing, status),
        pages.are_read,
    )
    return Loop(view, actors, knowledge, run_state, _mode(policy, running, host), clock, report)


def _candidacy(
    parts: contextlib.ExitStack, client: Client, run_state: DaemonState, running: Running, host: Host
) -> str:
    """Let this replica take part in the leader election. Return the name by which others know it."""
    seat = parts.enter_context(contextlib.closing(host.seat(f"{client.host}/{running.identity}")))
    holder = seat.identity(running.pod_name)
    run_state.elector = new_elector(client, holder, seat, running, host.clock, host.pace)
    if run_state.elector is not None:
        run_state.elector.changed = run_state.wake
    return holder


def _candidates(
    view: ClusterView,
    access: DrainContext,
    history: DrainHistory,
    drainer: Drainer,
    client: Client,
    policy: Policy,
    running: Running,
) -> Candidates:
    """Create the checks of candidates. A dry run asks neither the provider nor the eviction API."""
    refusal = None if running.dry_run else drainer.refusal
    tries = None if running.dry_run else partial(refused_eviction, access.cluster, running)
    # The creation of pods in dry runs changes nothing, so it needs no leadership.
    reads = partial(read_templates, client, dry_run=running.predict == "dry-run"), partial(read_quotas, client)
    return Candidates(view, access.controllers, history, policy, access.clock, refusal, tries, *reads)


def _view(
    state: ClusterState,
    client: Client,
    access: DrainContext,
    policy: Policy,
    history: DrainHistory,
    running: Running,
) -> ClusterView:
    """Create the view of the cluster, with what the history says about nodes, owners and namespaces.

    It asks the provider how far the groups of its nodes can grow, if *policy* counts on new nodes.
    """
    clock, has_provider = access.clock, access.provider.name != "none"
    sources = ViewSources(
        memory=lambda: history.memory,
        unwatched=(PodGroups(client, clock).refresh, SurgeableDeployments(client, clock, policy.surge).refresh),
        plan_command=running.plan_command,
    )
    if policy.fallback_nodes_per_minute and not running.dry_run and has_provider:
        sources = replace(sources, growth=GroupSizes(access).of_samples)
    leader = LeaderFacts(own=running.node_name, ends_machines=has_provider)
    known = Known(holder=access.holder, identity=running.identity, leader=leader)
    return ClusterView(state, policy, clock, known, sources)


def _serve(
    parts: contextlib.ExitStack,
    provider: CloudProvider,
    prices: PriceList,
    health: Health,
    running: Running,
    host: Host,
) -> tuple[Metrics, Status, PreparedPages, str]:
    """Serve metrics, status page and health checks. Return the listeners that feed the pages, and the address."""
    registry, status = CollectorRegistry(), Status(prices)
    metrics = Metrics(registry, provider.name, prices.currency)  # before the first scrape
    pages = PreparedPages(registry, status, host.clock)
    hosts = PageHosts(running.allowed_hosts, running.namespace)
    address = parts.enter_context(host.serve(application(registry, health, status, pages), running.listen, hosts))
    return metrics, status, pages, str(address)


def _machines_client(
    provider: CloudProvider, writer: Client, run_state: DaemonState, running: Running, clock: Clock
) -> Client:
    """Return the client of the API server at which the machines are objects; its writes are guarded like all others."""
    if provider.kubeconfig is None:
        return writer
    try:
        client = connect(ApiServerConnection(provider.kubeconfig), clock)
    except UsageError as error:
        raise ConfigError(f"--cloud-config: kubeconfig: {error}") from error
    return new_writer(client, run_state.elector, running)


def _share_pool(
    parts: contextlib.ExitStack, provider: CloudProvider, client: Client, running: Running, host: Host
) -> None:
    """Let the provider order machines only while it holds the Lease of their pool."""
    if running.dry_run or running.provider.name == "none":
        return
    name = PoolLeaseName(running.namespace, running.pool_lease)
    lease = PoolLease(client, host.clock, name, running.pod_name, host.seat)
    provider.take_turns(parts.enter_context(contextlib.closing(lease)))


def _drain_context(
    client: Client,
    writer: Client,
    provider: CloudProvider,
    run_state: DaemonState,
    running: Running,
    clock: Clock,
    holder: str,
) -> DrainContext:
    return DrainContext(
        KubeCluster(writer),
        provider,
        clock,
        holder,
        ControllerReader(client, clock),
        running.identity,
        leads=lambda: run_state.leading,
        placeholders=PlaceholderPods(writer),
        requests=EvictionRequests(writer, running.identity),
        rollouts=Deployments(writer),
        conditions=NodeConditions(writer, running.identity),
        report_conditions=running.report_node_conditions,
    )


def _drainer(
    parts: contextlib.ExitStack,
    access: DrainContext,
    view: ClusterView,
    run_state: DaemonState,
    limits: Limits,
    report: Report,
    records: DrainRecords,
) -> Drainer:
    threads = parts.enter_context(running_threads(access.clock))
    return Drainer(access, view, run_state, threads, limits, report, records)


def _soft_taint(access: DrainContext, policy: Policy, running: Running, report: Report) -> SoftTaint:
    on_demand = partial(is_on_demand, policy=policy)
    return SoftTaint(access.cluster, report, on_demand, wanted=running.manage_soft_taint)


def _mode(policy: Policy, running: Running, host: Host) -> Mode:
    least, windows = policy.min_on_demand_nodes, policy.drain_windows
    return Mode(running.timing, running.dry_run, least, windows, host.pace, surveys=host.is_read)


def _start(parts: contextlib.ExitStack, state: ClusterState, lease: Elector | LeaseReader) -> None:
    """Start reading the cluster, and acquiring or reading the Lease."""
    state.start()
    parts.callback(state.stop)
    lease.start()
    parts.callback(lease.stop)


def _events(
    parts: contextlib.ExitStack, writer: Client, run_state: DaemonState, running: Running, host: Host
) -> list[Report]:
    if running.dry_run:
        return []
    record = parts.enter_context(recording(writer, host.clock, new_recorder=host.recorder))
    return [KubeEvents(record, lease=lambda: run_state.lease)]


def daemon_policy(policy: Policy, timing: Timing) -> Policy:
    """Return *policy* for the daemon, which retries rejected evictions for as long as *timing* allows."""
    return policy.of_drains(timing.pod_eviction_timeout.total_seconds())
