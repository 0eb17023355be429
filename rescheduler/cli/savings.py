"""``rescheduler savings``: receipts of what drains have saved."""

import re
import sys
from datetime import timedelta
from typing import Final

import click
import msgspec

from rescheduler.cli.console import show
from rescheduler.cli.go_flags import GoCommand, Option, Parsed, parse_duration
from rescheduler.cli.options import connection_options, namespace_option, savings_name_option
from rescheduler.cli.savings_output import as_json, page
from rescheduler.clock import SystemClock
from rescheduler.planning.money.savings import KEPT
from rescheduler.planning.money.savings_report import report
from rescheduler.settings import ApiServerConnection


def _parse_period(text: str) -> timedelta:
    days = re.fullmatch(r"([0-9]{1,4})d", text)
    try:
        duration = timedelta(days=int(days[1])) if days else parse_duration(text)
    except ValueError:
        duration = KEPT * 2
    if duration > KEPT:
        raise ValueError(f"{text!r}: expected at most {KEPT.days} days, such as 30d or 12h")
    return duration


_SINCE: Final = Parsed(_parse_period, "duration")


@click.command("savings", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--since",
    _SINCE,
    default="30d",
    help="How far back to look, in days (30d) or as a Go duration (12h). Days are whole days in UTC.",
)
@Option(
    "--output",
    click.Choice(["table", "json", "yaml"]),
    short="-o",
    default="table",
    help="table for people, json or yaml for programs.",
)
@connection_options
@namespace_option
@savings_name_option
def command(since: timedelta, output: str, connection: ApiServerConnection, namespace: str, savings_name: str) -> None:
    """Show what drains have saved: totals, and for each day the nodes that were removed after a drain.

    The daemon keeps this ledger in a ConfigMap. Nothing in the cluster is changed.
    """
    from rescheduler.housekeeping import receipts  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.memory import SAVINGS_KEY, MemoryStore  # noqa: PLC0415

    clock = SystemClock()
    store = MemoryStore(connect(connection, clock), namespace, savings_name, key=SAVINGS_KEY)
    known = report(receipts.stored_ledger(store), since, clock.now().replace(microsecond=0))
    if output == "json":
        sys.stdout.buffer.write(msgspec.json.encode(as_json(known)) + b"\n")
    elif output == "yaml":
        sys.stdout.buffer.write(msgspec.yaml.encode(as_json(known)))
    else:
        show(page(known))
