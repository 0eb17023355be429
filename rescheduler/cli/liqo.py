"""``rescheduler liqo``: the services for virtual nodes, whose modules are imported when they are called."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, DurationType, GoCommand, Option
from rescheduler.cli.options import (
    ADDRESS,
    Decorator,
    allowed_host_option,
    connection_options,
    group,
    ignored_options,
    logging_options,
)
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging

if TYPE_CHECKING:
    from rescheduler.liqo.serving import HttpsListener

# The options shared by the Liqo services: ``@listener_options`` passes ``listener: HttpsListener``.


def listener_options(listen: str) -> Decorator:
    """Return the options for the listen address (default *listen*) and the certificates."""
    return group(
        "listener",
        _listener,
        (
            Option("--listen", ADDRESS, default=listen, help="Address to serve on; without a host, all interfaces."),
            Option(
                "--tls-cert",
                FILE,
                metavar="FILE",
                help="Server certificate with its chain, PEM. Certificate, key and CA files are reloaded when "
                "they change.",
            ),
            Option("--tls-key", FILE, metavar="FILE", help="Private key of --tls-cert, PEM, not encrypted."),
            Option(
                "--tls-client-ca",
                FILE,
                metavar="FILE",
                help="CA of client certificates, PEM. Clients must present a certificate issued by it.",
            ),
            Option(
                "--insecure-plaintext",
                Bool(),
                to="plaintext",
                default=False,
                help="Serve plain HTTP without authentication. Allowed on a loopback address only.",
            ),
        ),
    )


health_option: Final = Option(
    "--health-address",
    ADDRESS,
    default="localhost:9235",
    help="Address of /metrics, /healthz and /readyz, in plain text. Use 0.0.0.0:9235 for kubelet probes or a "
    "Prometheus outside of the pod.",
)


def _listener(
    listen: ListenAddress, tls_cert: Path | None, tls_key: Path | None, tls_client_ca: Path | None, **more: Any
) -> Any:
    from rescheduler.liqo.serving import HttpsListener  # noqa: PLC0415 - the server is imported on demand

    return HttpsListener(listen, cert=tls_cert, key=tls_key, client_ca=tls_client_ca, **more)


#: Where the services keep their databases in their images.
_FOLDER: Final = "/var/lib/spot-rescheduler"


@click.group("liqo", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Run the services that create virtual nodes with Liqo.

    discovery registers clusters, node-manager creates nodes from them.
    """


@command.command("discovery", cls=GoCommand)
@listener_options(":9010")
@Option(
    "--database",
    FILE_TEXT,
    metavar="FILE",
    default=f"{_FOLDER}/discovery.db",
    help="SQLite file for registered clusters. It contains kubeconfigs, so only this process should be able to "
    "read it. :memory: keeps nothing after exit.",
)
@Option(
    "--namespace",
    default="demo",
    help="Namespace of the Secrets that describe clusters; empty: no Secrets are read, and clusters are "
    "registered by agents only.",
)
@Option(
    "--secret-selector",
    metavar="LABELS",
    default="autoscaling=true",
    help="Label selector of the Secrets that describe clusters, as for kubectl --selector.",
)
@Option(
    "--expire-after",
    DurationType(least=timedelta(seconds=1)),
    default="5m",
    help="How long the registration of a cluster by its agent is valid; an update can set another duration (ttl).",
)
@Option(
    "--reader",
    to="readers",
    multiple=True,
    metavar="NAME",
    help="Name in a client certificate (common name, DNS name or URI) that may list clusters, including "
    "kubeconfigs. Repeatable; without this flag, every certificate issued by --tls-client-ca may.",
)
@Option(
    "--updater",
    to="updaters",
    multiple=True,
    metavar="NAME",
    help="Name in a client certificate that may update every cluster; other clients may update only the cluster "
    "whose ID is one of their certificate's names. Repeatable; without this flag, every certificate may "
    "update every cluster.",
)
@health_option
@allowed_host_option
@connection_options
@logging_options
@ignored_options
def discovery(
    listener: "HttpsListener",
    readers: tuple[str, ...],
    updaters: tuple[str, ...],
    secret_selector: str,
    health_address: ListenAddress,
    connection: ApiServerConnection,
    logs: Logging,
    **more: Any,
) -> int:
    """Register and list the clusters that share their resources.

    GET /list is for the node manager, POST /update for the clusters' agents. Every client must present a
    certificate.
    """
    from rescheduler.liqo.discovery.app import ClientAccess  # noqa: PLC0415 - imported on demand
    from rescheduler.liqo.discovery.run import DiscoverySettings, run  # noqa: PLC0415

    access = ClientAccess(frozenset(readers), frozenset(updaters))
    settings = DiscoverySettings(
        listener=listener, pages=health_address, connection=connection, selector=secret_selector, access=access, **more
    )
    return run(settings, logs)


@command.command("node-manager", cls=GoCommand)
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
    default=f"{_FOLDER}/node-manager.db",
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
@allowed_host_option
@connection_options
@logging_options
@ignored_options
def node_manager(
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
    allowed_hosts: tuple[str, ...],
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
        allowed_hosts=allowed_hosts,
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
