"""``rescheduler simulate``: the daemon in a simulated copy of a cluster, in virtual time."""

import datetime as dt
import json
import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from rescheduler.cli.cluster_source import compat_option, progress, snapshot_option
from rescheduler.cli.console import warn
from rescheduler.cli.go_flags import FILE, DurationType, GoCommand, Option
from rescheduler.cli.options import connection_options, scheduling_options, soft_taint_option
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.cli.run import drain_options, room_options, timing_options
from rescheduler.errors import InputError, UsageError
from rescheduler.planning.forms import and_more
from rescheduler.planning.policy import Survive
from rescheduler.settings import ApiServerConnection, MakeRoom, Provider, Running

if TYPE_CHECKING:
    from rescheduler.simulation.course import Course
    from rescheduler.simulation.daemon import DaemonSettings

#: Shown in the course of one run; the rest is in ``-o json``.
_LINES: Final = 60
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
#: Points of the line of blocks.
_POINTS: Final = 24
_HOUR: Final = 3600.0

#: Keys of the values that contexts of click share.
_ARGS: Final = "rescheduler.simulate.args"


class _RememberingCommand(GoCommand):
    """A command that keeps its arguments, so that ``--compare`` can add to them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGS] = list(args)
        return super().parse_args(ctx, args)


@click.command("simulate", cls=_RememberingCommand, context_settings={"help_option_names": ["-h", "--help"]})
@snapshot_option
@Option(
    "--for",
    DurationType(least=dt.timedelta(minutes=1)),
    to="duration",
    default="24h",
    help="How much time is simulated.",
)
@Option("--seed", click.IntRange(0), default=1, help="Where random numbers begin. The same seed has the same course.")
@Option(
    "--events",
    FILE,
    to="events_file",
    metavar="FILE",
    help="YAML file with what happens in the cluster, and when: workloads are scaled, spot nodes are lost.",
)
@Option(
    "--spot-loss",
    click.FloatRange(0),
    to="spot_loss",
    default=0.05,
    metavar="RATE",
    help="How often the cloud takes a spot node: losses for each node and day, on average. One in ten takes other "
    "nodes of the pool along. Lost nodes are replaced after 5m to 1h.",
)
@Option(
    "--machines",
    click.Choice(["pool", "cluster-autoscaler", "karpenter", "kept"]),
    default="pool",
    help="Who removes the machines of drained nodes. pool: a cloud provider, on request of the daemon. "
    "cluster-autoscaler, karpenter: this autoscaler, once they are empty; it also adds machines for pods that fit "
    "nowhere. kept: nobody.",
)
@Option(
    "--compare",
    multiple=True,
    metavar="FLAGS",
    help="Simulate the same cluster once more, with the same random numbers and these flags in addition, such as "
    "'--node-drain-delay=1m --survive=pool'. Repeatable.",
)
@Option(
    "--output",
    click.Choice(["table", "json"]),
    short="-o",
    default="table",
    help="table for people, json for programs.",
)
@compat_option
@policy_options
@timing_options
@soft_taint_option
@drain_options
@price_options
@scheduling_options
@room_options
@connection_options
@click.pass_context
def command(
    context: click.Context,
    /,
    snapshot: str | None,
    duration: dt.timedelta,
    seed: int,
    events_file: Path | None,
    spot_loss: float,
    machines: str,
    compare: tuple[str, ...],
    output: str,
    connection: ApiServerConnection,
    **flags: Any,
) -> "int | DaemonSettings":
    """Show what the daemon would do to a cluster.

    The cluster of a file, or of the kubeconfig, is copied into memory. There, the daemon itself runs in virtual time,
    with a simulated API server, controllers, scheduler, kubelets and cloud. Nothing in the real cluster is changed.
    The flags of `rescheduler run` for policy, timing, prices and room apply.

    \b
    rescheduler simulate -f cluster.json.gz --for 24h
    rescheduler simulate -f cluster.json.gz --compare '--survive=pool'
    """  # noqa: D301 - click reads the character
    daemon = _settings(machines, **flags)
    if context.meta.get(_ONLY_SETTINGS):
        return daemon
    from rescheduler.simulation import happenings, run, world  # noqa: PLC0415 - imported on demand
    from rescheduler.simulation.autoscaler import RULES as AUTOSCALERS  # noqa: PLC0415 - imported on demand

    with progress("reading the cluster"):
        items = _read(snapshot, connection)
    _check_nodes(items, daemon)
    args = tuple(context.meta[_ARGS])  # nested contexts share the values
    daemons = [daemon, *(_parsed(context, args, text) for text in compare)]
    if context.get_parameter_source("manage_soft_taint") is click.core.ParameterSource.DEFAULT and _has_soft_taint(
        items
    ):
        daemons = [replace(each, running=replace(each.running, manage_soft_taint=True)) for each in daemons]
        click.echo("note: nodes have the soft taint, so --manage-soft-taint applies", err=True)
    plan = run.RunPlan(
        items,
        world.WorldSettings(
            run.as_of(items),
            seed,
            spot_loss,
            removes_machines=machines == "pool",
            autoscaler=machines if machines in AUTOSCALERS else "",
            rules=daemon.running.scheduling.scheduler(_version(items)),
        ),
        duration.total_seconds(),
        happenings.read(events_file) if events_file is not None else (),
    )
    logging.getLogger("rescheduler").setLevel(logging.CRITICAL)  # the logs of the simulated daemon
    named = [("", daemons[0])] if not compare else [("as given", daemons[0]), *zip(compare, daemons[1:], strict=True)]
    courses = []
    for name, each in named:
        course, interrupted = _simulate(plan, each, name)
        courses.append((name, course))
        if interrupted:
            break
    _print(courses, output, daemon.prices.currency)
    return 0


_ONLY_SETTINGS: Final = "rescheduler.simulate.settings"


def _settings(machines: str, **flags: Any) -> "DaemonSettings":
    """Return the settings of the daemon. Raises UsageError."""
    from rescheduler.simulation.daemon import DaemonSettings  # noqa: PLC0415 - imported on demand

    policy, survive, windows = flags.pop("policy"), flags.pop("survive"), flags.pop("drain_windows")
    prices, room = flags.pop("prices"), flags["room"]
    if room.mode is MakeRoom.PROVIDER:
        raise UsageError("--make-room=provider: not simulated; expected placeholders or off")
    policy = replace(with_profiles(policy, flags["scheduling"]), drain_windows=windows, survive=Survive(survive))
    provider = Provider("simulated" if machines == "pool" else "none")
    return DaemonSettings(policy, Running(provider=provider, **flags), prices)


def _parsed(context: click.Context, given: Sequence[str], text: str) -> "DaemonSettings":
    """Return the settings with the flags *text* in addition to those *given*. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--compare {text!r}: {error}") from error
    args = [*given, *words]
    nested = context.command.make_context(context.info_name, args, parent=context.parent)
    nested.meta[_ONLY_SETTINGS] = True
    try:
        with nested:
            settings: DaemonSettings = context.command.invoke(nested)
    finally:
        nested.meta[_ONLY_SETTINGS] = False
    return settings


