"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import click
import msgspec

from predicates.snapshot import Snapshot
from rescheduler.cli.blockers import ControllerLookup, NodeBlocks, NodeNames, controllers_in
from rescheduler.cli.cluster_source import (
    ClusterSource,
    compat_option,
    output_option,
    progress,
    snapshot_option,
    strict_option,
)
from rescheduler.cli.console import BAD, BLANK, GOOD, HEADING, Line, clear_screen, page_width, say, show, styled, warn
from rescheduler.cli.glance import (
    SORT_KEYS,
    Shown,
    command_to_try,
    first_step,
    fitted,
    lever_table,
    node_table,
)
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import connection_options, group, scheduling_options
from rescheduler.cli.output import print_html, print_json, print_yaml
from rescheduler.cli.plan_data import (
    FromDaemon,
    PlannedCluster,
    daemon_of,
    enforced_survival,
    from_daemon_option,
    levers_option,
    price_provider_and_list_options,
    read_and_plan,
    survive_option,
)
from rescheduler.cli.policy_options import policy_options, price_options
from rescheduler.cli.scheduler_config import with_profiles
from rescheduler.cli.survival import survival_json, survival_lines
from rescheduler.cli.what_if import comparison, parsed, unknown_schedulers, what_if_json, what_if_option
from rescheduler.clock import Clock, SystemClock, pause
from rescheduler.errors import UsageError
from rescheduler.planning.forms import count, cpu, memory, per_month
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import Worth, saves
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict, nodes_by_reason
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.what_if.comparison import Hypothesis, HypotheticalPlan, what_if
from rescheduler.planning.what_if.lifting import Unpinning
from rescheduler.planning.what_if.overview import NO_PRICE, SETTING, Lever, Overview, Totals
from rescheduler.planning.what_if.remedies import change_for, patches_for
from rescheduler.settings import ApiServerConnection, Provider, Scheduling

# A plan as a page: a summary sentence, the freed nodes, the obstacles to freeing more, and each node.

#: Maximum number of levers shown without ``-o wide``.
_LEVERS_SHOWN: Final = 10

_GIB: Final = 1 << 30

#: Reasons that concern the node as a whole: the blocker only names the first pod that does not fit.
_OF_THE_NODE: Final = frozenset({Reason.NO_ROOM, Reason.SPOT_POOL_SETTLING})


def page(overview: Overview, cluster: Snapshot, policy: Policy, now: datetime, *, wide: bool = False) -> Iterator[Line]:
    """Yield the lines of the page for *overview*, which was made from *cluster* at the time *now*."""
    controller = controllers_in(cluster)
    names = NodeNames.of(overview.nodes)
    summary = _Summary(overview, policy, controller, names)
    yield from summary.first_lines()
    yield from summary.details(_EVERYTHING)
    if overview.survival is not None and overview.survival.pools:
        yield BLANK
        yield from survival_lines(overview.survival, wide=wide)
    if overview.levers:
        yield BLANK
        yield from _levers(overview, names, wide=wide)
    if overview.planning.verdicts:
        yield BLANK
        yield styled("Nodes in drain order", HEADING)
        if names.note:
            yield Line(names.note)
        yield from NodeBlocks(overview, names, controller, now, wide).lines()


def glance(overview: Overview, cluster: Snapshot, policy: Policy, width: int) -> Iterator[Line]:
    """Yield the lines of the page for *overview* at a glance: at most 40 for any cluster."""
    names = NodeNames.of(overview.nodes)
    summary = _Summary(overview, policy, controllers_in(cluster), names)

    def page_of(shown: Shown) -> Iterator[Line]:
        yield from summary.first_lines()
        yield from summary.details(shown)
        if overview.survival is not None and overview.survival.pools and shown.notes:
            yield BLANK
            yield from islice(survival_lines(overview.survival), _SURVIVAL_SHOWN)
        yield from lever_table(overview, names, shown.levers, width)

    return fitted(page_of, width)


def nodes_page(
    overview: Overview, cluster: Snapshot, policy: Policy, now: datetime, width: int, sort_by: str | None
) -> Iterator[Line]:
    """Yield the headline and one line for each node."""
    names = NodeNames.of(overview.nodes)
    yield from _Summary(overview, policy, controllers_in(cluster), names).first_lines()
    yield BLANK
    yield from node_table(overview, names, now, width, sort_by)


