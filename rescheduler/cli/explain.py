"""``rescheduler explain``: why spot nodes reject a pod, and what blocks the drain of a node."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import click

from predicates.node_selectors import first_untolerated
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from rescheduler.cli.blockers import NodeNames, blocker_lines, severity_style
from rescheduler.cli.cluster_source import (
    ClusterSource,
    compat_option,
    output_option,
    progress,
    snapshot_option,
    strict_option,
)
from rescheduler.cli.console import show
from rescheduler.cli.go_flags import GoCommand
from rescheduler.cli.options import connection_options, scheduling_options
from rescheduler.cli.output import json_bytes, lines_as_html, print_yaml
from rescheduler.cli.plan_data import FromDaemon, check_daemon, daemon_of, from_daemon_option, known_facts
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.clock import SystemClock
from rescheduler.errors import UsageError
from rescheduler.pages.tree import BLANK, GOOD, HEADING, Line, styled
from rescheduler.planning.controllers import controller_of, controllers_in
from rescheduler.planning.forms import and_more, count, shortened
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.node_info import full_name, similar_node
from rescheduler.planning.outcome import DrainKind, Plan, Reason, Rejected
from rescheduler.planning.placement.explain import Explanation, Refusals, smallest_change
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Leftovers, Policy
from rescheduler.planning.pool_shares import ignored_annotation
from rescheduler.planning.rules.pins import taint_text
from rescheduler.planning.severity import blocker_object
from rescheduler.settings import ApiServerConnection, Scheduling

# Explanations as a page: the blockers of each node, and which spot nodes reject each pod and why.

#: Maximum number of names printed of nodes that accept a pod; ``-o wide`` prints all.
_NODES_NAMED: Final = 12
_PODS_NAMED: Final = 3


class ExplainPage:
    """Writes the parts of the page for *cluster*."""

    def __init__(self, planner: Planner, cluster: Snapshot, circumstances: Circumstances, *, wide: bool) -> None:
        self._planner = planner
        self._cluster = cluster
        self._circumstances = circumstances
        self._wide = wide
        self._controller = controllers_in(cluster)
        self._names = NodeNames.of(cluster.nodes.row)
        taken = planner.pending(circumstances)
        pending = f"{taken}, which only the plan of a node counts." if str(taken) else ""
        self._notes = [*filter(None, (self._names.note, pending))]  #: printed once, before the first part

    def node(self, name: str) -> Iterator[Line]:
        """Yield whether the node can be drained, its blockers, and the smallest change that would help."""
        yield from self._start()
        verdict = self._planner.explain_node(name, self._circumstances)
        if isinstance(verdict, Rejected):
            verdict = self._emptied_with_leftovers.get(name, verdict)
        if not isinstance(verdict, Rejected):
            pods = count(len(verdict.placements), "pod")
            what = f"can be drained{verdict.with_leftovers}: {pods} would move."
            yield styled(f"Node {self._names.short(name)} {what}", GOOD)
            yield BLANK
            return
        yield styled(f"Node {self._names.short(name)} is not drained:", severity_style(verdict.blockers))
        yield from blocker_lines(verdict.blockers, self._controller, 1, wide=self._wide)
        for blocker in verdict.blockers:
            if blocker.reason in (Reason.NO_ROOM, Reason.PINNED) and blocker.pod is not None:
                explanation = self._planner.explain(self._cluster.pods[blocker.pod], self._circumstances)
                yield Line(f"{blocker.pod}: {self._advice(explanation)}", 1)
        yield BLANK

    @cached_property
    def _emptied_with_leftovers(self) -> Mapping[str, Plan]:
        """The plans that need ``--leftovers=move``, by node: they depend on what becomes of all other nodes."""
        if self._planner.policy.leftovers is not Leftovers.MOVE:
            return {}
        plans = self._planner.plan_all(self._circumstances).plans
        return {plan.node: plan for plan in plans if plan.kind is DrainKind.LEFTOVERS}

    def pod(self, explanation: Explanation) -> Iterator[Line]:
        """Yield the nodes that accept the pod, the nodes that reject it (by reason), and a change that would help."""
        yield from self._start()
        pod = explanation.pod
        controller = self._controller(pod.key)
        owner = "" if controller == f"Pod {pod.key}" else f" ({controller})"
        where = f"on node {self._names.short(pod.node_name)}" if pod.node_name else "pending"
        yield styled(f"Pod {pod.key}, {where}{owner}", HEADING)
        yield from (
            Line(f"cannot be evicted: {item.reason} ({item.reason.severity}): {item.detail}", 1)
            for item in explanation.blockers
        )
        if (surge := explanation.surge) is not None:
            restarts = count(surge.restarts, "pod")
            yield Line(
                f"moved by a rolling update of Deployment {surge}, which restarts {restarts}, not by an eviction", 1
            )
        if note := ignored_annotation(pod):
            yield Line(note, 1)
        yield from self._accepting(explanation)
        for nodes, refusals in explanation.rejecting():
            yield Line(
                f"{count(len(nodes), 'node')} {'rejects' if len(nodes) == 1 else 'reject'} it: {_reasons(refusals)}", 1
            )
            if self._wide:
                yield Line(", ".join(map(self._names.short, nodes)), 2)
        if taints := self._untolerated(explanation):
            yield Line(f"taints that it does not tolerate: {', '.join(taints)}", 1)
        if (preempts := explanation.preempts) is not None:
            pods = shortened(preempts[1], _PODS_NAMED)
            yield Line(f"on {self._names.short(preempts[0])}, the scheduler preempts for it: {pods}", 1)
        elif not explanation.feasible and explanation.nodes:
            yield Line(self._advice(explanation), 1)
        yield BLANK

    def _untolerated(self, explanation: Explanation) -> list[str]:
        """Return the taints because of which nodes reject the pod, each once."""
        table, tolerations = self._cluster.nodes, explanation.pod.cls.spec.tolerations
        rejecting = [
            name
            for nodes, refusals in explanation.rejecting()
            if any(plugin == "TaintToleration" for plugin, _ in refusals)
            for name in nodes
        ]
        nodes = (table.nodes[table.row[name]] for name in rejecting)
        found = (first_untolerated(node.spec.taints, tolerations) for node in nodes if node is not None)
        return sorted({taint_text(taint) for taint in found if taint is not None})

    def nothing(self) -> Iterator[Line]:
        """Yield the text to print if there is no pod to explain."""
        yield Line("No pod of an on-demand node has to move, and no pod is pending.")

    def _start(self) -> Iterator[Line]:
        if self._notes:
            yield from map(Line, self._notes)
            yield BLANK
        self._notes = []

    def _accepting(self, explanation: Explanation) -> Iterator[Line]:
        accepting, total = explanation.feasible, len(explanation.nodes)
        if len(accepting) == total > 1 and not self._wide:
            yield Line(f"all {count(total, 'spot node')} accept it", 1)
            return
        named = accepting if self._wide else accepting[:_NODES_NAMED]
        names = ", ".join(map(self._names.short, named))
        remainder = and_more(len(accepting) - len(named), " (-o wide)", ", ")
        accept = f"{count(total, 'spot node')} accept{'s' if total == 1 else ''} it"
        yield Line(f"{len(accepting)} of {accept}" + (f": {names}{remainder}" if names else ""), 1)

    def _advice(self, explanation: Explanation) -> str:
        change = smallest_change(explanation, self._cluster)
        return (
            f"smallest change: {self._names.shorten_in(change)}" if change else "no single change on one node is enough"
        )


def _reasons(refusals: Refusals) -> str:
    """Return all rejecting plugins with their reasons: ``NodeResourcesFit: Insufficient cpu; …``."""
    return "; ".join(f"{plugin}: {', '.join(reasons)}" for plugin, reasons in refusals)


@click.command("explain", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[NODE | NAMESPACE/POD | NAMESPACE/KIND/NAME | NAMESPACE]...")
@snapshot_option
@strict_option
@output_option
@from_daemon_option
@compat_option
@policy_options
@price_options
@scheduling_options
@connection_options
def command(
    names: tuple[str, ...],
    snapshot: str | None,
    strict: bool,  # noqa: FBT001 - click passes by keyword
    output: str,
    from_daemon: FromDaemon,
    policy: Policy,
    prices: PriceList,
    scheduling: Scheduling,
    connection: ApiServerConnection,
) -> None:
    """Explain which spot nodes would accept each pod, and why the others reject it.

    Without names: every pod that would have to move for an on-demand node to be drained, and every pending pod.
    A node name selects the pods on it and also shows what blocks the node itself; it may be shortened as plan prints
    it. A workload (shop/deployment/cart) or a namespace selects its pods among these. Each pod is evaluated as if only
    it were evicted and recreated. The reasons are the scheduler's own. Prices only matter for --drain-order=cost.
    """
    policy, clock = with_profiles(replace(policy, judge_controllers=True), scheduling), SystemClock()
    check_daemon(snapshot, from_daemon)
    with progress("reading the cluster"):
        source = ClusterSource(snapshot, connection, scheduling)
        cluster = source.read()
    planner = Planner(cluster, policy)
    daemon = daemon_of(connection, from_daemon, clock, snapshot=snapshot)
    circumstances = known_facts(cluster, policy, prices, clock, daemon).circumstances
    pods = list(_selected_pods(names, cluster, planner, circumstances))
    explanations = (planner.explain(pod, circumstances) for pod in pods)
    if output == "json":
        _print_json(explanations)
    elif output == "yaml":
        for explanation in explanations:
            print_yaml(as_json(explanation))
    else:
        page = ExplainPage(planner, cluster, circumstances, wide=output in ("wide", "html"))
        known = (full_name(name, cluster.nodes.row) for name in names)
        nodes = (page.node(name) for name in known if name in cluster.nodes.row)
        nothing = () if pods or names else (page.nothing(),)
        _show(chain(nodes, map(page.pod, explanations), nothing), html=output == "html")
    assumed, incomplete = source.assumptions(cluster, policy), source.incomplete(cluster)
    source.warn(cluster, policy, assumed, incomplete, strict=strict)


def _selected_pods(
    names: Sequence[str], cluster: Snapshot, planner: Planner, circumstances: Circumstances
) -> Iterator[Pod]:
    if not names:
        yield from planner.relevant_pods(circumstances)
    for name in names:
        if (pod := cluster.pods.get(name)) is not None:
            yield pod
        elif (node := full_name(name, cluster.nodes.row)) in cluster.nodes.row:
            yield from planner.must_move(node, circumstances)
        else:
            yield from _pods_of(name, cluster, list(planner.relevant_pods(circumstances)))


def _pods_of(name: str, cluster: Snapshot, relevant: Sequence[Pod]) -> Sequence[Pod]:
    """Return the *relevant* pods of the namespace or the workload *name*, or all of its pods if none is relevant.

    A workload is ``namespace/name``, ``namespace/kind/name`` or, as kubectl writes it, ``namespace/kind.group/name``,
    or ``kind/name`` if only one namespace has it. Raises UsageError if there is no such object, or more than one.
    """
    namespace, *rest = name.lower().split("/")
    *kind, workload = rest or [""]
    pods = [pod for pod in cluster.pods.values() if _belongs(pod, namespace, kind, workload)] if len(kind) <= 1 else []
    if not pods and len(rest) == 1:
        kind = [namespace]
        homes = {pod.namespace for pod in cluster.pods.values() if _belongs(pod, pod.namespace, kind, workload)}
        if len(homes) > 1:
            first, *_ = found = sorted(homes)
            raise UsageError(f"{name} is in the namespaces {', '.join(found)}: expected one, such as {first}/{name}")
        namespace = min(homes, default="")
        pods = [pod for pod in cluster.pods.values() if _belongs(pod, namespace, kind, workload)]
    if not pods and (rest or name not in cluster.of("Namespace")):
        expected = "expected NODE, NAMESPACE, NAMESPACE/POD or NAMESPACE/KIND/NAME"
        paths = {controller_of(pod).path for pod in cluster.pods.values()}
        named = {f"{path.partition('/')[0]}/{path.rpartition('/')[2]}" for path in paths}
        near = similar_node(name, cluster.nodes.row) or did_you_mean(
            name, [*sorted(named), *sorted(paths), *cluster.pods]
        )
        raise UsageError(f"{name}: no such node, and no such pod ({expected}){near}")
    return [pod for pod in relevant if _belongs(pod, namespace, kind, workload)] or (pods if rest else [])


#: The short names of kinds in kubectl.
_KINDS: Final = {
    "deploy": "deployment", "sts": "statefulset", "rs": "replicaset", "ds": "daemonset", "rc": "replicationcontroller",
}  # fmt: skip


def _belongs(pod: Pod, namespace: str, kind: Sequence[str], workload: str) -> bool:
    """Return whether *pod* is in *namespace* and, if *workload* is not "", belongs to it; *kind* has at most one."""
    owner = controller_of(pod)
    named = kind[0].partition(".")[0] if kind else ""
    same_kind = not kind or _KINDS.get(named, named) in (owner.kind.lower(), f"{owner.kind.lower()}s")
    return pod.namespace == namespace and (not workload or (owner.name == workload and same_kind))


def _show(parts: Iterable[Iterable[Line]], *, html: bool) -> None:
    if html:
        sys.stdout.buffer.write(lines_as_html("Why pods stay on on-demand nodes", chain.from_iterable(parts)).encode())
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
        "surge": _surge(explanation),
        "preempts": _preempts(explanation),
    }


def _preempts(explanation: Explanation) -> list[str]:
    return [] if explanation.preempts is None else list(explanation.preempts[1])


def _surge(explanation: Explanation) -> str | None:
    return None if explanation.surge is None else str(explanation.surge)


def _blockers(explanation: Explanation) -> list[dict[str, str]]:
    return [
        {name: text for name, text in blocker_object(blocker).items() if name != "pod"}
        for blocker in explanation.blockers
    ]


def _print_json(explanations: Iterable[Explanation]) -> None:
    """Print one line per pod. Identical refusals are encoded only once."""
    out, encode = sys.stdout.buffer, json_bytes
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
            b'{"pod":%b,"node":%b,"feasible":%b,"infeasible":{%b},"blockers":%b,"surge":%b,"preempts":%b}\n'
            % (
                encode(explanation.pod.key),
                encode(explanation.pod.node_name or None),
                encode(explanation.feasible),
                infeasible,
                encode(_blockers(explanation)),
                encode(_surge(explanation)),
                encode(_preempts(explanation)),
            )
        )
