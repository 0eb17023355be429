"""``rescheduler explain``: why which spot node does not take a pod, and what keeps a node from being emptied."""

import sys
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec
from rich.console import Console
from rich.table import Table

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.cli.compat import compat_option
from rescheduler.cli.console import table_console
from rescheduler.cli.go_flags import GoCommand
from rescheduler.cli.options import connection_options, policy_options
from rescheduler.cli.progress import progress
from rescheduler.cli.source import Source, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.errors import UsageError
from rescheduler.planning.advice import smallest_change
from rescheduler.planning.explain import Explanation
from rescheduler.planning.outcome import Blocker, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.settings import Connection


@click.command("explain", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NODE | NAMESPACE/POD]...")
@snapshot_option
@output_option
@compat_option
@policy_options
@connection_options
def command(names: tuple[str, ...], snapshot: str | None, output: str, policy: Policy, connection: Connection) -> None:
    """Show for pods which spot nodes would take them, and why the others do not.

    Without names: every pod that would have to move for an on-demand node to be emptied, and every pending pod.
    A node stands for the pods on it, and the table says what blocks the node itself. Each pod is judged as if it
    alone were evicted and made anew. The reasons are the scheduler's own.
    """
    with progress("reading the cluster"):
        cluster = Source(snapshot, connection).read()
    planner = Planner(cluster, policy)
    circumstances = Circumstances(SystemClock().now())
    pods = list(_asked(names, cluster, planner, circumstances))
    explanations = (planner.explain(pod, circumstances) for pod in pods)
    if output == "json":
        _print_json(explanations)
        return
    console = table_console()
    for name in names:
        if name in cluster.nodes.row:
            _show_node(console, name, cluster, planner, circumstances)
    console.print(_table(explanations))


def _asked(names: Sequence[str], cluster: Snapshot, planner: Planner, circumstances: Circumstances) -> Iterator[Pod]:
    if not names:
        yield from planner.relevant_pods(circumstances)
    for name in names:
        if (pod := cluster.pods.get(name)) is not None:
            yield pod
        elif name in cluster.nodes.row:
            yield from planner.must_move(name, circumstances)
        else:
            raise UsageError(f"{name}: no such node, and no such pod (expected NODE or NAMESPACE/POD)")


def _print_json(explanations: Iterable[Explanation]) -> None:
    """One line a pod. Nodes with the same refusals share their text: it is encoded once."""
    out, encode = sys.stdout.buffer, msgspec.json.encode
    for one in explanations:
        texts = [
            encode([{"plugin": plugin, "reasons": reasons} for plugin, reasons in refusals])
            for refusals in one.refusals
        ]
        infeasible = b",".join(
            encode(node) + b":" + texts[number]
            for node, number in zip(one.nodes, one.which.tolist(), strict=True)
            if number
        )
        blockers = [{"reason": blocker.reason, "detail": blocker.detail} for blocker in one.blockers]
        out.write(
            b'{"pod":%b,"node":%b,"feasible":%b,"infeasible":{%b},"blockers":%b}\n'
            % (
                encode(one.pod.key),
                encode(one.pod.node_name or None),
                encode(one.feasible),
                infeasible,
                encode(blockers),
            )
        )


def _table(explanations: Iterable[Explanation]) -> Table:
    table = Table()
    table.add_column("pod", no_wrap=True)
    table.add_column("node", no_wrap=True)
    table.add_column("spot nodes")
    table.add_column("what forbids its eviction")
    for one in explanations:
        blockers = "\n".join(f"{blocker.reason}: {blocker.detail}" for blocker in one.blockers)
        table.add_row(one.pod.key, one.pod.node_name or "(pending)", availability(one), blockers)
    return table


def availability(one: Explanation) -> str:
    """In the scheduler's manner: ``3/12 nodes are available: 7 Insufficient cpu, …``, first reasons first."""
    counts: dict[str, int] = {}
    for nodes, refusals in one.counts():
        for reason in refusals[0][1]:
            counts[reason] = counts.get(reason, 0) + nodes
    said = ", ".join(
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    return f"{len(one.feasible)}/{len(one.nodes)} nodes are available" + (f": {said}" if said else "")


def _show_node(console: Console, name: str, cluster: Snapshot, planner: Planner, circumstances: Circumstances) -> None:
    verdict = planner.plan_node(name, circumstances)
    if not isinstance(verdict, Rejected):
        console.print(f"[bold]{name}[/bold] can be emptied: {len(verdict.placements)} pods would move.")
        return
    console.print(f"[bold]{name}[/bold] stays:")
    for blocker in verdict.blockers:
        console.print(f"  {_line(blocker)}")
        if blocker.reason is Reason.NO_ROOM and blocker.pod is not None:
            change = smallest_change(planner.explain(cluster.pods[blocker.pod], circumstances), cluster)
            console.print(
                f"    the smallest change: {change}" if change else "    no single change on one node would do"
            )


def _line(blocker: Blocker) -> str:
    return f"{blocker.reason}: " + (f"{blocker.pod}: " if blocker.pod else "") + blocker.detail