def _read(snapshot: str | None, connection: ApiServerConnection) -> list[dict[str, Any]]:
    from rescheduler.simulation.store import KINDS  # noqa: PLC0415 - imported on demand
    from rescheduler.snapshot_file.reader import raw_items  # noqa: PLC0415 - imported on demand

    kinds = {each.kind for each in KINDS.values()} - {"Event", "ConfigMap", "Lease"} | {"ServerVersion"}
    if snapshot is not None:
        return [msgspec.json.decode(item) for item in raw_items(snapshot, kinds)]
    from rescheduler.housekeeping.command_reads import dump_cluster  # noqa: PLC0415 - the client is imported on demand

    return [msgspec.json.decode(item) for item in dump_cluster(connection, lambda text: warn(f"warning: {text}"))]


def _version(items: Sequence[dict[str, Any]]) -> str:
    return next((str(item.get("gitVersion", "")) for item in items if item["kind"] == "ServerVersion"), "")


def _check_nodes(items: Sequence[dict[str, Any]], daemon: "DaemonSettings") -> None:
    labels = [item["metadata"].get("labels") or {} for item in items if item["kind"] == "Node"]
    for flag, wanted in (
        ("--on-demand-label", daemon.policy.on_demand_label),
        ("--spot-label", daemon.policy.spot_label),
    ):
        if not any(map(wanted.matches, labels)):
            raise InputError(f"no node matches {flag} {wanted}; expected at least one of {len(labels)} nodes")


def _has_soft_taint(items: Sequence[dict[str, Any]]) -> bool:
    from rescheduler.housekeeping.node_writes import SOFT_TAINT  # noqa: PLC0415 - imported on demand

    nodes = (item for item in items if item["kind"] == "Node")
    return any(taint["key"] == SOFT_TAINT.key for node in nodes for taint in node.get("spec", {}).get("taints") or ())


