"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

from dataclasses import replace
from datetime import timedelta

import click

from rescheduler.cli.cluster_source import ClusterSource, output_option, snapshot_option
from rescheduler.cli.compat import compat_option
from rescheduler.cli.console import show, warn
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, scheduling_options
from rescheduler.cli.output import print_html, print_json, print_yaml
from rescheduler.cli.plan_data import PlannedCluster, levers_option, price_provider_options, read_and_plan
from rescheduler.cli.plan_json import as_json
from rescheduler.cli.plan_page import page
from rescheduler.cli.policy_options import policy_options
from rescheduler.cli.prices import price_options
from rescheduler.cli.progress import progress
from rescheduler.cli.scheduler_config import with_profiles
from rescheduler.cli.what_if import parsed, unknown_schedulers, what_if_json, what_if_option
from rescheduler.cli.what_if_page import comparison
from rescheduler.clock import Clock, SystemClock
from rescheduler.errors import UsageError
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.comparison import Hypothesis, HypotheticalPlan, what_if
from rescheduler.planning.what_if.overview import Overview
from rescheduler.settings import ApiServerConnection, Provider, Scheduling


@click.command("plan", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@output_option
@Option(
    "--independent",
    Bool(),
    default=False,
    help="Evaluate each node by itself in the current state. Without this flag, the drains are planned in "
    "sequence, and each one leaves less room for the next.",
)
@Option(
    "--budgets-at-once",
    Bool(),
    default=False,
    help="Use each PodDisruptionBudget only once in the whole plan. Without this flag, a budget that allows one "
    "eviction now counts as allowing several in sequence, as the replacement pods become Ready. The daemon "
    "does so, and waits for the pods.",
)
@Option(
    "--budgets-in-steps",
    Bool(),
    default=True,
    hidden=True,
    help="The opposite of --budgets-at-once, and the default.",
)
@levers_option
@what_if_option
@compat_option
@policy_options
@price_options
@price_provider_options
@scheduling_options
@connection_options
def command(
    snapshot: str | None,
    output: str,
    independent: bool,  # noqa: FBT001 - click passes by keyword
    budgets_at_once: bool,  # noqa: FBT001
    budgets_in_steps: bool,  # noqa: FBT001
    levers_timeout: timedelta,
    what_if_texts: tuple[str, ...],
    policy: Policy,
    prices: PriceList,
    provider: Provider,
    scheduling: Scheduling,
    connection: ApiServerConnection,
) -> None:
    """Show which on-demand nodes can be drained now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. On large clusters reading takes some time; planning does not.
    """
    clock = SystemClock()
    policy = replace(policy, budgets_in_steps=budgets_in_steps and not budgets_at_once)
    if independent and what_if_texts:
        raise UsageError("--what-if compares plans of all nodes in sequence: expected no --independent")
    policy = with_profiles(policy, scheduling)
    hypotheses = parsed(what_if_texts, policy, scheduling)
    source = ClusterSource(snapshot, connection, scheduling)
    cluster = read_and_plan(source, policy, prices, provider, clock, independent=independent)
    prices = cluster.priced(provider)
    levers = cluster.levers(prices, timedelta() if independent or hypotheses else levers_timeout, clock)
    overview = cluster.overview(prices, levers)
    if hypotheses:
        _show_comparison(cluster, overview, what_if_texts, hypotheses, output, clock)
    else:
        _show_plan(cluster, overview, output)
    source.warn(cluster.snapshot, policy)
    for assumption in unknown_schedulers(what_if_texts):
        warn(f"warning: {assumption}")


def _show_plan(cluster: PlannedCluster, overview: Overview, output: str) -> None:
    now = cluster.circumstances.now
    match output:
        case "json":
            print_json(as_json(overview, cluster.seconds))
        case "yaml":
            print_yaml(as_json(overview, cluster.seconds))
        case "html":
            print_html(overview, now)
        case _:
            show(page(overview, cluster.snapshot, cluster.policy, now, wide=output == "wide"))


def _show_comparison(
    cluster: PlannedCluster,
    before: Overview,
    changes: tuple[str, ...],
    hypotheses: list[Hypothesis],
    output: str,
    clock: Clock,
) -> None:
    if output == "html":
        raise UsageError("--what-if: expected -o table, wide, json or yaml")
    began = clock.monotonic()
    with progress("planning with the changes"):
        outcome: HypotheticalPlan = what_if(cluster.snapshot, cluster.policy, cluster.circumstances, hypotheses)
    seconds = clock.monotonic() - began
    after = replace(cluster, snapshot=outcome.snapshot, planning=outcome.planning, seconds=seconds)
    if output in ("json", "yaml"):
        result = as_json(before, cluster.seconds)
        summaries = result["summary"], as_json(after.overview(before.prices), seconds)["summary"]
        result["what_if"] = what_if_json(changes, cluster.planning, outcome, summaries)
        (print_json if output == "json" else print_yaml)(result)
    else:
        show(comparison(changes, before, after.overview(before.prices), outcome.lost, outcome.rehearsal))
