"""``rescheduler resume``: end a pause, or waive replacement pods that an earlier drain owes."""

import click

from rescheduler.cli.console import printable, say
from rescheduler.cli.go_flags import GoCommand, Option, Parsed
from rescheduler.cli.options import connection_options, lease_name_option, memory_name_option, namespace_option
from rescheduler.clock import SystemClock
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.settings import ApiServerConnection


def _name(text: str) -> str:
    parts = text.split("/")
    if len(parts) not in (1, 3) or not all(parts) or text.split() != [text]:
        raise ValueError(f"{text!r}: expected NAMESPACE/KIND/NAME, such as default/Deployment/web, or NAMESPACE")
    return text


@click.command("resume", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--waive",
    Parsed(_name, "NS[/KIND/NAME]"),
    multiple=True,
    help="Stop waiting for the replacement pods that an earlier drain owes this owner or this namespace, and do not "
    "set it aside any more (not-recovered), instead of ending a pause. Use the name from the daemon's messages, such "
    "as default/Deployment/web. Repeatable.",
)
@connection_options
@namespace_option
@memory_name_option
@lease_name_option
def command(
    waive: tuple[str, ...], connection: ApiServerConnection, namespace: str, memory_name: str, lease_name: str
) -> None:
    """End the pause that rescheduler pause started. With --waive, waive replacement pods of an earlier drain instead.

    Until all replacement pods of a drain run, no other node is drained (landing-pending). After --landing-timeout, only
    nodes with pods of the same owner wait (not-recovered). If these pods are not needed, or if you have checked them,
    waive them with --waive. It takes effect in the next round.
    """
    if waive:
        _waive(waive, connection, namespace, memory_name)
    else:
        _resume(connection, namespace, lease_name)


def _waive(names: tuple[str, ...], connection: ApiServerConnection, namespace: str, memory_name: str) -> None:
    from rescheduler.housekeeping import synced_memory  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.memory import MemoryStore  # noqa: PLC0415

    for released in synced_memory.waive(MemoryStore(connect(connection, SystemClock()), namespace, memory_name), names):
        say(printable(f"released: {released}"))


def _resume(connection: ApiServerConnection, namespace: str, lease_name: str) -> None:
    from rescheduler.kube.client import connect  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.lease import LeaseStore  # noqa: PLC0415

    store = LeaseStore(connect(connection, SystemClock()), namespace, lease_name)
    lease = store.read()
    if lease is None or PAUSED not in lease.annotations:
        click.echo(f"{store}: drains are not paused")
        return
    store.annotate({PAUSED: None, PAUSE_REASON: None})
    click.echo(f"{store}: drains are no longer paused")