def _simulate(plan: Any, daemon: "DaemonSettings", name: str) -> "tuple[Course, bool]":
    """Simulate one setting. Return its course, and whether it was interrupted."""
    from rescheduler.net.server import on_signals  # noqa: PLC0415 - imported on demand
    from rescheduler.simulation import run  # noqa: PLC0415 - imported on demand

    stopped: list[str] = []
    shown = sys.stderr.isatty()

    def advanced(share: float) -> None:
        if shown:
            print(f"\r\033[Ksimulated {100 * share:.0f} % {name}", end="", file=sys.stderr, flush=True)  # noqa: T201
        if stopped:
            raise KeyboardInterrupt

    with on_signals(stopped.append):
        course = run.simulate(plan, daemon, advanced)
    if shown:
        print("\r\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201
    return course, bool(stopped)


# The output.


def _print(courses: "Sequence[tuple[str, Course]]", output: str, currency: str) -> None:
    if output == "json":
        runs = [{"flags": name, **course.to_json()} for name, course in courses]
        click.echo(json.dumps({"simulations": runs}, indent=2))
        return
    if len(courses) == 1:
        for line in _course(courses[0][1]):
            click.echo(line)
        click.echo()
    for line in table(courses, currency):
        click.echo(line)


def table(courses: "Sequence[tuple[str, Course]]", currency: str) -> list[str]:
    """Return the figures of all settings, side by side."""
    columns = [_figures(course, currency) for _, course in courses]
    names = [name or "result" for name, _ in courses]
    width = max(len(label) for label in columns[0])
    widths = [
        max(len(name), *(len(text) for text in column.values())) for name, column in zip(names, columns, strict=True)
    ]
    lines = [" " * width + "  " + "  ".join(f"{name:<{size}}" for name, size in zip(names, widths, strict=True))]
    for label in columns[0]:
        cells = "  ".join(f"{column[label]:<{size}}" for column, size in zip(columns, widths, strict=True))
        lines.append(f"{label:<{width}}  {cells}".rstrip())
    return lines


def _figures(course: "Course", currency: str) -> dict[str, str]:
    """Return the figures of one setting by name."""
    figures = course.summary()
    money, below, pending = figures["moneySaved"], figures["ownersBelowWanted"], figures["podsPending"]
    failed = ", ".join(f"{count} {reason}" for reason, count in figures["drains"]["failed"].items())
    nodes = figures["onDemandNodes"]
    found = {
        "on-demand nodes": f"{nodes['start']} → {nodes['end']}  {_blocks(course)}",
        "on-demand node-hours saved": f"{figures['onDemandNodeHoursSaved']:.1f} in {figures['hours']:g} h",
        "drains done": str(figures["drains"]["done"]),
        "drains failed": failed or "0",
        "evictions": str(figures["evictions"]),
        "spot nodes lost": str(figures["spotNodes"]["lost"]),
        "owners below the wanted number": f"{below['times']} times, {_span(below['seconds'])} in total, longest "
        f"{_span(below['longestSeconds'])}"
        if below["times"]
        else "never",
        "pods Pending for more than 1m": f"{pending['pods']}, longest {_span(pending['longestSeconds'])}"
        if pending["pods"]
        else "0",
        "longest landing": _span(figures["longestLandingSeconds"]),
    }
    if money is not None:
        found["money saved, net"] = f"{currency}{money:,.2f}"
    return found


def _blocks(course: "Course") -> str:
    """Return the number of on-demand nodes over time as a line of blocks."""
    values = [course.on_demand_at(course.seconds * (point + 1 / 2) / _POINTS) for point in range(_POINTS)]
    most = max(nodes for _, nodes in course.on_demand) or 1
    return "".join(_BLOCKS[round(value / most * (len(_BLOCKS) - 1))] for value in values)


def _span(seconds: float) -> str:
    """Return a length of time for people: ``45s``, ``12m``, ``3.5h``."""
    if seconds < 2 * 60:
        return f"{seconds:.0f}s"
    return f"{seconds / 60:.0f}m" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f}h"


def _course(course: "Course") -> list[str]:
    """Return what happened, one line each."""
    lines = [f"{int(line.at // _HOUR):02d}:{int(line.at % _HOUR // 60):02d}  {line.text}" for line in course.lines]
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], and_more(len(lines) - _LINES, "; -o json has all", "… ")]
    return lines
