"""The plan that ``plan`` and ``report`` show: read the cluster, plan it, and try the levers."""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource
from msgspec import structs

from predicates.snapshot import Snapshot
from rescheduler.cli.cluster_source import ClusterSource, progress
from rescheduler.cli.go_flags import DurationType, Option, OptionalValue
from rescheduler.cli.options import group, plan_command, provider_options
from rescheduler.clock import Clock
from rescheduler.errors import NotFound, UsageError
from rescheduler.facts.round_facts import FactsReader, Known, RoundFacts
from rescheduler.planning.backends import backend_suggestions
from rescheduler.planning.money.commitments import idle
from rescheduler.planning.money.move_costs import PlanMoves
from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from rescheduler.planning.movements import moved_recently
from rescheduler.planning.node_pools import buying_again
from rescheduler.planning.outcome import Blocker, Planning, Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, MoveJobs, Policy, Survive
from rescheduler.planning.room.additions import Additions
from rescheduler.planning.room.purchases import Purchases, PurchaseSearch
from rescheduler.planning.rules.candidates import groups
from rescheduler.planning.rules.owners import Owners, all_pods
from rescheduler.planning.rules.pod_traits import belongs_to_node, is_job
from rescheduler.planning.unproven import unproven
from rescheduler.planning.waits import Waits
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import NO_LEVERS, Overview, RankedLevers, overview, tradeoff
from rescheduler.planning.what_if.worth_curve import worth_curve
from rescheduler.settings import ApiServerConnection, NamedInstallation, Provider

if TYPE_CHECKING:
    from rescheduler.housekeeping.command_reads import InstallationStatus
    from rescheduler.planning.memory import Memory

levers_option: Final = Option(
    "--levers-timeout",
    DurationType(),
    default="5s",
    help="Time limit for the levers: for each obstacle that keeps pods on on-demand nodes, the nodes that the plan "
    "would also free without it; and, with prices, for the plans that move fewer pods. 0: neither. They are not "
    "computed with --independent.",
)


survive_option: Final = Option(
    "--survive",
    click.Choice([value.value for value in Survive]),
    default=Survive.POOL.value,
    help="What the state after the plan is tested against: the loss of any one pool of spot nodes (zone and instance "
    "type, see --spot-pool-label), or of all spot nodes of any one zone. If the flag is given, nodes whose drains "
    "would break what holds now are left (would-not-survive). off: no test.",
)


def enforced_survival() -> Survive:
    """Return ``--survive`` of the running command if it was given; its default only informs."""
    context = click.get_current_context()
    given = context.get_parameter_source("survive") is not ParameterSource.DEFAULT
    return Survive(context.params["survive"]) if given else Survive.OFF


#: The time limit for the search for spot nodes to buy. On large clusters it tries fewer of them.
_BUYING: Final = timedelta(seconds=30)

#: A limitation of the totals of a plan with ``--independent``.
_INDEPENDENT: Final = "each node is drained alone (--independent); the pods of all nodes together may not fit"

#: A limitation of a plan that moves pods of Jobs that were not read.
_JOBS: Final = (
    "the plan moves pods of Jobs that are not known, assuming that the Jobs tolerate it; the daemon reads each Job "
    "first (job-would-fail)"
)

#: Passes ``provider: Provider`` to the command.
_PRICES_OF: Final = (
    "Cloud provider whose prices are used for nodes that --prices does not contain. none: no such prices."
)
price_provider_options: Final = provider_options(_PRICES_OF)

#: The same, for a command with a list of nodes.
price_provider_and_list_options: Final = provider_options(_PRICES_OF, lists_nodes=True)


#: The daemon that is found in the cluster.
_ANY: Final = NamedInstallation()


class FromDaemon(enum.Enum):
    """Whether a plan uses what the cluster's daemon remembers."""

    YES = "true"
    NO = "false"
    IF_THERE = "auto"


_FROM_DAEMON: Final = {"": FromDaemon.YES, "1": FromDaemon.YES, "0": FromDaemon.NO}


def _from_daemon(from_daemon: str) -> FromDaemon:
    try:
        return _FROM_DAEMON.get(from_daemon) or FromDaemon(from_daemon)
    except ValueError:
        raise UsageError(f"--from-daemon={from_daemon}: expected true, false or auto") from None


