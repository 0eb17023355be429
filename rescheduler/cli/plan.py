"""``rescheduler plan``: which on-demand nodes can be emptied now, and what stands in the way of the others."""

import sys
from dataclasses import replace
from typing import Any

import click
import msgspec

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import Source, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.planning.outcome import Plan, Planning, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.settings import Connection


@click.command("plan", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@output_option
@Option(
    "--independent",
    Bool(),
    default=False,
    help="Judge every node by itself on today's state. Without it nodes are emptied one after the other, and what "
    "one takes is gone for the next.",
)
@Option(
    "--budgets-in-steps",
    Bool(),
    default=False,
    help="Count a PodDisruptionBudget that allows one eviction now as allowing several, one after the other, as each "
    "evicted pod comes up again: so the daemon does, which waits for that. Without it a budget is spent once in the "
    "whole plan.",
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
    connection: Connection,
) -> None:
    """Show which on-demand nodes can be emptied now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. Reading takes a moment on large clusters; planning does not.
    """
    clock = SystemClock()
    with progress("reading the cluster"):
        cluster = Source(snapshot, connection).read()
    with progress("planning"):
        planner = Planner(cluster, replace(policy, budgets_in_steps=budgets_in_steps))
        circumstances = Circumstances(clock.now())
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(as_json(planning, seconds)) + b"\n")
    else:
        from rescheduler.cli.plan_tables import show  # noqa: PLC0415 - programs do not wait for what draws tables

        show(planning, policy)


def as_json(planning: Planning, seconds: float) -> dict[str, Any]:
    """The object that ``-o json`` prints; *seconds* is the planning alone."""
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
        "placements": [{"pod": str(one.pod), "node": one.node} for one in plan.placements] if plan else [],
        "blockers": [{"pod": one.pod, "reason": one.reason, "detail": one.detail} for one in blockers],
        "robust": plan.robust if plan else None,
        "landing": {"spot": landing.spot, "on_demand": landing.on_demand} if landing else None,
    }
