"""``rescheduler plan``: which on-demand nodes can be drained now, and what blocks the others."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, NoReturn

import click

from rescheduler.cli.buy import SHOWN, buy_option, check_purchases, purchase_facts, purchase_part
from rescheduler.cli.cluster_source import (
    ClusterSource,
    compat_option,
    output_option,
    progress,
    snapshot_option,
    strict_option,
)
from rescheduler.cli.console import clear_screen, page_width, say, show
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.node_table import SORT_KEYS
from rescheduler.cli.options import connection_options, group, installation_options, scheduling_options
from rescheduler.cli.output import as_json, json_bytes, plain, print_html, print_json, print_yaml
from rescheduler.cli.plan_data import (
    FromDaemon,
    PlannedCluster,
    check_daemon,
    daemon_of,
    enforced_survival,
    from_daemon_option,
    levers_option,
    of_the_named,
    price_provider_and_list_options,
    read_and_plan,
    survive_option,
)
from rescheduler.cli.plan_page import glance, nodes_page, page
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.cli.tree_lines import page_lines
from rescheduler.cli.what_if import comparison, parsed, what_if_facts, what_if_option
from rescheduler.clock import Clock, SystemClock, pause
from rescheduler.errors import UsageError
from rescheduler.pages.plan_tree import lever_details
from rescheduler.pages.tree import Line
from rescheduler.planning.forms import utc
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.comparison import Hypothesis, added_nodes, what_if
from rescheduler.planning.what_if.overview import NO_LEVERS, SETTING, Lever, Overview, tried, what_if_flags
from rescheduler.planning.what_if.remedies import change_for, patches_for
from rescheduler.planning.what_if.unpinning import Unpinning
from rescheduler.settings import ApiServerConnection, NamedInstallation, Provider, Scheduling

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


#: Passes ``in_steps: bool``: whether a budget may be used again once the replacement pods run.
budget_options: Final = group(
    "in_steps",
    lambda *, budgets_at_once, budgets_in_steps: budgets_in_steps and not budgets_at_once,
    (
        Option(
            "--budgets-at-once",
            Bool(),
            default=False,
            help="Use each PodDisruptionBudget only once in the whole plan. Without this flag, a budget that allows "
            "one eviction now counts as allowing several in sequence, as the replacement pods become Ready. The daemon "
            "does so, and waits for the pods.",
        ),
        Option(
            "--budgets-in-steps",
            Bool(),
            default=True,
            hidden=True,
            help="The opposite of --budgets-at-once, and the default.",
        ),
    ),
)


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
@budget_options
@survive_option
@levers_option
@what_if_option
@buy_option
@from_daemon_option
@installation_options
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
    in_steps: bool,  # noqa: FBT001
    survive: str,
    levers_timeout: timedelta,
    what_if_texts: tuple[str, ...],
    buy: bool,  # noqa: FBT001
    from_daemon: FromDaemon,
    named: NamedInstallation,
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
    policy = replace(policy, budgets_in_steps=in_steps, judge_controllers=True, survive=enforced_survival())
    policy = with_profiles(policy, scheduling)
    view = view.listing_nodes(provider)
    from_daemon = of_the_named(named, from_daemon)
    _check(view, from_daemon, snapshot, output, what_if_texts, levers_timeout, independent=independent)
    _check_buy(view, output, what_if_texts, independent=independent) if buy else None
    hypotheses, notes = parsed(what_if_texts, policy, scheduling)
    creators = buy or any(isinstance(each, AddSpot) and (each.group or each.needs_size) for each in hypotheses)
    source, clock = ClusterSource(snapshot, connection, scheduling, creators), SystemClock()
    provider = replace(provider, nodes=tuple(filter(None, provider.nodes)))

    def once() -> PlannedCluster:
        daemon = daemon_of(connection, from_daemon, clock, named, snapshot)
        cluster = read_and_plan(source, policy, prices, provider, clock, independent=independent, daemon=daemon)
        known = cluster.priced(provider)
        levers = NO_LEVERS if independent or hypotheses or buy else cluster.levers(known, levers_timeout, clock)
        overview = cluster.overview(known, levers)
        overview = cluster.certified(overview, Survive(survive), clock, with_tradeoff=_shows_tradeoff(output, policy))
        whole = output in ("html", "json", "yaml")
        if not hypotheses and (whole or not buy):
            overview = cluster.with_curve(overview, levers_timeout, clock, whole=whole)
        if view.watch:
            clear_screen()
            say(f"Every {WATCHED_EVERY.total_seconds():.0f} s, now {utc(cluster.facts.circumstances.now)}")
        if buy:
            _show_purchases(cluster, overview, Survive(survive), output, clock)
        elif hypotheses:
            _show_comparison(cluster, overview, what_if_texts, hypotheses, output, clock)
        else:
            source.shown(_show_plan(cluster, overview, output, view))
        return cluster

    cluster = _watched(once) if view.watch else once()
    source.warn(cluster.facts.snapshot, policy, cluster.assumed, cluster.incomplete, strict=strict)
    for note in notes:
        source.warn_once(note)


def _shows_tradeoff(output: str, policy: Policy) -> bool:
    """Return whether the output has the table of nodes freed by share of losses survived, which takes time."""
    limited = policy.survive is not Survive.OFF or bool(policy.fallback_headroom)
    return output == "html" or (limited and output in ("json", "yaml"))


def _watched(once: Callable[[], PlannedCluster]) -> NoReturn:
    """Show the plan again and again, until the process is interrupted."""
    while True:
        once()
        pause(WATCHED_EVERY.total_seconds())


def _check(
    view: View,
    from_daemon: FromDaemon,
    snapshot: str | None,
    output: str,
    what_if_texts: tuple[str, ...],
    levers_timeout: timedelta,
    *,
    independent: bool,
) -> None:
    """Raise UsageError if options contradict each other."""
    if independent and what_if_texts:
        raise UsageError("--what-if compares plans of all nodes in sequence: expected no --independent")
    if view.watch and (snapshot is not None or output not in ("table", "wide", "details")):
        raise UsageError("--watch: expected a live cluster, and -o table, wide or details")
    check_daemon(snapshot, from_daemon)
    if view.patch and view.lever is None:
        raise UsageError("--patch: expected --lever, the number of the change to make")
    if view.lever is not None and (what_if_texts or independent):
        raise UsageError("--lever: expected no --what-if and no --independent, because they compute no levers")
    if view.lever is not None and not levers_timeout:
        raise UsageError("--lever: expected a --levers-timeout above 0, because without it no levers are tried")


def _check_buy(view: View, output: str, what_if_texts: tuple[str, ...], *, independent: bool) -> None:
    """Raise UsageError if options contradict ``--buy``."""
    if independent or what_if_texts or view.watch or view.lever is not None:
        raise UsageError("--buy: expected no --independent, --what-if, --watch and --lever")
    if output == "html":
        raise UsageError("--buy: expected -o table, wide, json or yaml")


def _show_purchases(cluster: PlannedCluster, overview: Overview, survive: Survive, output: str, clock: Clock) -> None:
    found = cluster.purchases(overview.prices, survive, SHOWN, clock)
    check_purchases(found)
    if output in ("json", "yaml"):
        result = as_json(overview, cluster.seconds) | {"buy": plain(purchase_facts(found, overview.command))}
        (print_json if output == "json" else print_yaml)(result)
    else:
        show(page_lines([purchase_part(found, overview.prices)], details=True))


def _show_lever(cluster: PlannedCluster, overview: Overview, view: View) -> None:
    """Print the lever with the number of *view*, or the commands that make its change in the cluster."""
    number, levers = view.lever or 0, overview.levers
    if not 1 <= number <= len(levers):
        without = f"there is no spot node: try {what_if_flags([overview.first_spot])}" if overview.first_spot else ""
        known = f"expected 1 to {len(levers)}" if levers else without or "no change would free more nodes"
        if not overview.levers_complete:
            known = f"{known if levers else 'none was tried'}; the --levers-timeout ended the trials"
        raise UsageError(f"--lever={number}: no such lever: {known}")
    lever = levers[number - 1]
    if view.patch:
        for command_line in patch_commands(lever, cluster):
            say(command_line)
        return
    risk = "" if lever.risk is None else f"; {lever.risk.text}"
    show([Line(lever.what), Line(f"{lever_details(lever, overview)}{risk}", 1)])
    say(tried(overview.command, lever.to_try))


def patch_commands(lever: Lever, cluster: PlannedCluster) -> Iterator[str]:
    """Yield the command lines that make the changes in the cluster that ``lever.to_try`` tries."""
    if lever.risk is not None:
        yield f"# {lever.risk.text}"
    edits = list(zip(lever.partners, lever.changes_together, strict=True)) if not lever.frees else []
    if lever.controller.startswith(f"{SETTING} "):
        yield f"# not a change in the cluster: add --{lever.changes[0]} to the flags of rescheduler run"
    else:
        alone = len(lever.obstacles) == 1
        own = (
            (each, lever.changes[0] if alone else change_for(each, cluster.facts.snapshot)) for each in lever.obstacles
        )
        edits = [*own, *edits]
    shared = cluster.planner.round(cluster.facts.circumstances)
    unpinning = Unpinning(cluster.facts.snapshot, shared.room.filters, shared.groups.spot)
    for obstacle, change in edits:
        found = list(patches_for(obstacle, change, cluster.facts.snapshot, cluster.facts.policy, unpinning))
        for target, patch in found:
            text = json_bytes(patch).decode()
            yield f"kubectl patch {shlex.join(target)} --type=merge -p {shlex.quote(text)}"
        if not found:
            yield f"# {obstacle}: change it where these pods are created; running pods cannot be changed"


def _show_plan(cluster: PlannedCluster, overview: Overview, output: str, view: View) -> list[Line]:
    """Print the plan. Return the lines of its page; none in the other formats."""
    if view.lever is not None:
        _show_lever(cluster, overview, view)
        return []
    now = cluster.facts.circumstances.now
    match output:
        case "json":
            print_json(as_json(overview, cluster.seconds))
            return []
        case "yaml":
            print_yaml(as_json(overview, cluster.seconds))
            return []
        case "html":
            print_html(overview, now)
            return []
        case "wide" | "details":
            lines = list(page(overview, cluster.facts.snapshot, now, wide=output == "wide"))
        case _ if view.nodes or view.sort_by:
            lines = list(nodes_page(overview, now, page_width(), view.sort_by))
        case _:
            lines = list(glance(overview, page_width()))
    show(lines)
    return lines


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
        facts = cluster.facts
        circumstances = cluster.circumstances_with(before.prices)
        outcome = what_if(facts.snapshot, facts.policy, facts.circumstances, hypotheses, circumstances)
    seconds = clock.monotonic() - began
    prices, added = added_nodes(facts.snapshot, facts.policy, outcome, before.prices)
    changed = replace(
        cluster,
        facts=replace(facts, snapshot=outcome.snapshot, policy=outcome.policy),
        planning=outcome.planning,
        moves=outcome.moves,
        seconds=seconds,
    )
    after = changed.overview(prices)
    if output in ("json", "yaml"):
        result = as_json(before, cluster.seconds)
        summaries = result["summary"], as_json(after, seconds)["summary"]
        result["what_if"] = plain(what_if_facts(changes, (before, after), outcome, summaries, added))
        (print_json if output == "json" else print_yaml)(result)
    else:
        show(comparison(changes, before, after, outcome, added))
