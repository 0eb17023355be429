"""``rescheduler liqo``: the services for virtual nodes, each imported when it is called. It is a command, which
click imports by name.
"""

import importlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rescheduler.cli.go_flags import FILE, FILE_TEXT, Bool, DurationType, GoCommand, Option
from rescheduler.cli.options import ADDRESS, Decorator, connection_options, group, ignored_options, logging_options
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


_NODE_MANAGER: Final = "node-manager"
DATABASE: Final = "/var/lib/spot-rescheduler/discovery.db"


class LiqoCommands(click.Group):
    """The Liqo commands. The command of the node manager is in a separate module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), _NODE_MANAGER]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != _NODE_MANAGER:
            return super().get_command(ctx, cmd_name)
        module_command: click.Command = importlib.import_module("rescheduler.cli.liqo_node_manager").command
        return module_command


@click.group("liqo", cls=LiqoCommands, context_settings={"help_option_names": ["-h", "--help"]})
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
    default=DATABASE,
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