@dataclass(frozen=True, slots=True)
class _Summary:
    """The summary of a page: the possible savings, and the obstacles to saving more."""

    overview: Overview
    policy: Policy
    controller: ControllerLookup
    names: NodeNames

    def first_lines(self) -> Iterator[Line]:
        """Yield why nothing is drained now, what the file lacks, the headline, and what to do first."""
        if self.overview.held:
            yield styled(f"Nothing is drained now: {self.overview.held}.", BAD)
        if self.overview.incomplete:
            yield styled(_sentence(self.overview.incomplete), BAD)
        yield styled(self.headline(), GOOD if self.overview.planning.plans else HEADING)
        if (step := first_step(self.overview, self.names)) is not None:
            yield step

    def headline(self) -> str:
        """Summarize the plan in one sentence."""
        overview, planning = self.overview, self.overview.planning
        total = count(planning.on_demand_nodes, "on-demand node")
        worth = self._worth(overview.freed) if planning.plans else ""
        return f"{len(planning.plans)} of {total} drainable{worth}{self._main_obstacle()}."

    def _worth(self, totals: Totals) -> str:
        if saved := saves(totals.worth, self.overview.prices.currency, at_least=bool(totals.unpriced)):
            return f"; {saved}"
        return f" ({cpu(_rounded(totals.cpu, 1000))} vCPU, {memory(_rounded(totals.memory, _GIB))})"

    def _main_obstacle(self) -> str:
        """Return the last part of the sentence: the most useful lever, otherwise the most frequent obstacle."""
        if self.overview.levers and (setting := self.overview.levers[0]).controller.startswith(SETTING):
            return f"; {setting.controller.rpartition(' ')[2]} would free {len(setting.frees)} more"
        if self.overview.levers:
            obstacle, number = self.overview.levers[0].controller, len(self.overview.levers[0].nodes)
        elif nodes := self._obstacles():
            obstacle, number = min(nodes.items(), key=lambda pair: (-pair[1], pair[0]))
        else:
            return ""
        return f"; {self.names.short(obstacle.rpartition(' ')[2])} blocks {number}"

    def _obstacles(self) -> Counter[str]:
        """Count the nodes by controller, or by reason if the node itself is blocked or spot nodes are full."""
        nodes: Counter[str] = Counter()
        for verdict in self.overview.planning.rejected:
            nodes.update(
                {
                    str(item.reason) if item.pod is None or item.reason in _OF_THE_NODE else self.controller(item.pod)
                    for item in verdict.blockers
                }
            )
        return nodes

    def details(self, shown: Shown) -> Iterator[Line]:
        """Yield the totals by instance type, the reasons, and the limitations of the result."""
        planning = self.overview.planning
        if planning.plans:
            yield BLANK
            yield from self._freed(shown.types)
        if planning.rejected:
            yield BLANK
            yield from self._rejection_counts(shown.reasons)
        notes = list(self._notes())
        if notes and shown.notes:
            yield BLANK
            yield from notes[: shown.notes]
            yield from _more(len(notes) - shown.notes, "note")

    def _freed(self, shown: int) -> Iterator[Line]:
        overview = self.overview
        targets = [placement.node for plan in overview.planning.plans for placement in plan.placements]
        spot = f"{len(set(targets)):,} of {count(overview.planning.spot_nodes, 'spot node')}"
        moving = f"by moving {count(len(targets), 'pod')} to {spot}" if targets else "without moving pods"
        yield styled(f"Freed {moving}", HEADING)
        types = list(overview.freed_by_type.items())
        others = [("other types", *self._others([totals for _, totals in types[shown:]]))] if types[shown:] else []
        yield from _table(
            [(name or "(unknown type)", *self._amounts(totals)) for name, totals in types[:shown]]
            + others
            + [("in total", *self._amounts(overview.freed)), ("all on-demand", *self._amounts(overview.on_demand))]
        )

    def _others(self, hidden: Sequence[Totals]) -> tuple[str, ...]:
        """Return the amounts of several instance types together."""
        known = [totals.per_hour for totals in hidden if totals.per_hour is not None]
        return self._amounts(
            Totals(
                nodes=sum(totals.nodes for totals in hidden),
                cpu=sum(totals.cpu for totals in hidden),
                memory=sum(totals.memory for totals in hidden),
                per_hour=sum(known, Decimal(0)) if known else None,
                unpriced=sum(totals.unpriced for totals in hidden),
            )
        )

    def _amounts(self, totals: Totals) -> tuple[str, ...]:
        price = "" if totals.per_month is None else per_month(totals.per_month, self.overview.prices.currency)
        unpriced = f"{count(totals.unpriced, 'node')} without a price" if totals.unpriced and price else ""
        return count(totals.nodes, "node"), f"{cpu(totals.cpu)} vCPU", memory(totals.memory), price, unpriced

    def _rejection_counts(self, shown: int) -> Iterator[Line]:
        rejected = self.overview.planning.rejected
        nodes = nodes_by_reason(self.overview.planning)
        stay = "stays" if len(rejected) == 1 else "stay"
        yield styled(f"{count(len(rejected), 'node')} {stay} (a node can have several reasons)", HEADING)
        rows = sorted(nodes.items(), key=lambda pair: (-pair[1], pair[0]))
        yield from _table([(reason, count(number, "node")) for reason, number in rows[:shown]])
        yield from _more(len(rows) - shown, "reason", 1)

    def _notes(self) -> Iterator[Line]:
        planning = self.overview.planning
        if self.overview.returning:
            yield Line(_sentence(self.overview.returning))
        if planning.timed_out:
            yield Line(f"The search timed out; at most {count(planning.upper_bound or 0, 'node')} can be drained.")
        if planning.pending.pods:
            yield Line(f"{planning.pending}.")
        if not planning.on_demand_nodes:
            yield Line(f"No node has the label {self.policy.on_demand_label} (--on-demand-node-label).")
        if not planning.spot_nodes:
            yield Line(f"No node has the label {self.policy.spot_label} (--spot-node-label).")
            nodes = sorted([plan.node for plan in planning.plans] + [verdict.node for verdict in planning.rejected])
            if nodes:
                yield Line(f"To see what spot nodes would free: --what-if 'add-spot 3 like {nodes[0]}'")
        if self.overview.unpriced:
            yield Line(NO_PRICE)
        for assumption in self.overview.assumptions:
            yield Line(f"Note: {assumption}")


