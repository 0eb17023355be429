"""``rescheduler status``: the leader, pauses, the drain in progress, and the stored memory."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import click

from predicates.texts import escaped
from rescheduler.cli.console import show, warn
from rescheduler.cli.go_flags import DurationType, GoCommand, Option, format_duration
from rescheduler.cli.options import command_for, connection_options, found_memory_option, installation_options
from rescheduler.cli.output import print_yaml
from rescheduler.clock import SystemClock
from rescheduler.pages.tree import Line
from rescheduler.planning.forms import age, count, instant
from rescheduler.settings import MEMORY_NAME, ApiServerConnection, NamedInstallation


@click.command("status", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--output",
    click.Choice(["table", "json", "yaml"]),
    short="-o",
    default="table",
    help="table: text for people. json and yaml: the same as one object.",
)
@Option(
    "--node-drain-delay",
    DurationType(),
    help="The drain delay of the daemon. It determines the waiting reason drain-delay. Default: the one that the "
    "daemon has stored; without it, that reason is not known.",
)
@Option(
    "--landing-timeout",
    DurationType(),
    help="The landing timeout of the daemon, in the same way. Owed pods keep all drains waiting for this time only.",
)
@connection_options
@installation_options
@found_memory_option
def command(
    output: str,
    node_drain_delay: timedelta | None,
    landing_timeout: timedelta | None,
    connection: ApiServerConnection,
    named: NamedInstallation,
    memory_name: str | None,
) -> int:
    """Show which replica leads, whether and why drains wait, which node is being drained, and what earlier drains owe.

    Everything is read from the cluster: the Lease, the ConfigMap with the memory, and the annotations of the nodes. The
    daemon is not contacted, so this also works while it is not running; then the exit code is 1. A dry run stores
    nothing, and is found by its pod. The daemon's status page shows more.
    """
    from rescheduler.housekeeping.command_reads import Installation, read_status  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.installations import InstallationFinder, config_map_of, holder  # noqa: PLC0415
    from rescheduler.kube.memory import MEMORY_KEY  # noqa: PLC0415

    clock = SystemClock()
    finder = InstallationFinder(connect(connection, clock), clock.now(), command_for)
    lease = finder.find(named, lambda _: True)
    memory = config_map_of(finder.client, lease, memory_name, MEMORY_NAME, MEMORY_KEY)
    installation = Installation(
        lease.metadata.namespace, lease.metadata.name, memory.name, node_drain_delay, landing_timeout
    )
    status = read_status(finder.client, clock, installation).as_json()
    match output:
        case "json":
            click.echo(escaped(json.dumps(status, ensure_ascii=False, indent=2)))
        case "yaml":
            print_yaml(status)
        case _:
            show(map(Line, lines(status)))
    if holder(lease, finder.now) or status["dryRuns"]:
        return 0
    warn(
        f"no daemon holds Lease {installation.identity}: it is stopped, is a dry run or elects no leader; "
        f"{finder.elsewhere()}"
    )
    return 1


def lines(status: dict[str, Any]) -> Iterator[str]:
    """Return *status*, the object printed by ``-o json``, as lines for people."""
    waiting, paused, ago = status["waiting"], status["paused"], _Ages(instant(status["at"]))
    renewed = f", renewed {ago.of(status['leaseRenewed'])}" if status["leader"] and status["leaseRenewed"] else ""
    yield f"Installation  {status['installation']}"
    yield f"Leader        {status['leader'] or 'none'}{renewed}"
    for pod in status["dryRuns"]:
        where = status["installation"].partition("/")[0]
        yield f"Dry run       pod {pod}: it drains nothing, holds no Lease and stores nothing; its page is"
        yield f"              localhost:9235/statusz after kubectl -n {where} port-forward pod/{pod} 9235"
    yield f"Paused        {_pause(paused) if paused else 'no'}"
    yield f"Waiting       {waiting['reason'] + ': ' + waiting['detail'] if waiting else 'no reason stored'}"
    settings = status["settings"]
    last = ", ".join(filter(None, [status["lastDrainNode"], ago.of(status["lastDrain"])]))
    yield f"Last drain    {last or 'none'}"
    yield f"Drain delay   {_delay(settings['nodeDrainDelaySeconds'])}"
    yield from (f"Drain window  {window}" for window in settings["drainWindows"])
    for title, key, row in (
        ("Draining", "draining", _drain_row),
        ("Cooling down", "coolingDown", _cooldown_row),
        ("Owed", "owed", _owed_row),
        ("Not recovered", "notRecovered", _not_recovered_row),
        ("Spot pools", "spotPools", _pool_row),
    ):
        rows = [row(entry, ago) for entry in status[key]]
        yield f"{title:<13} {rows[0] if rows else 'none'}"
        yield from (f"{'':<13} {text}" for text in rows[1:])


def _delay(seconds: float | None) -> str:
    return "not known: the daemon has not stored it" if seconds is None else format_duration(timedelta(seconds=seconds))


def _pause(paused: dict[str, Any]) -> str:
    until = f"until {paused['until']}" if paused["until"] else "until rescheduler resume"
    unreadable = f"; the annotation cannot be read: {paused['unreadable']!r}" if paused["unreadable"] else ""
    return until + (f": {paused['reason']}" if paused["reason"] else "") + unreadable


@dataclass(frozen=True, slots=True)
class _Ages:
    """Writes moments of the past as people read them."""

    now: datetime | None

    def of(self, moment: str | None) -> str:
        """Return how long ago *moment* was; the moment itself if that is not known, and "" if there is none."""
        old = age(moment, self.now) if self.now is not None else ""
        return f"{old} ago" if old else moment or ""


def _drain_row(drain: dict[str, Any], ago: _Ages) -> str:
    if drain["step"] is None:
        return f"{drain['node']}: its mark cannot be read"
    return f"{drain['node']}: {drain['step']}, begun {ago.of(drain['since'])} by {drain['holder']}"


def _cooldown_row(cooldown: dict[str, Any], _: _Ages) -> str:
    detail = f": {cooldown['detail']}" if cooldown["detail"] else ""
    return f"{cooldown['node']}: until {cooldown['until']} after {count(cooldown['failures'], 'failure')}{detail}"


def _not_recovered_row(wait: dict[str, Any], _: _Ages) -> str:
    return f"{wait['name']}: not moved before {wait['until']}, after {count(wait['failures'], 'failure')}"


def _pool_row(pool: dict[str, Any], ago: _Ages) -> str:
    last = f", the last one {ago.of(pool['lastLoss'])}" if pool["lastLoss"] else ""
    settling = f"; not trusted before {pool['settlingUntil']}" if pool["settlingUntil"] else ""
    rate = f"{pool['lossesPerNodeHour']:.4f} per node-hour"
    return f"{pool['pool']}: {count(pool['losses'], 'lost node')}{last}, {rate}{settling}"


def _owed_row(owed: dict[str, Any], ago: _Ages) -> str:
    must = f"must have {count(owed['pods'], 'pod')} again, {owed['ready']} of them Ready"
    return f"{owed['controller']}: {must}; from {owed['node']}, {ago.of(owed['since'])}"
