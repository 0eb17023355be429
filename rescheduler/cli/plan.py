"""``rescheduler plan``: which on-demand nodes can be emptied now, and what stands in the way of the others."""

import sys
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.table import Table

from rescheduler.cli.console import table_console
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import Source, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.planning.outcome import Blocker, Plan, Planning, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.settings import Connection

_PODS_SHOWN: Final = 3


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


def show(planning: Planning, policy: Policy) -> None:
    """Print tables: how many nodes could go, what blocks the rest, then node by node."""
    console = table_console()
    _show_summary(console, planning, policy)
    if planning.rejected:
        console.print(_reasons(planning.rejected))
    if planning.verdicts:
        console.print(_nodes(planning))


def _show_summary(console: Console, planning: Planning, policy: Policy) -> None:
    pods = sum(len(plan.placements) for plan in planning.plans)
    console.print(
        f"[bold]{len(planning.plans)} of {planning.on_demand_nodes} on-demand nodes can be emptied[/bold]: "
        f"{pods} pods move to {planning.spot_nodes} spot nodes."
    )
    if planning.timed_out:
        console.print(f"The search ended with its time; at most {planning.upper_bound} nodes could be emptied.")
    if not planning.on_demand_nodes:
        console.print(f"No node carries the label {policy.on_demand_label} (--on-demand-node-label).")
    if not planning.spot_nodes:
        console.print(f"No node carries the label {policy.spot_label} (--spot-node-label).")


def _reasons(rejected: tuple[Rejected, ...]) -> Table:
    """What blocks, most nodes first. A node with several reasons counts for each."""
    nodes = Counter(reason for one in rejected for reason in {blocker.reason for blocker in one.blockers})
    example: dict[str, Blocker] = {}
    for blocker in (blocker for one in rejected for blocker in one.blockers):
        example.setdefault(blocker.reason, blocker)
    table = Table(title="What blocks the others", title_justify="left")
    table.add_column("nodes", justify="right")
    table.add_column("reason", no_wrap=True)
    table.add_column("for example")
    for reason, count in sorted(nodes.items(), key=lambda pair: (-pair[1], pair[0])):
        table.add_row(str(count), reason, _line(example[reason]))
    return table


def _nodes(planning: Planning) -> Table:
    table = Table(title="Node by node, in drain order", title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("pods to move, or what blocks")
    for verdict in planning.verdicts:
        if isinstance(verdict, Plan):
            table.add_row(verdict.node, _verdict(verdict), _moves(verdict))
        else:
            lines = [_line(one) for one in verdict.blockers[:_PODS_SHOWN]]
            more = len(verdict.blockers) - len(lines)
            table.add_row(verdict.node, "stays", "\n".join([*lines, *([f"and {more} more"] if more else [])]))
    return table


def _verdict(plan: Plan) -> str:
    return {True: "drainable, robust", False: "drainable, fragile", None: "drainable"}[plan.robust]


def _moves(plan: Plan) -> str:
    if not plan.placements:
        return "nothing to move"
    shown = [f"{one.pod} → {one.node}" for one in plan.placements[:_PODS_SHOWN]]
    more = len(plan.placements) - len(shown)
    return "\n".join([*shown, *([f"and {more} more"] if more else [])])


def _line(blocker: Blocker) -> str:
    return f"{blocker.pod}: {blocker.detail}" if blocker.pod else blocker.detail