#: Lines about the loss of spot nodes at a glance.
_SURVIVAL_SHOWN: Final = 2

#: All rows of all parts.
_EVERYTHING: Final = Shown(*[1 << 30] * 4)


def _more(number: int, noun: str, level: int = 0) -> Iterator[Line]:
    if number > 0:
        yield Line(f"{number} more {noun}{'' if number == 1 else 's'} with -o wide.", level)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _rounded(amount: int, unit: int) -> int:
    """Round *amount* to a multiple of *unit*, unless it is small."""
    return amount if amount < 10 * unit else round(amount / unit) * unit


def _levers(overview: Overview, names: NodeNames, *, wide: bool) -> Iterator[Line]:
    yield styled("What would free more, the most useful first", HEADING)
    listed = overview.levers if wide else overview.levers[:_LEVERS_SHOWN]
    for lever in listed:
        yield Line(names.shorten_in(_lever(lever, overview, names)), 1)
    if len(listed) < len(overview.levers):
        yield Line(f"{len(overview.levers) - len(listed)} more with -o wide.", 1)
    if not overview.levers_complete:
        yield Line("Some levers were not tried before --levers-timeout.", 1)


def _lever(lever: Lever, overview: Overview, names: NodeNames) -> str:
    lever_text = f"{lever.controller}: {lever.obstacle} ({lever.reason}) keeps {count(len(lever.nodes), 'node')}"
    alone = (
        f"alone it would free {'' if lever.tried else 'at least '}{_gain(lever.frees, lever.worth, overview, names)}"
    )
    if not lever.tried and not lever.frees:
        alone = "not tried"
    if not lever.together_with:
        return f"{lever_text}; {alone}"
    together = f"together with {', '.join(lever.together_with)} it would free"
    return f"{lever_text}; {alone}; {together} {_gain(lever.frees_together, lever.worth_together, overview, names)}"


def _gain(nodes: tuple[str, ...], worth: Worth, overview: Overview, names: NodeNames) -> str:
    """Return the number of nodes with their type and price: ``1 (m5.2xlarge, 280 $/month)``."""
    if not nodes:
        return "none"
    price = overview.per_month(nodes) if worth.net_per_month is None else worth.net_per_month
    kinds = sorted({overview.nodes[name].instance_type for name in nodes} - {""})
    parts = [", ".join(kinds) if kinds else names.short(nodes[0]) if len(nodes) == 1 else ""]
    parts += [per_month(price, overview.prices.currency)] if price is not None else []
    text = ", ".join(filter(None, parts))
    return f"{len(nodes)} ({text})" if text else str(len(nodes))


