"""``rescheduler snapshot``: write the cluster as a file for ``plan --snapshot``."""

import click

from rescheduler.cli.cluster_source import progress
from rescheduler.cli.console import warn
from rescheduler.cli.go_flags import GoCommand
from rescheduler.cli.options import connection_options
from rescheduler.settings import ApiServerConnection


@click.command("snapshot", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@connection_options
def command(connection: ApiServerConnection) -> None:
    """Write everything that a plan is made from to standard output, as a JSON list.

    \b
    rescheduler snapshot | gzip > cluster.json.gz
    rescheduler plan --snapshot cluster.json.gz

    The list has only the fields that are read: no values of environment variables, no Secrets, no ConfigMaps. It can
    be given to somebody without access to the cluster. Kinds that may not be read are left out with a warning.
    """  # noqa: D301 - click reads the character
    from rescheduler.housekeeping.command_reads import dump_cluster  # noqa: PLC0415 - the client is imported on demand

    with progress("reading the cluster"):
        items = dump_cluster(connection, lambda text: warn(f"warning: {text}"))
    click.echo('{"apiVersion":"v1","kind":"List","items":[')
    last = len(items) - 1
    for number, item in enumerate(items):
        click.echo(item.decode() + ("" if number == last else ","))
    click.echo("]}")
