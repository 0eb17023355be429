"""``rescheduler liqo node-manager``: groups of virtual nodes that Liqo makes of other clusters."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, Duration, GoCommand, Option
from rescheduler.cli.liqo_options import face_options, health_option
from rescheduler.cli.options import connection_options, logging_options
from rescheduler.cli.run import ignored_options
from rescheduler.settings import Address, Connection, Logging

if TYPE_CHECKING:
    from rescheduler.liqo.serving import Face

DATABASE: Final = "/var/lib/spot-rescheduler/node-manager.db"


@click.command("node-manager", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@face_options(":9009")
@Option(
    "--config",
    FILE,
    metavar="FILE",
    help="Groups of virtual nodes, YAML or JSON; docs/liqo.md has the keys. Without it the groups STANDARD and GPU.",
)
@Option(
    "--discovery-url",
    metavar="URL",
    default="https://discovery-server-svc:9010",
    help="Where discovery lists the clusters that share. It is shown --tls-cert.",
)
@Option(
    "--discovery-ca",
    FILE,
    metavar="FILE",
    help="Authority of discovery's certificate, PEM; --tls-client-ca where it is not given.",
)
@Option(
    "--database",
    FILE_TEXT,
    metavar="FILE",
    default=DATABASE,
    help="SQLite file with reservations, failures of clusters and groups that were made. :memory: forgets these at "
    "the end; machines are found in the cluster all the same.",
)
@Option(
    "--client",
    to="clients",
    multiple=True,
    metavar="NAME",
    help="A name of a certificate (common name, DNS or URI) that may ask. Repeatable; without it every certificate of "
    "--tls-client-ca may.",
)
@Option(
    "--post-only",
    Bool(),
    default=False,
    help="Change nothing on a GET, as clients of the old routes ask for; they have to POST then.",
)
@Option(
    "--liqoctl",
    FILE_TEXT,
    metavar="PROGRAM",
    help="The liqoctl with which missing peerings are made. Without it only clusters that are peered are of use.",
)
@Option("--liqoctl-timeout", Duration(least=timedelta(seconds=1)), default="10m", help="For one call of liqoctl.")
@Option(
    "--liqoctl-argument",
    to="liqoctl_arguments",
    multiple=True,
    metavar="ARGUMENT",
    help="A further argument of liqoctl, such as --networking-disabled. peer and unpeer get those that they know. "
    "Repeatable.",
)
@Option("--liqo-namespace", default="liqo", help="The namespace in which Liqo runs, for liqoctl.")
@health_option
@connection_options
@logging_options
@ignored_options
def command(
    face: "Face",
    config: Path | None,
    discovery_url: str,
    discovery_ca: Path | None,
    database: str,
    clients: tuple[str, ...],
    post_only: bool,  # noqa: FBT001 - passed by keyword
    liqoctl: str | None,
    liqoctl_timeout: timedelta,
    liqoctl_arguments: tuple[str, ...],
    liqo_namespace: str,
    health_address: Address,
    connection: Connection,
    logs: Logging,
) -> int:
    """Make and remove virtual nodes: slices of the clusters that discovery lists, by Liqo's resources.

    The routes are those of Liqo's cluster autoscaler and ours beside them. Every client shows a certificate.
    """
    from rescheduler.liqo.nodemanager.run import Settings, run  # noqa: PLC0415 - imported when it is needed

    settings = Settings(
        face=face,
        pages=health_address,
        discovery_url=discovery_url,
        discovery_ca=discovery_ca,
        connection=connection,
        database=database,
        config=config,
        liqoctl=liqoctl,
        liqo_namespace=liqo_namespace,
        liqoctl_timeout=liqoctl_timeout.total_seconds(),
        liqoctl_arguments=liqoctl_arguments,
        post_only=post_only,
        clients=frozenset(clients),
    )
    return run(settings, logs)