def _table(rows: list[tuple[str, ...]]) -> Iterator[Line]:
    """Yield *rows* with aligned columns: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True) if width]
        yield Line("  ".join([first.ljust(widths[0]), *cells]).rstrip(), 1)


# The options that choose what is shown.

#: Pause between two readings of --watch.
WATCHED_EVERY: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class View:
    """What the page of a plan shows."""

    lever: int | None = None  #: only this lever
    patch: bool = False  #: as the commands that make its change
    sort_by: str | None = None  #: one line for each node, in this order
    watch: bool = False
    nodes: bool = False  #: one line for each node

    def listing_nodes(self, provider: Provider) -> "View":
        """Return the view with what ``--nodes`` without a value says: it shares its name with a provider's groups."""
        return replace(self, nodes="" in provider.nodes)


#: Passes ``view: View`` to the command.
view_options: Final = group(
    "view",
    View,
    (
        Option(
            "--sort-by",
            click.Choice(list(SORT_KEYS)),
            help="The order of the lines of --nodes, which it implies. Default: the drain order.",
        ),
        Option("--watch", Bool(), default=False, help="Read the cluster and show the plan again every 10s."),
        Option(
            "--lever",
            click.IntRange(min=1),
            metavar="N",
            help="Show only the change with this number, with its nodes and the command that tries it.",
        ),
        Option(
            "--patch",
            Bool(),
            default=False,
            help="With --lever: print the kubectl commands that make the change in the cluster. Nothing is changed.",
        ),
    ),
)


# A plan as an object for programs: ``plan -o json`` and ``plan -o yaml``.


