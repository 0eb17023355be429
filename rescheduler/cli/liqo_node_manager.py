"""``rescheduler liqo node-manager``: groups of virtual nodes that Liqo creates from other clusters."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, DurationType, GoCommand, Option
from rescheduler.cli.liqo import health_option, listener_options
from rescheduler.cli.options import connection_options, ignored_options, logging_options
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging

if TYPE_CHECKING:
    from rescheduler.liqo.serving import HttpsListener

DATABASE: Final = "/var/lib/spot-rescheduler/node-manager.db"


@click.command("node-manager", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@listener_options(":9009")
@Option(
    "--config",
    FILE,
    metavar="FILE",
    help="Groups of virtual nodes, YAML or JSON; the keys are documented in docs/liqo.md. Default: the groups "
    "STANDARD and GPU.",
)
@Option(
    "--discovery-url",
    metavar="URL",
    default="https://discovery-server-svc:9010",
    help="URL of the discovery service, which lists the clusters that share resources. --tls-cert is used as the "
    "client certificate.",
)
@Option(
    "--discovery-ca",
    FILE,
    metavar="FILE",
    help="CA certificate of the discovery service, PEM; default: --tls-client-ca.",
)
@Option(
    "--database",
    FILE_TEXT,
    metavar="FILE",
    default=DATABASE,
    help="SQLite file for reservations, failures of clusters and created groups. :memory: keeps nothing after "
    "exit; machines are then found by reading the cluster.",
)
@Option(
    "--client",
    to="clients",
    multiple=True,
    metavar="NAME",
    help="Name in a client certificate (common name, DNS name or URI) that is authorized. Repeatable; without "
    "this flag, every certificate issued by --tls-client-ca is.",
)
@Option(
    "--post-only",
    Bool(),
    default=False,
    help="Reject GET requests that make changes, which clients of the old routes send; clients must use POST.",
)
@Option(
    "--liqoctl",
    FILE_TEXT,
    metavar="PROGRAM",
    help="Path of liqoctl, which creates missing peerings. Without it, only clusters that are already peered can "
    "be used.",
)
@Option(
    "--liqoctl-timeout", DurationType(least=timedelta(seconds=1)), default="10m", help="Time limit of one liqoctl call."
)
@Option(
    "--liqoctl-argument",
    to="liqoctl_arguments",
    multiple=True,
    metavar="ARGUMENT",
    help="Additional argument for liqoctl, such as --networking-disabled. peer and unpeer get the arguments that "
    "they support. Repeatable.",
)
@Option("--liqo-namespace", default="liqo", help="Namespace of the Liqo installation, for liqoctl.")
@health_option
@connection_options
@logging_options
@ignored_options
def command(
    listener: "HttpsListener",
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
    health_address: ListenAddress,
    connection: ApiServerConnection,
    logs: Logging,
) -> int:
    """Create and remove virtual nodes: slices of the clusters that discovery lists, as Liqo resources.

    The routes are those of Liqo's cluster autoscaler plus our own. Every client must present a certificate.
    """
    from rescheduler.liqo.node_manager.run import NodeManagerSettings, run  # noqa: PLC0415 - imported on demand

    settings = NodeManagerSettings(
        listener=listener,
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
