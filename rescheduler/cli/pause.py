"""``rescheduler pause``: start no drains, for a given time or until ``rescheduler resume``; and ``resume``."""

from datetime import timedelta

import click

from predicates.texts import LONGEST_SHOWN, printable
from rescheduler.cli.console import say
from rescheduler.cli.go_flags import Bool, DurationType, GoCommand, Option, Parsed
from rescheduler.cli.options import command_for, connection_options, found_memory_option, installation_options
from rescheduler.clock import SystemClock
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED, manual_pause, pause_annotations
from rescheduler.settings import MEMORY_NAME, ApiServerConnection, NamedInstallation

_SECOND = timedelta(seconds=1)
_UNHELD = "a daemon that is stopped, is a dry run or elects no leader holds none: --force pauses it"


def _reason(text: str) -> str:
    line = " ".join(text.split())
    if len(line) > LONGEST_SHOWN:
        raise ValueError(f"expected at most {LONGEST_SHOWN} characters")
    if printable(line) != line:
        raise ValueError(f"{text!r}: expected text without control characters")
    return line


@click.command("pause", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--for",
    DurationType(least=_SECOND),
    to="period",
    metavar="DURATION",
    help="End the pause after this time, such as 2h or 30m. Default: it lasts until rescheduler resume.",
)
@Option(
    "--reason",
    Parsed(_reason, "text"),
    default="",
    metavar="TEXT",
    help="Why drains are paused. It is shown in the log, in an Event and by rescheduler status.",
)
@Option(
    "--force",
    Bool(),
    default=False,
    help="Set the pause also if no daemon holds the Lease, because the daemon is stopped, is a dry run, or runs with "
    "--leader-elect=false.",
)
@connection_options
@installation_options
def command(
    period: timedelta | None, reason: str, *, force: bool, connection: ApiServerConnection, named: NamedInstallation
) -> None:
    """Pause drains: no drain starts, and the drain in progress is rolled back within seconds.

    A machine whose termination was already requested is still removed, and replacement pods of earlier drains are
    still followed. The pause is an annotation on the Lease that the daemon holds, so it survives restarts of the
    daemon. A new pause replaces an earlier one.
    """
    from rescheduler.kube.client import connect  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.installations import InstallationFinder, holder  # noqa: PLC0415
    from rescheduler.kube.lease import LeaseStore  # noqa: PLC0415

    clock = SystemClock()
    client, now = connect(connection, clock), clock.now()
    annotations = pause_annotations(None if period is None else now + period, reason)
    found = InstallationFinder(client, now, command_for).find(named, lambda _: force, _UNHELD)
    lease = LeaseStore(client, found.metadata.namespace, found.metadata.name)
    lease.annotate(annotations)
    pause = manual_pause({key: text for key, text in annotations.items() if text is not None}, now)
    assert pause is not None
    unheld = "" if holder(found, now) else " (no daemon holds the Lease)"
    say(printable(f"{lease}: {pause.text}{unheld}"))


# End a pause, or waive replacement pods that an earlier drain owes.


def _owner_or_namespace(text: str) -> str:
    parts = text.split("/")
    if len(parts) not in (1, 3) or not all(parts) or text.split() != [text]:
        raise ValueError(f"{text!r}: expected NAMESPACE/KIND/NAME, such as default/Deployment/web, or NAMESPACE")
    return text


@click.command("resume", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--waive",
    Parsed(_owner_or_namespace, "NS[/KIND/NAME]"),
    multiple=True,
    help="Stop waiting for the replacement pods that an earlier drain owes this owner or this namespace, and do not "
    "set it aside any more (not-recovered), instead of ending a pause. Use the name from the daemon's messages, such "
    "as default/Deployment/web. Repeatable.",
)
@connection_options
@installation_options
@found_memory_option
def resume(
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
        _end(connection, named)


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


def _end(connection: ApiServerConnection, named: NamedInstallation) -> None:
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
