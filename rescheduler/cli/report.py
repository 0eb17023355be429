"""``rescheduler report``: the plan as one HTML file."""

from dataclasses import replace
from datetime import timedelta

import click

from rescheduler.cli.cluster_source import ClusterSource, compat_option, snapshot_option, strict_option
from rescheduler.cli.go_flags import GoCommand
from rescheduler.cli.options import connection_options, scheduling_options
from rescheduler.cli.output import output_file_option, write_output
from rescheduler.cli.plan_data import (
    enforced_survival,
    levers_option,
    price_provider_options,
    read_and_plan,
    survive_option,
)
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.clock import SystemClock
from rescheduler.pages.report import as_html
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy, Survive
from rescheduler.settings import ApiServerConnection, Provider, Scheduling


@click.command("report", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@strict_option
@output_file_option
@survive_option
@levers_option
@compat_option
@policy_options
@price_options
@price_provider_options
@scheduling_options
@connection_options
def command(
    snapshot: str | None,
    strict: bool,  # noqa: FBT001 - click passes by keyword
    output_file: str,
    survive: str,
    levers_timeout: timedelta,
    policy: Policy,
    prices: PriceList,
    provider: Provider,
    scheduling: Scheduling,
    connection: ApiServerConnection,
) -> None:
    """Write an HTML file that shows which on-demand nodes can be freed, and what blocks the other nodes.

    The file is self-contained: it loads nothing from the network. Nothing in the cluster is changed.
    """
    policy = replace(policy, budgets_in_steps=True, judge_controllers=True, survive=enforced_survival())
    clock, policy = SystemClock(), with_profiles(policy, scheduling)
    source = ClusterSource(snapshot, connection, scheduling)
    cluster = read_and_plan(source, policy, prices, provider, clock)
    prices = cluster.priced(provider)
    overview = cluster.overview(prices, cluster.levers(prices, levers_timeout, clock))
    overview = cluster.certified(overview, Survive(survive), clock, with_tradeoff=True)
    overview = cluster.with_curve(overview, levers_timeout, clock, whole=True)
    write_output(as_html(overview, cluster.facts.circumstances.now), output_file)
    source.warn(cluster.facts.snapshot, policy, cluster.assumed, cluster.incomplete, strict=strict)
