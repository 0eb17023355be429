"""``rescheduler explain``: why spot nodes reject a pod, and what blocks the drain of a node."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import click
import msgspec

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.cli.cluster_source import ClusterSource, output_option, snapshot_option
from rescheduler.cli.compat import compat_option
from rescheduler.cli.console import Line, show
from rescheduler.cli.explain_page import ExplainPage
from rescheduler.cli.go_flags import GoCommand
from rescheduler.cli.options import connection_options, scheduling_options
from rescheduler.cli.output import print_yaml
from rescheduler.cli.policy_options import policy_options
from rescheduler.cli.prices import price_options
from rescheduler.cli.progress import progress
from rescheduler.cli.scheduler_config import with_profiles
from rescheduler.clock import SystemClock
from rescheduler.errors import UsageError
from rescheduler.planning.explain import Explanation
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.settings import ApiServerConnection, Scheduling


@click.command("explain", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NODE | NAMESPACE/POD]...")
@snapshot_option
@output_option
@compat_option
@policy_options
@price_options
@scheduling_options
@connection_options
def command(
    names: tuple[str, ...],
    snapshot: str | None,
    output: str,
    policy: Policy,
    prices: PriceList,
    scheduling: Scheduling,
    connection: ApiServerConnection,
) -> None:
    """Explain which spot nodes would accept each pod, and why the others reject it.

    Without names: every pod that would have to move for an on-demand node to be drained, and every pending pod.
    A node name selects the pods on it and also shows what blocks the node itself. Each pod is evaluated as if only
    it were evicted and recreated. The reasons are the scheduler's own. Prices only matter for --drain-order=cost.
    """
    policy = with_profiles(policy, scheduling)
    with progress("reading the cluster"):
        source = ClusterSource(snapshot, connection, scheduling)
        cluster = source.read()
    planner = Planner(cluster, policy)
    circumstances = Circumstances(SystemClock().now(), prices=prices)
    pods = list(_selected_pods(names, cluster, planner, circumstances))
    explanations = (planner.explain(pod, circumstances) for pod in pods)
    if output == "json":
        _print_json(explanations)
    elif output == "yaml":
        for explanation in explanations:
            print_yaml(as_json(explanation))
    else:
        page = ExplainPage(planner, cluster, circumstances, wide=output in ("wide", "html"))
        nodes = (page.node(name) for name in names if name in cluster.nodes.row)
        nothing = () if pods or names else (page.nothing(),)
        _show(chain(nodes, map(page.pod, explanations), nothing), html=output == "html")
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


def _show(parts: Iterable[Iterable[Line]], *, html: bool) -> None:
    if html:
        from rescheduler.cli.lines_html import as_html  # noqa: PLC0415 - imported on demand

        sys.stdout.buffer.write(as_html("Why pods stay on on-demand nodes", chain.from_iterable(parts)).encode())
    else:
        for part in parts:
            show(part)


def as_json(explanation: Explanation) -> dict[str, Any]:
    """Return the object for one pod for ``-o yaml``; ``-o json`` prints the same object."""
    refusals = [
        [{"plugin": plugin, "reasons": list(reasons)} for plugin, reasons in refusals]
        for refusals in explanation.refusals
    ]
    numbers = zip(explanation.nodes, explanation.which.tolist(), strict=True)
    return {
        "pod": explanation.pod.key,
        "node": explanation.pod.node_name or None,
        "feasible": explanation.feasible,
        "infeasible": {node: refusals[number] for node, number in numbers if number},
        "blockers": _blockers(explanation),
    }


def _blockers(explanation: Explanation) -> list[dict[str, str]]:
    return [{"reason": blocker.reason, "detail": blocker.detail} for blocker in explanation.blockers]


def _print_json(explanations: Iterable[Explanation]) -> None:
    """Print one line per pod. Identical refusals are encoded only once."""
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
        out.write(
            b'{"pod":%b,"node":%b,"feasible":%b,"infeasible":{%b},"blockers":%b}\n'
            % (
                encode(explanation.pod.key),
                encode(explanation.pod.node_name or None),
                encode(explanation.feasible),
                infeasible,
                encode(_blockers(explanation)),
            )
        )