#: Passes ``from_daemon: FromDaemon`` to the command.
from_daemon_option: Final = group(
    "from_daemon",
    _from_daemon,
    (
        Option(
            "--from-daemon",
            OptionalValue(lambda text: text in ("true", "false", "auto")),
            default=FromDaemon.IF_THERE.value,
            metavar="[=true|false]",
            help="Plan with what the cluster's daemon remembers (cooldowns, owners that are set aside, pools that lost "
            "nodes), and say first if it drains nothing now: pauses, delays, owed pods, a running drain. Default: if "
            "a daemon holds a Lease.",
        ),
    ),
)


def of_the_named(named: NamedInstallation, choice: FromDaemon) -> FromDaemon:
    """Return *choice*, or YES if the command line names the daemon: a plan always covers all namespaces.

    Raises UsageError if both contradict each other.
    """
    if named == _ANY:
        return choice
    if choice is FromDaemon.NO:
        raise UsageError("--namespace, --lease-name: expected no --from-daemon=false: they name the daemon to ask")
    return FromDaemon.YES


def check_daemon(snapshot: str | None, choice: FromDaemon) -> None:
    """Raise UsageError if the *choice* is a daemon, and the cluster is a file."""
    if snapshot is not None and choice is FromDaemon.YES:
        raise UsageError("--from-daemon, --namespace: expected a live cluster, because a file has no daemon")


def daemon_of(
    connection: ApiServerConnection,
    choice: FromDaemon,
    clock: Clock,
    named: NamedInstallation = _ANY,
    snapshot: str | None = None,
) -> "InstallationStatus | None":
    """Return the state of the daemon that is *named*, or None, as for the cluster of a file.

    Raises the errors of reading it if *choice* demands it.
    """
    if choice is FromDaemon.NO or snapshot is not None:
        return None
    from rescheduler.housekeeping.command_reads import read_daemon  # noqa: PLC0415 - the client is imported on demand

    with progress("reading the state of the daemon"):
        try:
            return read_daemon(connection, clock, named, required=choice is FromDaemon.YES)
        except NotFound as error:
            if named.namespace is None:
                raise
            raise NotFound(f"{error}; --namespace is that of the daemon: a plan covers all namespaces") from error


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster and the plan for it."""

    facts: RoundFacts
    planner: Planner
    planning: Planning
    seconds: float  #: duration of planning alone
    assumptions: tuple[str, ...]
    assumed: tuple[str, ...] = ()  #: those of them that :meth:`ClusterSource.assumptions` makes
    incomplete: str = ""  #: what the snapshot file lacks; see :meth:`ClusterSource.incomplete`
    daemon: "InstallationStatus | None" = None  #: the state of the cluster's daemon, if it is known
    independent: bool = False  #: whether each node was planned by itself
    moves: Callable[[], PlanMoves] = PlanMoves

    def overview(self, prices: PriceList, levers: RankedLevers = NO_LEVERS) -> Overview:
        """Return the totals of the plan."""
        return overview(
            self.planning,
            self.facts.snapshot,
            prices,
            levers.levers,
            levers_complete=levers.complete,
            assumptions=self.assumptions,
            incomplete=self.incomplete,
            held=self.daemon.why_nothing_is_drained() if self.daemon is not None else "",
            moves=self.moves,
            now=self.facts.circumstances.now,
            policy=self.facts.policy,
            command=plan_command(),
        )

    def certified(self, overview: Overview, survive: Survive, clock: Clock, *, with_tradeoff: bool = False) -> Overview:
        """Return *overview* with the certificate of the state after the plan, or of the present state if it has none.

        The plans of --independent do not follow each other, so there is no state after them, and no trade-off.
        """
        if survive is Survive.OFF or self.incomplete:
            return overview
        plans = () if self.independent else self.planning.steps
        with progress("taking pools away"):
            began = clock.monotonic()
            certificate = self.planner.certificate(self.facts.circumstances, survive, plans)
            known = replace(overview, survival=certificate, survival_seconds=clock.monotonic() - began)
            if not with_tradeoff or self.independent:
                return known
            return replace(known, tradeoff=tradeoff(self.planner, self.facts.circumstances, known, survive))

    def with_curve(self, overview: Overview, timeout: timedelta, clock: Clock, *, whole: bool) -> Overview:
        """Return *overview* with what fewer moves would save, if prices are known, as far as it was found in time.

        Of *whole*, see the function.
        """
        if overview.prices.empty or self.incomplete or self.independent or not timeout:
            return overview
        circumstances = replace(self.facts.circumstances, prices=self._judging(overview.prices))
        with progress("planning with fewer moves"):
            until = clock.monotonic() + timeout.total_seconds()
            cluster = self.planner, overview, self.facts.snapshot, circumstances
            curve = worth_curve(*cluster, lambda: clock.monotonic() >= until, whole=whole)
        return replace(overview, curve=curve)

    def _judging(self, prices: PriceList) -> PriceList:
        """Return those of *prices* that a plan which depends on prices has: the provider's of on-demand nodes only."""
        own = {verdict.node for verdict in self.planning.verdicts}
        return replace(prices, by_node={name: price for name, price in prices.by_node.items() if name in own})

    def circumstances_with(self, prices: PriceList) -> Callable[[Snapshot, Policy], Circumstances]:
        """Return a function that returns the circumstances of a changed snapshot and policy, if *prices* are known."""
        facts, judging = self.facts, self._judging(prices)

        def circumstances(snapshot: Snapshot, policy: Policy) -> Circumstances:
            known = replace(facts.known, prices=judging) if policy.needs_prices else facts.known
            return FactsReader(policy).facts(snapshot, known, facts.now).circumstances

        return circumstances

    def priced(self, provider: Provider) -> PriceList:
        """Return the prices, with the cloud provider's for nodes that the price file does not contain.

        There are none for an incomplete file. Raises the errors of loading the provider.
        """
        if self.incomplete:
            return PriceList(currency=self.facts.circumstances.prices.currency)
        return _priced(self.facts.snapshot, self._nodes(), self.facts.circumstances.prices, provider)

    def _nodes(self) -> Iterator[NodeFacts]:
        """Yield the nodes of the plan. The totals are computed when the first node is requested."""
        yield from self.overview(self.facts.circumstances.prices).nodes.values()

    def purchases(self, prices: PriceList, survive: Survive, number: int, clock: Clock) -> Purchases:
        """Return the best *number* of purchases of spot nodes. Raises UsageError if no price of spot nodes is known."""
        if self.incomplete:
            raise UsageError(f"--buy: expected a complete snapshot: {self.incomplete}")
        if prices.empty:
            raise UsageError("--buy: expected prices of spot nodes: --prices, or --spot-price-per-vcpu")
        with progress("searching for spot nodes to buy"):
            until = clock.monotonic() + _BUYING.total_seconds()
            additions = Additions(self.facts.snapshot, self.facts.policy, self.facts.circumstances)
            search = PurchaseSearch(additions, self.planning, prices, lambda: clock.monotonic() >= until)
            return search.run(number, survive)

    def levers(self, prices: PriceList, timeout: timedelta, clock: Clock) -> RankedLevers:
        """Return the levers that were tried within *timeout*; none if it is 0, which is not complete."""
        if not timeout:
            return RankedLevers((), complete=False)
        with progress("trying levers"):
            until = clock.monotonic() + timeout.total_seconds()
            return levers_of(
                self.planning,
                self.planner,
                self.facts.snapshot,
                self.facts.policy,
                self.facts.circumstances,
                prices,
                lambda: clock.monotonic() >= until,
            )


