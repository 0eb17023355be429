"""``rescheduler simulate``: the daemon in a simulated copy of a cluster, in virtual time."""

import copy
import datetime as dt
import json
import logging
import os
import shlex
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.core import ParameterSource

from predicates.texts import quoted
from rescheduler.cli.cluster_source import compat_option, progress, snapshot_option
from rescheduler.cli.console import warn
from rescheduler.cli.go_flags import FILE, DurationType, GoCommand, Option, Parsed
from rescheduler.cli.options import connection_options, scheduling_options, soft_taint_option
from rescheduler.cli.output import write_output
from rescheduler.cli.plan_data import FromDaemon, daemon_of
from rescheduler.cli.policy_options import policy_options, price_options, with_profiles
from rescheduler.cli.run import command as run_command
from rescheduler.cli.run import drain_options, room_options, timing_options
from rescheduler.cli.simulated_courses import as_page, text_of
from rescheduler.clock import SystemClock
from rescheduler.errors import InputError, UsageError
from rescheduler.planning.policy import Survive
from rescheduler.planning.pools import pool_of
from rescheduler.settings import ApiServerConnection, MakeRoom, Provider, Running

if TYPE_CHECKING:
    from rescheduler.simulation.course import Course
    from rescheduler.simulation.daemon import DaemonSettings
    from rescheduler.simulation.run import RunPlan

#: Keys of the values that contexts of click share.
_ARGS: Final = "rescheduler.simulate.args"
_ONLY_SETTINGS: Final = "rescheduler.simulate.settings"

_MEASURED: Final = "measured"
#: Losses per node and day, if nothing is given.
_LOSSES: Final = 0.05
_EXPECTED_LOSSES: Final = "expected losses per node and day such as 0.5, POOL=RATE, or measured"


