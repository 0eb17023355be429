"""``rescheduler resume``: end a pause, or waive replacement pods that an earlier drain owes."""

import click

from predicates.texts import printable
from rescheduler.cli.console import say
from rescheduler.cli.go_flags import GoCommand, Option, Parsed
from rescheduler.cli.options import command_for, connection_options, found_memory_option, installation_options
from rescheduler.clock import SystemClock
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.settings import MEMORY_NAME, ApiServerConnection, NamedInstallation


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
@installation_options
@found_memory_option
def command(
    waive: tuple[str, ...], connection: ApiServerConnection, named: NamedInstallation, memory_name: str | None
) -> None:
    """End the pause that rescheduler pause started. With --waive, waive replacement pods of an earlier drain instead.

    Until all replacement pods of a drain run, no other node is drained (landing-pending). After --landing-timeout, only
    nodes with pods of the same owner wait (not-recovered). If these pods are not needed, or if you have checked them,
    waive them with --waive. It takes effect in the next round.
    """
    if waive:
        _waive(waive, connection, named, memory_name)
    else:
        _resume(connection, named)


def _waive(
    names: tuple[str, ...], connection: ApiServerConnection, named: NamedInstallation, memory_name: str | None
) -> None:
    from rescheduler.housekeeping import synced_memory  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.installations import InstallationFinder, find_config_map  # noqa: PLC0415
    from rescheduler.kube.memory import MEMORY_KEY  # noqa: PLC0415

    clock = SystemClock()
    finder = InstallationFinder(connect(connection, clock), clock.now(), command_for)
    store = find_config_map(finder, named, memory_name, MEMORY_NAME, MEMORY_KEY)
    for released in synced_memory.waive(store, names):
        say(printable(f"released: {released}"))


def _resume(connection: ApiServerConnection, named: NamedInstallation) -> None:
    from rescheduler.kube.client import connect  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.installations import InstallationFinder  # noqa: PLC0415
    from rescheduler.kube.lease import LeaseStore  # noqa: PLC0415

    clock = SystemClock()
    client = connect(connection, clock)
    # A pause can also be ended while the daemon is stopped.
    lease = InstallationFinder(client, clock.now(), command_for).find(named, lambda lease: PAUSED in lease.annotations)
    store = LeaseStore(client, lease.metadata.namespace, lease.metadata.name)
    if PAUSED not in lease.annotations:
        click.echo(f"{store}: drains are not paused")
        return
    store.annotate({PAUSED: None, PAUSE_REASON: None})
    click.echo(f"{store}: drains are no longer paused")