def read_and_plan(
    source: ClusterSource,
    policy: Policy,
    prices: PriceList,
    provider: Provider,
    clock: Clock,
    *,
    independent: bool = False,
    daemon: "InstallationStatus | None" = None,
) -> PlannedCluster:
    """Read the cluster and plan all drains, each by itself if *independent*, with what the *daemon* remembers.

    Raises the errors of the source, and for the drain order ``cost`` the errors of loading the cloud provider.
    """
    with progress("reading the cluster"):
        snapshot = source.read()
    if source.creators and provider.name != "none":
        _add_templates(snapshot, policy, provider)
    if policy.needs_prices:
        nodes = [node_facts(snapshot, name, spot=False) for name in groups(snapshot, policy).on_demand]
        prices = _priced(snapshot, nodes, prices, provider)
    with progress("planning"):
        ends = provider.name != "none"
        facts = known_facts(snapshot, policy, prices, clock, daemon, ends_machines=ends)
        circumstances = facts.circumstances
        planner = Planner(snapshot, policy)
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    assumed = source.assumptions(snapshot, policy)
    notes = [
        *assumed,
        *source.of_replacements(snapshot),
        *([_INDEPENDENT] if independent else []),
        *_idle_commitments(snapshot, policy, prices, circumstances),
    ]
    drained = [plan.node for plan in planning.plans]
    notes += [*unproven(snapshot, planning.steps), *buying_again(snapshot, planning.steps)]
    gone = [*drained, *_never_removed(planning)]
    if not (ends or _ends_machines(daemon)):
        notes += backend_suggestions(snapshot, gone)
    if policy.move_jobs is MoveJobs.TOLERANT and _moves_unknown_jobs(planning, snapshot):
        notes.append(_JOBS)
    return PlannedCluster(
        facts,
        planner,
        planning,
        seconds,
        tuple(notes),
        assumed,
        source.incomplete(snapshot),
        daemon,
        independent,
        partial(planner.moves, planning, circumstances),
    )


