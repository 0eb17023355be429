"""``rescheduler explain``: why spot nodes reject a pod, and what blocks the drain of a node."""

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
from rescheduler.cli.source import ClusterSource, output_option, snapshot_option
from rescheduler.clock import SystemClock
from rescheduler.errors import UsageError
from rescheduler.planning.advice import smallest_change
from rescheduler.planning.explain import Explanation
from rescheduler.planning.outcome import Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.settings import ApiServerConnection


@click.command("explain", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NODE | NAMESPACE/POD]...")
@snapshot_option
@output_option
@compat_option
@policy_options
@connection_options
def command(
    names: tuple[str, ...], snapshot: str | None, output: str, policy: Policy, connection: ApiServerConnection
) -> None:
    """Explain which spot nodes would accept each pod, and why the others reject it.

    Without names: every pod that would have to move for an on-demand node to be drained, and every pending pod.
    A node name selects the pods on it and also shows what blocks the node itself. Each pod is evaluated as if it
    alone were evicted and recreated. The reasons are the scheduler's own.
    """
    with progress("reading the cluster"):
        source = ClusterSource(snapshot, connection)
        cluster = source.read()
    planner = Planner(cluster, policy)
    circumstances = Circumstances(SystemClock().now())
    pods = list(_selected_pods(names, cluster, planner, circumstances))
    explanations = (planner.explain(pod, circumstances) for pod in pods)
    if output == "json":
        _print_json(explanations)
    else:
        console = table_console()
        for name in names:
            if name in cluster.nodes.row:
                _show_node(console, name, cluster, planner, circumstances)
        console.print(_table(explanations))
    source.warn(cluster, policy)


def _selected_pods(
    names: Sequence[str], cluster: Snapshot, planner: Planner, circumstances: Circumstances
) -> Iterator[Pod]:
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
    """Print one line per pod. The text of equal refusals is encoded only once."""
    out, encode = sys.stdout.buffer, msgspec.json.encode
    for explanation in explanations:
        texts = [
            encode([{"plugin": plugin, "reasons": reasons} for plugin, reasons in refusals])
            for refusals in explanation.refusals
        ]
        infeasible = b",".join(
            encode(node) + b":" + texts[number]
            for node, number in zip(explanation.nodes, explanation.which.tolist(), strict=True)
            if number
        )
        blockers = [{"reason": blocker.reason, "detail": blocker.detail} for blocker in explanation.blockers]
        out.write(
            b'{"pod":%b,"node":%b,"feasible":%b,"infeasible":{%b},"blockers":%b}\n'
            % (
                encode(explanation.pod.key),
                encode(explanation.pod.node_name or None),
                encode(explanation.feasible),
                infeasible,
                encode(blockers),
            )
        )


def _table(explanations: Iterable[Explanation]) -> Table:
    table = Table()
    table.add_column("pod", no_wrap=True)
    table.add_column("node", no_wrap=True)
    table.add_column("spot nodes")
    table.add_column("eviction blocked by")
    for explanation in explanations:
        blockers = "\n".join(f"{blocker.reason}: {blocker.detail}" for blocker in explanation.blockers)
        table.add_row(
            explanation.pod.key, explanation.pod.node_name or "(pending)", availability(explanation), blockers
        )
    return table


def availability(explanation: Explanation) -> str:
    """Return the result in the scheduler's format: ``3/12 nodes are available: 7 Insufficient cpu, …``.

    For each node only the first plugin's reasons count.
    """
    counts: dict[str, int] = {}
    for nodes, refusals in explanation.counts():
        for reason in refusals[0][1]:
            counts[reason] = counts.get(reason, 0) + nodes
    reasons = ", ".join(
        f"{count} {reason}" for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    return f"{len(explanation.feasible)}/{len(explanation.nodes)} nodes are available" + (
        f": {reasons}" if reasons else ""
    )


def _show_node(console: Console, name: str, cluster: Snapshot, planner: Planner, circumstances: Circumstances) -> None:
    verdict = planner.plan_node(name, circumstances)
    if not isinstance(verdict, Rejected):
        console.print(f"[bold]{name}[/bold] can be drained: {len(verdict.placements)} pods would move.")
        return
    console.print(f"[bold]{name}[/bold] is not drained:")
    for blocker in verdict.blockers:
        console.print(f"  {blocker}")
        if blocker.reason in (Reason.NO_ROOM, Reason.PINNED) and blocker.pod is not None:
            change = smallest_change(planner.explain(cluster.pods[blocker.pod], circumstances), cluster)
            console.print(f"    smallest change: {change}" if change else "    no single change on one node is enough")
