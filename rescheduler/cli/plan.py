"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

import sys
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import click
import msgspec

from rescheduler.cli.compat import compat_option
from rescheduler.cli.go_flags import Bool, DurationType, GoCommand, Option
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import ClusterSource, output_option, snapshot_option
from rescheduler.cli.what_if import parsed, what_if_json, what_if_option
from rescheduler.clock import SystemClock
from rescheduler.errors import UsageError
from rescheduler.planning.levers import NO_LEVERS, RankedLevers, rank_levers
from rescheduler.planning.outcome import Plan, Planning, Rejected, Verdict
from rescheduler.planning.overview import overview
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.prices import PriceList
from rescheduler.planning.what_if import what_if
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
    "--budgets-in-steps",
    Bool(),
    default=False,
    help="Count a PodDisruptionBudget that allows one eviction now as allowing several in sequence, as its "
    "replacement pods become Ready. The daemon does the same, and waits for the pods. Without this flag a "
    "budget is used once in the whole plan.",
)
@Option(
    "--levers-timeout",
    DurationType(),
    default="5s",
    help="Time limit for the levers: for each thing that keeps pods on on-demand nodes, what the plan would free "
    "without it. 0: no levers. They are not computed with --independent.",
)
@what_if_option
@compat_option
@policy_options
@connection_options
def command(
    snapshot: str | None,
    output: str,
    independent: bool,  # noqa: FBT001 - click passes by keyword
    budgets_in_steps: bool,  # noqa: FBT001
    levers_timeout: timedelta,
    what_if_texts: tuple[str, ...],
    policy: Policy,
    connection: ApiServerConnection,
) -> None:
    """Show which on-demand nodes can be drained now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. On large clusters reading takes some time; planning does not.
    """
    clock = SystemClock()
    policy = replace(policy, budgets_in_steps=budgets_in_steps)
    if independent and what_if_texts:
        raise UsageError("--what-if compares plans of all nodes in sequence: expected no --independent")
    hypotheses = parsed(what_if_texts, policy)
    with progress("reading the cluster"):
        cluster = ClusterSource(snapshot, connection).read()
    with progress("planning"):
        planner = Planner(cluster, policy)
        circumstances = Circumstances(clock.now())
        began = clock.monotonic()
        planning = planner.plan_each(circumstances) if independent else planner.plan_all(circumstances)
        seconds = clock.monotonic() - began
    prices = PriceList()
    outcome, seconds_after = None, 0.0
    if hypotheses:
        with progress("planning with the changes"):
            began = clock.monotonic()
            outcome = what_if(cluster, policy, circumstances, hypotheses)
            seconds_after = clock.monotonic() - began
    levers = NO_LEVERS
    if levers_timeout and not independent and (outcome is None or output == "json"):
        with progress("trying levers"):
            until = clock.monotonic() + levers_timeout.total_seconds()
            levers = rank_levers(
                planning, cluster, planner.filters, policy, circumstances, prices, lambda: clock.monotonic() >= until
            )
    if output == "json":
        result = as_json(planning, seconds, levers)
        if outcome is not None:
            summaries = _summary(planning, seconds), _summary(outcome.planning, seconds_after)
            result["what_if"] = what_if_json(what_if_texts, planning, outcome, summaries)
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    elif outcome is not None:
        from rescheduler.cli.what_if_tables import show_comparison  # noqa: PLC0415 - as below

        after = overview(outcome.planning, outcome.snapshot, prices)
        show_comparison(what_if_texts, overview(planning, cluster, prices), after, outcome.lost)
    else:
        from rescheduler.cli.plan_tables import show  # noqa: PLC0415 - JSON output does not need the table library

        show(overview(planning, cluster, prices, levers.levers, levers_complete=levers.complete), policy)


def as_json(planning: Planning, seconds: float, levers: RankedLevers = NO_LEVERS) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning only."""
    return {
        "nodes": [_node(verdict) for verdict in planning.verdicts],
        "summary": _summary(planning, seconds),
        "levers": [asdict(lever) for lever in levers.levers],
        "levers_complete": levers.complete,
    }


def _summary(planning: Planning, seconds: float) -> dict[str, Any]:
    return {
        "on_demand_nodes": planning.on_demand_nodes,
        "spot_nodes": planning.spot_nodes,
        "drainable_nodes": len(planning.plans),
        "pods_to_move": sum(len(plan.placements) for plan in planning.plans),
        "seconds": round(seconds, 6),
        "timed_out": planning.timed_out,
        "upper_bound": planning.upper_bound,
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
