"""``rescheduler pause``: start no drains, for a given time or until ``rescheduler resume``."""

from datetime import timedelta

import click

from predicates.texts import LONGEST_SHOWN, printable
from rescheduler.cli.console import say
from rescheduler.cli.go_flags import Bool, DurationType, GoCommand, Option, Parsed
from rescheduler.cli.options import command_for, connection_options, installation_options
from rescheduler.clock import SystemClock
from rescheduler.planning.pauses import manual_pause, pause_annotations
from rescheduler.settings import ApiServerConnection, NamedInstallation

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
