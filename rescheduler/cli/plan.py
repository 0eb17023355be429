"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

import sys
from dataclasses import replace
from typing import Any

import click
import msgspec

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import ClusterSource, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.planning.outcome import Plan, Planning, Rejected, Verdict
from rescheduler.planning.overview import overview
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.prices import PriceList
from rescheduler.settings import ApiServerConnection


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
    "--budgets-at-once",
    Bool(),
    default=False,
    help="Use each PodDisruptionBudget only once in the whole plan. Without this flag, a budget that allows one "
    "eviction now counts as allowing several in sequence, as its replacement pods become Ready. The daemon "
    "counts in this way, and waits for the pods.",
)
@Option(
    "--budgets-in-steps",
    Bool(),
    default=True,
    hidden=True,
    help="The default; false is the same as --budgets-at-once.",
)
@compat_option
@policy_options
@connection_options
def command(
    snapshot: str | None,
    output: str,
    independent: bool,  # noqa: FBT001 - click passes by keyword
    budgets_at_once: bool,  # noqa: FBT001
    budgets_in_steps: bool,  # noqa: FBT001
    policy: Policy,
    connection: ApiServerConnection,
) -> None:
    """Show which on-demand nodes can be drained now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. On large clusters reading takes some time; planning does not.
    """
    clock = SystemClock()
    with progress("reading the cluster"):
        source = ClusterSource(snapshot, connection)
        cluster = source.read()
    with progress("planning"):
        planner = Planner(cluster, replace(policy, budgets_in_steps=budgets_in_steps and not budgets_at_once))
        circumstances = Circumstances(clock.now())
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(as_json(planning, seconds)) + b"\n")
    else:
        from rescheduler.cli.plan_tables import show  # noqa: PLC0415 - JSON output does not need the table library

        show(overview(planning, cluster, PriceList(), assumptions=source.assumptions(cluster)), policy)
    source.warn(cluster, policy)


def as_json(planning: Planning, seconds: float) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning only."""
    return {
        "nodes": [_node(verdict) for verdict in planning.verdicts],
        "summary": {
            "on_demand_nodes": planning.on_demand_nodes,
            "spot_nodes": planning.spot_nodes,
            "drainable_nodes": len(planning.plans),
            "pods_to_move": sum(len(plan.placements) for plan in planning.plans),
            "seconds": round(seconds, 6),
            "timed_out": planning.timed_out,
            "upper_bound": planning.upper_bound,
        },
    }


def _node(verdict: Verdict) -> dict[str, Any]:
    plan = verdict if isinstance(verdict, Plan) else None
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    landing = plan.landing if plan else None
    return {
        "node": verdict.node,
        "drainable": plan is not None,
        "placements": [{"pod": str(item.pod), "node": item.node} for item in plan.placements] if plan else [],
        "blockers": [{"pod": item.pod, "reason": item.reason, "detail": item.detail} for item in blockers],
        "robust": plan.robust if plan else None,
        "landing": {"spot": landing.spot, "on_demand": landing.on_demand} if landing else None,
    }