def as_json(overview: Overview, seconds: float) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning alone."""
    planning = overview.planning
    return {
        "nodes": [_node(verdict, overview) for verdict in planning.verdicts],
        "summary": {
            "on_demand_nodes": planning.on_demand_nodes,
            "spot_nodes": planning.spot_nodes,
            "drainable_nodes": len(planning.plans),
            "pods_to_move": sum(len(plan.placements) for plan in planning.plans),
            "pending_pods": planning.pending.pods,
            "pending_cpu": planning.pending.cpu / 1000,
            "pending_memory": planning.pending.memory,
            "seconds": round(seconds, 6),
            "timed_out": planning.timed_out,
            "upper_bound": planning.upper_bound,
            "freed": _totals(overview.freed)
            | _money(overview.freed.worth)
            | {
                "by_instance_type": {
                    name: _totals(totals) | _money(totals.worth) for name, totals in overview.freed_by_type.items()
                }
            },
            "on_demand": _totals(overview.on_demand),
            "currency": overview.prices.currency,
            "levers": [_plan_json_lever(lever) for lever in overview.levers],
            "levers_complete": overview.levers_complete,
            "assumptions": list(overview.assumptions),
            "incomplete": overview.incomplete or None,
            "survival": overview.survival
            and {**survival_json(overview.survival), "seconds": round(overview.survival_seconds, 6)},
            "held": overview.held or None,
            "returning": overview.returning or None,
        },
    }


def _node(verdict: Verdict, overview: Overview) -> dict[str, Any]:
    plan = verdict if isinstance(verdict, Plan) else None
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    landing = plan.landing if plan else None
    facts = overview.nodes[verdict.node]
    price = overview.prices.per_hour(facts)
    return {
        "node": verdict.node,
        "drainable": plan is not None,
        "placements": [{"pod": str(item.pod), "node": item.node} for item in plan.placements] if plan else [],
        "surges": [surge.form() for surge in plan.surges] if plan else [],
        "blockers": [{"pod": item.pod, "reason": item.reason, "detail": item.detail} for item in blockers],
        "robust": plan.robust if plan else None,
        "landing": {"spot": landing.spot, "on_demand": landing.on_demand} if landing else None,
        "instance_type": facts.instance_type,
        "zone": facts.zone,
        "created": facts.created,
        "cpu": facts.cpu / 1000,
        "memory": facts.memory,
        "requested_cpu": facts.requested_cpu / 1000,
        "requested_memory": facts.requested_memory,
        "price_per_hour": None if price is None else float(price),
    }


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "nodes": totals.nodes,
        "cpu": totals.cpu / 1000,
        "memory": totals.memory,
        "price_per_hour": None if totals.per_hour is None else float(totals.per_hour),
        "price_per_month": None if totals.per_month is None else float(totals.per_month),
        "nodes_without_price": totals.unpriced,
    }


def _money(worth: Worth) -> dict[str, Any]:
    """Return what freed nodes save per month, without what commitments pay and without their share of spot nodes.

    Without prices, it is empty.
    """
    if worth.gross is None:
        return {}
    return {
        "net_per_month": _number(worth.net_per_month),
        "committed_per_month": _number(worth.committed_per_month),
        "spot_share_per_month": _number(worth.spot_per_month),
    }


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _plan_json_lever(lever: Lever) -> dict[str, Any]:
    return {
        "controller": lever.controller,
        "reason": str(lever.reason),
        "obstacle": lever.obstacle,
        "nodes": list(lever.nodes),
        "frees": list(lever.frees),
        "together_with": list(lever.together_with),
        "frees_together": list(lever.frees_together),
        "tried": lever.tried,
        "what_if": list(lever.to_try),
        "try": command_to_try(lever.to_try, typed=True) if lever.to_try else None,
        "price_per_month": _number(lever.worth.gross_per_month),
        **_money(lever.worth),
        "net_per_month_together": _number(lever.worth_together.net_per_month),
    }


# ``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others.


@click.command("plan", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@strict_option
@output_option
@Option(
    "--independent",
    Bool(),
    default=False,
    help="Evaluate each node by itself in the current state. Without this flag, the drains are planned in "
    "sequence, and each one leaves less room for the next.",
)
@Option(
    "--budgets-at-once",
    Bool(),
    default=False,
    help="Use each PodDisruptionBudget only once in the whole plan. Without this flag, a budget that allows one "
    "eviction now counts as allowing several in sequence, as the replacement pods become Ready. The daemon "
    "does so, and waits for the pods.",
)
@Option(
    "--budgets-in-steps",
    Bool(),
    default=True,
    hidden=True,
    help="The opposite of --budgets-at-once, and the default.",
)
@survive_option
@levers_option
@what_if_option
@from_daemon_option
@view_options
@compat_option
@policy_options
@price_options
@price_provider_and_list_options
@scheduling_options
@connection_options
def command(
    snapshot: str | None,
    strict: bool,  # noqa: FBT001 - click passes by keyword
    output: str,
    independent: bool,  # noqa: FBT001
    budgets_at_once: bool,  # noqa: FBT001
    budgets_in_steps: bool,  # noqa: FBT001
    survive: str,
    levers_timeout: timedelta,
    what_if_texts: tuple[str, ...],
    from_daemon: FromDaemon,
    view: View,
    policy: Policy,
    prices: PriceList,
    provider: Provider,
    scheduling: Scheduling,
    connection: ApiServerConnection,
) -> None:
    """Show which on-demand nodes can be drained now, where each pod would go, and what blocks the other nodes.

    Nothing in the cluster is changed. On large clusters reading takes some time; planning does not.
    """
    policy = replace(policy, budgets_in_steps=budgets_in_steps and not budgets_at_once, survive=enforced_survival())
    if independent and what_if_texts:
        raise UsageError("--what-if compares plans of all nodes in sequence: expected no --independent")
    view = view.listing_nodes(provider)
    _check(view, from_daemon, snapshot, output, what_if_texts, independent=independent)
    policy = with_profiles(policy, scheduling)
    hypotheses = parsed(what_if_texts, policy, scheduling)
    source = ClusterSource(snapshot, connection, scheduling)
    provider = replace(provider, nodes=tuple(filter(None, provider.nodes)))
    clock = SystemClock()

    def once() -> PlannedCluster:
        daemon = daemon_of(connection, from_daemon, clock) if snapshot is None else None
        cluster = read_and_plan(source, policy, prices, provider, clock, independent=independent, daemon=daemon)
        known = cluster.priced(provider)
        levers = cluster.levers(known, timedelta() if independent or hypotheses else levers_timeout, clock)
        overview = cluster.certified(cluster.overview(known, levers), Survive(survive), clock)
        if view.watch:
            clear_screen()
        if hypotheses:
            _show_comparison(cluster, overview, what_if_texts, hypotheses, output, clock)
        elif view.lever is not None:
            _show_lever(cluster, overview, view)
        else:
            _show_plan(cluster, overview, output, view)
        return cluster

    cluster = once()
    while view.watch:
        pause(WATCHED_EVERY.total_seconds())
        cluster = once()
    source.warn(cluster.snapshot, policy, strict=strict)
    for assumption in unknown_schedulers(what_if_texts):
        warn(f"warning: {assumption}")


def _check(
    view: View,
    from_daemon: FromDaemon,
    snapshot: str | None,
    output: str,
    what_if_texts: tuple[str, ...],
    *,
    independent: bool,
) -> None:
    """Raise UsageError if the options of the view contradict others."""
    if view.watch and (snapshot is not None or output not in ("table", "wide", "details")):
        raise UsageError("--watch: expected a live cluster, and -o table, wide or details")
    if snapshot is not None and from_daemon is FromDaemon.YES:
        raise UsageError("--from-daemon: expected a live cluster, because a file has no daemon")
    if view.patch and view.lever is None:
        raise UsageError("--patch: expected --lever, the number of the change to make")
    if view.lever is not None and (what_if_texts or independent):
        raise UsageError("--lever: expected no --what-if and no --independent, because they compute no levers")


def _show_lever(cluster: PlannedCluster, overview: Overview, view: View) -> None:
    """Print the lever with the number of *view*, or the commands that make its change in the cluster."""
    number, levers = view.lever or 0, overview.levers
    if not 1 <= number <= len(levers):
        known = f"expected 1 to {len(levers)}" if levers else "no change would free more nodes"
        raise UsageError(f"--lever={number}: no such lever: {known}")
    lever, names = levers[number - 1], NodeNames()
    if view.patch:
        for command_line in patch_commands(lever, cluster):
            say(command_line)
    else:
        show([Line(_lever(lever, overview, names))])
        say(command_to_try(lever.to_try, typed=True))


def patch_commands(lever: Lever, cluster: PlannedCluster) -> Iterator[str]:
    """Yield the command lines that make the change of *lever* in the cluster."""
    if lever.controller.startswith(f"{SETTING} "):
        yield f"# not a change in the cluster: add {lever.changes[0]} to the flags of rescheduler run, with two dashes"
        return
    shared = cluster.planner.round(cluster.circumstances)
    unpinning = Unpinning(cluster.snapshot, shared.room.filters, shared.groups.spot)
    for obstacle in lever.obstacles:
        change = change_for(obstacle, cluster.snapshot) if len(lever.obstacles) > 1 else lever.changes[0]
        found = list(patches_for(obstacle, change, cluster.snapshot, cluster.policy, unpinning))
        for target, patch in found:
            text = msgspec.json.encode(patch).decode()
            yield f"kubectl patch {shlex.join(target)} --type=merge -p {shlex.quote(text)}"
        if not found:
            yield f"# {obstacle}: change it where these pods are created; running pods cannot be changed"


def _show_plan(cluster: PlannedCluster, overview: Overview, output: str, view: View) -> None:
    now = cluster.circumstances.now
    match output:
        case "json":
            print_json(as_json(overview, cluster.seconds))
        case "yaml":
            print_yaml(as_json(overview, cluster.seconds))
        case "html":
            print_html(overview, now)
        case "wide" | "details":
            show(page(overview, cluster.snapshot, cluster.policy, now, wide=output == "wide"))
        case _ if view.nodes or view.sort_by:
            show(nodes_page(overview, cluster.snapshot, cluster.policy, now, page_width(), view.sort_by))
        case _:
            show(glance(overview, cluster.snapshot, cluster.policy, page_width()))


def _show_comparison(
    cluster: PlannedCluster,
    before: Overview,
    changes: tuple[str, ...],
    hypotheses: list[Hypothesis],
    output: str,
    clock: Clock,
) -> None:
    if output == "html":
        raise UsageError("--what-if: expected -o table, wide, json or yaml")
    began = clock.monotonic()
    with progress("planning with the changes"):
        outcome: HypotheticalPlan = what_if(cluster.snapshot, cluster.policy, cluster.circumstances, hypotheses)
    seconds = clock.monotonic() - began
    after = replace(cluster, snapshot=outcome.snapshot, planning=outcome.planning, seconds=seconds)
    if output in ("json", "yaml"):
        result = as_json(before, cluster.seconds)
        summaries = result["summary"], as_json(after.overview(before.prices), seconds)["summary"]
        result["what_if"] = what_if_json(changes, cluster.planning, outcome, summaries)
        (print_json if output == "json" else print_yaml)(result)
    else:
        overview = after.overview(before.prices)
        show(comparison(changes, before, overview, outcome.lost, outcome.rehearsal, outcome.each_pool))
