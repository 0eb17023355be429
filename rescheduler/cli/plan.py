"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

from dataclasses import replace
from typing import Final

import click

from rescheduler.cli.compat import compat_option
from rescheduler.cli.console import show
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.output import print_json, print_yaml
from rescheduler.cli.plan_json import as_json
from rescheduler.cli.plan_page import page
from rescheduler.cli.progress import progress
from rescheduler.cli.source import ClusterSource, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.planning.overview import overview
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.prices import PriceList
from rescheduler.settings import ApiServerConnection

#: What the sums of a plan with ``--independent`` do not account for.
_INDEPENDENT: Final = "each node is drained alone (--independent); the pods of all nodes together may not fit"


@click.command("plan", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@output_option
@Option(
    "--independent",
    Bool(),
    default=False,
    help="Evaluate each node by itself in the current state. Without this flag the drains are planned in "
    "sequence, and each one takes room from the next.",
)
@Option(
    "--budgets-in-steps",
    Bool(),
    default=False,
    help="Count a PodDisruptionBudget that allows one eviction now as allowing several in sequence, as its "
    "replacement pods become Ready. The daemon does the same, and waits for the pods. Without this flag a "
    "budget is used once in the whole plan.",
)
@compat_option
@policy_options
@connection_options
def command(
    snapshot: str | None,
    output: str,
    independent: bool,  # noqa: FBT001 - click passes by keyword
    budgets_in_steps: bool,  # noqa: FBT001
    policy: Policy,
    connection: ApiServerConnection,
) -> None:
    """Show which on-demand nodes can be drained now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. On large clusters reading takes some time; planning does not.
    """
    clock = SystemClock()
    with progress("reading the cluster"):
        cluster = ClusterSource(snapshot, connection).read()
    with progress("planning"):
        planner = Planner(cluster, replace(policy, budgets_in_steps=budgets_in_steps))
        circumstances = Circumstances(clock.now())
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    assumptions = (_INDEPENDENT,) if independent else ()
    result = overview(planning, cluster, PriceList(), assumptions=assumptions)
    match output:
        case "json":
            print_json(as_json(result, seconds))
        case "yaml":
            print_yaml(as_json(result, seconds))
        case _:
            show(page(result, cluster, policy, circumstances.now, wide=output == "wide"))
