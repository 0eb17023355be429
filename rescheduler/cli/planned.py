"""The plan that ``plan`` and ``report`` show: read the cluster, plan it, and try the levers."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.cli.go_flags import DurationType, Option
from rescheduler.cli.options import provider_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import ClusterSource
from rescheduler.clock import Clock
from rescheduler.planning.candidates import groups
from rescheduler.planning.levers import NO_LEVERS, RankedLevers, rank_levers
from rescheduler.planning.outcome import Planning
from rescheduler.planning.overview import Overview, overview
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, DrainOrder, Policy
from rescheduler.planning.prices import PriceList
from rescheduler.settings import Provider

levers_option: Final = Option(
    "--levers-timeout",
    DurationType(),
    default="5s",
    help="Time limit for the levers: for each thing that keeps pods on on-demand nodes, what the plan would free "
    "without it. 0: no levers. They are not computed with --independent.",
)


#: The limitation of the sums of a plan with ``--independent``.
_INDEPENDENT: Final = "each node is drained alone (--independent); the pods of all nodes together may not fit"


#: Passes ``provider: Provider`` to the command.
price_provider_options: Final = provider_options(
    "Cloud provider whose prices are shown for nodes that --prices does not contain. none: no such prices."
)


@dataclass(frozen=True, slots=True)
class PlannedCluster:
    """A cluster and its plan."""

    snapshot: Snapshot
    policy: Policy
    circumstances: Circumstances
    planner: Planner
    planning: Planning
    seconds: float  #: duration of the planning alone
    assumptions: tuple[str, ...]

    def overview(self, prices: PriceList, levers: RankedLevers = NO_LEVERS) -> Overview:
        """Return the sums of the plan."""
        return overview(
            self.planning,
            self.snapshot,
            prices,
            levers.levers,
            levers_complete=levers.complete,
            assumptions=self.assumptions,
        )

    def priced(self, provider: Provider) -> PriceList:
        """Return the prices with those that the cloud provider knows. Raises the errors of loading it."""
        planned = [verdict.node for verdict in self.planning.verdicts]
        targets = {placement.node for plan in self.planning.plans for placement in plan.placements}
        return _priced(self.snapshot, (*planned, *sorted(targets)), self.circumstances.prices, provider)

    def levers(self, prices: PriceList, timeout: timedelta, clock: Clock) -> RankedLevers:
        """Return the levers that were tried within *timeout*. With a timeout of 0 there are none."""
        if not timeout:
            return NO_LEVERS
        with progress("trying levers"):
            until = clock.monotonic() + timeout.total_seconds()
            return rank_levers(
                self.planning,
                self.snapshot,
                self.planner.filters,
                self.policy,
                self.circumstances,
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
) -> PlannedCluster:
    """Read the cluster and plan all drains, each by itself if *independent*.

    Raises the errors of the source, and for the drain order ``cost`` those of loading the cloud provider.
    """
    with progress("reading the cluster"):
        snapshot = source.read()
    if policy.drain_order is DrainOrder.COST:
        prices = _priced(snapshot, groups(snapshot, policy).on_demand, prices, provider)
    with progress("planning"):
        planner, circumstances = Planner(snapshot, policy), Circumstances(clock.now(), prices=prices)
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    assumptions = (*source.assumptions(snapshot), *((_INDEPENDENT,) if independent else ()))
    return PlannedCluster(snapshot, policy, circumstances, planner, planning, seconds, assumptions)


def _priced(snapshot: Snapshot, names: Iterable[str], prices: PriceList, provider: Provider) -> PriceList:
    """Return *prices* with those that the cloud provider knows for the nodes *names*. No node is asked for twice."""
    table = snapshot.nodes
    nodes = [table.nodes[table.row[name]] for name in names if name not in prices.by_node]
    if provider.name == "none" or not nodes:
        return prices
    from rescheduler.housekeeping.composition import read_prices  # noqa: PLC0415 - providers are imported on demand

    with progress("asking the cloud provider for prices"):
        return replace(prices, by_node={**prices.by_node, **read_prices(provider, filter(None, nodes))})