class _RememberingCommand(GoCommand):
    """A command that keeps its arguments, so that ``--compare`` can add to them. It accepts all flags of ``run``."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        own = {name for param in self.params for name in param.opts}
        for option in run_command.params:
            if not isinstance(option, click.Option) or not own.isdisjoint(option.opts):
                continue
            accepted = copy.copy(option)
            accepted.hidden = option.name not in _OF_THE_DAEMON
            accepted.expose_value = option.name in _OF_THE_DAEMON
            self.params.append(accepted)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGS] = list(args)
        return super().parse_args(ctx, args)


#: Parameters of ``run`` beside the groups below that matter in a simulation.
_OF_THE_DAEMON: Final = frozenset({"dry_run"})


def _loss(text: str) -> tuple[str, float]:
    """Parse ``RATE``, ``POOL=RATE`` or ``measured``. Return the pool, "" for all, and the rate."""
    pool, _, rate = text.rpartition("=")
    try:
        number = 0.0 if text == _MEASURED else float(rate)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ValueError(f"{text!r}: {_EXPECTED_LOSSES}")
    return (_MEASURED if text == _MEASURED else pool), number


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
    Parsed(_loss, "rate"),
    to="spot_loss",
    multiple=True,
    metavar="[POOL=]RATE",
    help="How often the cloud takes a spot node: losses for each node and day, on average. Repeatable: of one pool, as "
    "in eu-west-1a/m5.large=0.5 (see --spot-pool-label). measured: the rates that the cluster's daemon has "
    "measured. One loss in ten takes other nodes of the pool along. Lost nodes are replaced after 5m to 1h.  "
    f"[default: {_LOSSES}]",
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
@Option(
    "--output-file",
    metavar="FILE",
    default="",
    help="Also write an HTML page with pictures to FILE: nodes, money and missing pods over time. -: only the page, "
    "on standard output.",
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
    spot_loss: tuple[tuple[str, float], ...],
    machines: str,
    compare: tuple[str, ...],
    output: str,
    output_file: str,
    connection: ApiServerConnection,
    **flags: Any,
) -> "int | DaemonSettings":
    """Show what the daemon would do to a cluster.

    The cluster of a file, or of the kubeconfig, is copied into memory. There, the daemon itself runs in virtual time,
    with a simulated API server, controllers, scheduler, kubelets and cloud. Nothing in the real cluster is changed.
    The flags of `rescheduler run` are accepted, and those of the daemon's decisions apply.

    \b
    rescheduler simulate -f cluster.json.gz --for 24h
    rescheduler simulate -f cluster.json.gz --compare '--survive=pool'
    rescheduler simulate -f cluster.json.gz --output-file page.html
    """  # noqa: D301 - click reads the character
    daemon = _settings(machines, **flags)
    if context.meta.get(_ONLY_SETTINGS):
        return daemon
    _check_file(output_file)
    args = tuple(context.meta[_ARGS])  # nested contexts share the values
    daemons = {"as given" if compare else "": daemon}
    daemons |= {text: daemon_settings(context, args, text) for text in compare}
    everywhere, of_pools = spot_losses(spot_loss, snapshot, connection)
    from rescheduler.simulation import happenings, run, world  # noqa: PLC0415 - imported on demand
    from rescheduler.simulation.autoscaler import RULES as AUTOSCALERS  # noqa: PLC0415 - imported on demand

    events = () if events_file is None else happenings.read(events_file)
    with progress("reading the cluster"):
        items = _read(snapshot, connection)
    for each in daemons.values():
        _check_nodes(items, each)
    _check_pools({pool for pool, _ in spot_loss} - {"", _MEASURED}, items, daemon)
    if context.get_parameter_source("manage_soft_taint") is ParameterSource.DEFAULT and _has_soft_taint(items):
        daemons = {
            name: replace(each, running=replace(each.running, manage_soft_taint=True)) for name, each in daemons.items()
        }
        click.echo("note: nodes have the soft taint, so --manage-soft-taint applies", err=True)
    settings = world.WorldSettings(
        run.as_of(items),
        seed,
        everywhere,
        removes_machines=machines == "pool",
        autoscaler=machines if machines in AUTOSCALERS else "",
        rules=daemon.running.scheduling.scheduler(_version(items)),
        pool_losses=of_pools,
    )
    plan = run.RunPlan(items, settings, duration.total_seconds(), events)
    logging.getLogger("rescheduler").setLevel(logging.CRITICAL)  # the logs of the simulated daemon
    courses = {}
    for name, each in daemons.items():
        courses[name], interrupted = _simulate(plan, each, name)
        if interrupted:
            break
    _write(courses, output, output_file)
    return 0


def _write(courses: "dict[str, Course]", output: str, output_file: str) -> None:
    """Print the courses as text or JSON, and write the page to *output_file*, if there is one."""
    if output_file != "-":
        runs = [{"flags": name, **course.to_json()} for name, course in courses.items()]
        click.echo(
            json.dumps({"simulations": runs}, indent=2) if output == "json" else text_of(courses), nl=output == "json"
        )
    if output_file:
        write_output(as_page(courses), output_file)
        click.echo(f"the page: {output_file}", err=True)


def _check_file(output_file: str) -> None:
    """Raise UsageError if the page cannot be written: that is known before a long simulation."""
    if output_file in ("", "-"):
        return
    path = Path(output_file)
    if not path.parent.is_dir():
        raise UsageError(f"--output-file {output_file}: cannot write there: {path.parent} is not a directory")
    if path.is_dir():
        raise UsageError(f"--output-file {output_file}: cannot write there: it is a directory; expected a file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--output-file {output_file}: cannot write there: permission denied")


def spot_losses(
    given: Sequence[tuple[str, float]], snapshot: str | None, connection: ApiServerConnection
) -> tuple[float, dict[str, float]]:
    """Return the losses per node and day, and those of pools for which another rate is given or measured."""
    named = dict(given)
    if _MEASURED not in named:
        return named.pop("", _LOSSES), named
    if snapshot is not None:
        raise UsageError("--spot-loss=measured: expected a cluster with a daemon, because a file has none")
    clock = SystemClock()
    daemon = daemon_of(connection, FromDaemon.YES, clock)
    memory = daemon.memory if daemon is not None else None
    if memory is None:
        raise InputError("--spot-loss=measured: the memory of the daemon cannot be read")
    now = clock.now()
    measured = {pool: record.decayed(now).per_node_hour * 24 for pool, record in memory.pools.by_pool.items()}
    del named[_MEASURED]
    return named.pop("", 0.0), {**measured, **named}


def _settings(machines: str, **flags: Any) -> "DaemonSettings":
    """Return the settings of the daemon. Raises UsageError."""
    from rescheduler.simulation.daemon import SLOW, DaemonSettings  # noqa: PLC0415 - imported on demand

    policy, survive, windows = flags.pop("policy"), flags.pop("survive"), flags.pop("drain_windows")
    prices, room = flags.pop("prices"), flags["room"]
    if room.mode is MakeRoom.PROVIDER:
        raise UsageError("--make-room=provider: not simulated; expected placeholders or off")
    policy = replace(with_profiles(policy, flags["scheduling"]), drain_windows=windows, survive=Survive(survive))
    provider = Provider("simulated" if machines == "pool" else "none")
    return DaemonSettings(policy, Running(provider=provider, **flags), prices, SLOW, is_read=False)


def daemon_settings(context: click.Context, given: Sequence[str], text: str) -> "DaemonSettings":
    """Return the settings of the daemon with the flags *text* in addition to those *given*. Raises UsageError."""
    where = f"--compare {text!r}"
    try:
        words = shlex.split(text)
        nested = context.command.make_context(context.info_name, words, parent=context.parent)
        for param in nested.command.params:
            typed = nested.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
            if typed and param.name in _OF_THE_CLUSTER:
                raise UsageError(f"{where}: {param.opts[0]} is the same in all runs; expected flags of rescheduler run")
        nested = context.command.make_context(context.info_name, [*given, *words], parent=context.parent)
    except (ValueError, click.UsageError) as error:
        why = error.format_message() if isinstance(error, click.UsageError) else str(error)
        raise UsageError(f"{where}: {why}") from error
    return settings_of(nested)


def settings_of(context: click.Context) -> "DaemonSettings":
    """Return the settings of the daemon by the flags in *context* of this command. Raises UsageError."""
    context.meta[_ONLY_SETTINGS] = True
    try:
        with context:
            settings: DaemonSettings = context.command.invoke(context)
    finally:
        context.meta[_ONLY_SETTINGS] = False
    return settings


#: Parameters of the simulated cluster and of the output, which all runs have in common.
_OF_THE_CLUSTER: Final = frozenset(
    {
        *("snapshot", "duration", "seed", "events_file", "spot_loss", "machines", "compare", "output", "output_file"),
        *("kubeconfig", "context"),
    }
)


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
    labels = _labels_of_nodes(items)
    for flag, wanted in (
        ("--on-demand-node-label", daemon.policy.on_demand_label),
        ("--spot-node-label", daemon.policy.spot_label),
    ):
        if not any(map(wanted.matches, labels)):
            raise InputError(f"no node matches {flag} {wanted}; expected at least one of {len(labels)} nodes")


def _labels_of_nodes(items: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    return [item["metadata"].get("labels") or {} for item in items if item["kind"] == "Node"]


def _check_pools(given: Collection[str], items: Sequence[dict[str, Any]], daemon: "DaemonSettings") -> None:
    """Raise InputError if no spot node is of a pool whose losses are *given*."""
    labels = _labels_of_nodes(items)
    policy = daemon.policy
    known = sorted({pool_of(each, policy.spot_pool_labels) for each in labels if policy.spot_label.matches(each)})
    for pool in sorted(set(given) - set(known)):
        raise InputError(f"--spot-loss: no spot node is of pool {quoted(pool)}; expected one of {', '.join(known)}")


def _has_soft_taint(items: Sequence[dict[str, Any]]) -> bool:
    from rescheduler.housekeeping.node_writes import SOFT_TAINT  # noqa: PLC0415 - imported on demand

    specs = (item.get("spec") or {} for item in items if item["kind"] == "Node")
    return any(taint.get("key") == SOFT_TAINT.key for spec in specs for taint in spec.get("taints") or ())


def _simulate(plan: "RunPlan", daemon: "DaemonSettings", name: str) -> "tuple[Course, bool]":
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
