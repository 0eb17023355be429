"""``rescheduler resume``: resume drains that are waiting for a person."""

import click

from rescheduler.cli.go_flags import GoCommand, Option, Parsed
from rescheduler.cli.options import connection_options, memory_name_option, namespace_option
from rescheduler.clock import SystemClock
from rescheduler.settings import ApiServerConnection


def _controller(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts) or text.split() != [text]:  # noqa: PLR2004
        raise ValueError(f"{text!r}: expected NAMESPACE/KIND/NAME, such as default/Deployment/web")
    return text


@click.command("resume", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--waive",
    Parsed(_controller, "NS/KIND/NAME"),
    multiple=True,
    help="Stop waiting for the replacement pods that an earlier drain owes this controller. Use the name from "
    "the daemon's messages, such as default/Deployment/web. Repeatable.",
)
@connection_options
@namespace_option
@memory_name_option
def command(waive: tuple[str, ...], connection: ApiServerConnection, namespace: str, memory_name: str) -> None:
    """Let the daemon drain nodes again although an earlier drain still owes replacement pods.

    While the pods that a drain moved do not run, no other node is drained (landing-pending). When you have
    checked these pods, or they need not run, --waive drops the debt. The change takes effect in the next round.
    """
    if not waive:
        raise click.UsageError("expected --waive NS/KIND/NAME")
    from rescheduler.housekeeping import waivers  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.memory import MemoryStore  # noqa: PLC0415

    waivers.waive(MemoryStore(connect(connection, SystemClock()), namespace, memory_name), waive)
    for controller in waive:
        click.echo(f"waived: {controller}")
