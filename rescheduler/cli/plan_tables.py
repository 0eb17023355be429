"""A plan as tables: how many nodes can be drained, what blocks the others, then each node."""

from collections import Counter
from typing import Final

from rich.console import Console
from rich.table import Table

from rescheduler.cli.console import table_console
from rescheduler.planning.outcome import Blocker, Plan, Planning, Rejected
from rescheduler.planning.overview import Overview
from rescheduler.planning.policy import Policy

_PODS_SHOWN: Final = 3


def show(overview: Overview, policy: Policy) -> None:
    """Print the tables on standard output."""
    planning = overview.planning
    console = table_console()
    _show_summary(console, planning, policy)
    if planning.rejected:
        console.print(_reasons(planning.rejected))
    if planning.verdicts:
        console.print(_nodes(planning))


def _show_summary(console: Console, planning: Planning, policy: Policy) -> None:
    pods = sum(len(plan.placements) for plan in planning.plans)
    console.print(
        f"[bold]{len(planning.plans)} of {planning.on_demand_nodes} on-demand nodes can be drained[/bold]: "
        f"{pods} pods move to {planning.spot_nodes} spot nodes."
    )
    if planning.timed_out:
        console.print(f"The search timed out; at most {planning.upper_bound} nodes can be drained.")
    if not planning.on_demand_nodes:
        console.print(f"No node has the label {policy.on_demand_label} (--on-demand-node-label).")
    if not planning.spot_nodes:
        console.print(f"No node has the label {policy.spot_label} (--spot-node-label).")


def _reasons(rejected: tuple[Rejected, ...]) -> Table:
    """Return the reasons, most nodes first. A node with several reasons counts for each."""
    nodes = Counter(reason for verdict in rejected for reason in {blocker.reason for blocker in verdict.blockers})
    example: dict[str, Blocker] = {}
    for blocker in (blocker for verdict in rejected for blocker in verdict.blockers):
        example.setdefault(blocker.reason, blocker)
    table = Table(title="Reasons for the other nodes", title_justify="left")
    table.add_column("nodes", justify="right")
    table.add_column("reason", no_wrap=True)
    table.add_column("example")
    for reason, count in sorted(nodes.items(), key=lambda pair: (-pair[1], pair[0])):
        table.add_row(str(count), reason, example[reason].text)
    return table


def _nodes(planning: Planning) -> Table:
    table = Table(title="Nodes in drain order", title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("pods to move, or blockers")
    for verdict in planning.verdicts:
        if isinstance(verdict, Plan):
            table.add_row(verdict.node, _verdict(verdict), _moves(verdict))
        else:
            lines = [blocker.text for blocker in verdict.blockers[:_PODS_SHOWN]]
            more = len(verdict.blockers) - len(lines)
            table.add_row(verdict.node, "not drained", "\n".join([*lines, *([f"and {more} more"] if more else [])]))
    return table


def _verdict(plan: Plan) -> str:
    return {True: "drainable, robust", False: "drainable, fragile", None: "drainable"}[plan.robust]


def _moves(plan: Plan) -> str:
    if not plan.placements:
        return "no pods to move"
    shown = [f"{placement.pod} → {placement.node}" for placement in plan.placements[:_PODS_SHOWN]]
    more = len(plan.placements) - len(shown)
    return "\n".join([*shown, *([f"and {more} more"] if more else [])])