def _never_removed(planning: Planning) -> list[str]:
    """Return the nodes that stay only because Karpenter would not remove them."""
    only = frozenset({Reason.NEVER_REMOVED})
    return [each.node for each in planning.rejected if {blocker.reason for blocker in each.blockers} == only]


def _ends_machines(daemon: "InstallationStatus | None") -> bool:
    """Return whether the *daemon* has a cloud provider that ends the machines of drained nodes."""
    return daemon is not None and daemon.memory is not None and daemon.memory.leader.ends_machines


def _idle_commitments(
    snapshot: Snapshot, policy: Policy, prices: PriceList, circumstances: Circumstances
) -> Iterator[str]:
    if prices.commitments:
        nodes = (node_facts(snapshot, name, spot=False) for name in groups(snapshot, policy).on_demand)
        kinds = {(node.instance_type, node.zone) for node in nodes}
        yield from idle(prices.commitments, kinds, circumstances.now.date())


def known_facts(
    snapshot: Snapshot,
    policy: Policy,
    prices: PriceList,
    clock: Clock,
    daemon: "InstallationStatus | None" = None,
    *,
    ends_machines: bool = False,
) -> RoundFacts:
    """Return what plans of a command know: the objects, and what the *daemon* knows.

    *ends_machines* states that a cloud provider ends the machines of drained nodes, also if no daemon says so.
    """
    now, known = clock.now(), Known(beside=True, prices=prices)
    if daemon is not None:
        known = replace(known, identity=daemon.installation.identity)
        if (memory := daemon.memory) is not None:
            checked = _moved_recently(snapshot, policy, memory, now)
            known = replace(known, memory=memory, leader=memory.leader, checked=checked)
    if ends_machines:
        known = replace(known, leader=structs.replace(known.leader, ends_machines=True))
    return FactsReader(policy).facts(snapshot, known, now)


def _moved_recently(
    snapshot: Snapshot, policy: Policy, memory: "Memory", now: datetime
) -> Mapping[str, tuple[Blocker, ...]]:
    """Return the on-demand nodes with pods of controllers that the daemon has moved so often that it waits."""
    if not memory.movements.by_uid:
        return {}
    movers = {
        node: [pod for pod in snapshot.pods_on[node].values() if not pod.cls.terminating and not belongs_to_node(pod)]
        for node in groups(snapshot, policy).on_demand
    }
    read = Owners(snapshot, policy).reading(chain.from_iterable(movers.values()))
    owned = all_pods(read.states.values(), snapshot)
    limits = Waits(moves_per_pod=memory.settings.moves_per_pod or 0)
    return moved_recently(movers, read, owned, memory.movements, now, limits)


def _moves_unknown_jobs(planning: Planning, snapshot: Snapshot) -> bool:
    known = snapshot.of("Job")
    moved = (placement for plan in planning.plans for placement in plan.moves if is_job(placement.owner))
    return any(each.owner is not None and f"{each.pod.namespace}/{each.owner.name}" not in known for each in moved)


def _add_templates(snapshot: Snapshot, policy: Policy, provider: Provider) -> None:
    """Add what the cloud provider says that it can create to what creates nodes in *snapshot*."""
    from rescheduler.housekeeping.command_reads import read_templates  # noqa: PLC0415 - providers are imported on demand

    with progress("requesting templates from the cloud provider"):
        has_spot = bool(len(groups(snapshot, policy).spot_rows))
        snapshot.upsert("AutoscalerGroups", read_templates(provider, policy.spot_label, has_spot=has_spot))


def _priced(snapshot: Snapshot, nodes: Iterable[NodeFacts], prices: PriceList, provider: Provider) -> PriceList:
    """Return *prices*, completed with the cloud provider's prices of the *nodes* that have none yet.

    Prices per vCPU and GiB are ignored for this, because the provider's prices take precedence over them.
    """
    if provider.name == "none":
        return prices
    known, table = PriceList(by_type=prices.by_type, by_node=prices.by_node), snapshot.nodes
    lacking = [table.nodes[table.row[node.name]] for node in nodes if known.per_hour(node) is None]
    if not lacking:
        return prices
    from rescheduler.housekeeping.command_reads import read_prices  # noqa: PLC0415 - providers are imported on demand

    with progress("requesting prices from the cloud provider"):
        return replace(prices, by_node={**prices.by_node, **read_prices(provider, filter(None, lacking))})
