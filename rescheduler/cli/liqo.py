"""``rescheduler liqo``: the parts that make virtual nodes of other clusters, each imported when it is called."""

import importlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from rescheduler.cli.go_flags import FILE_TEXT, Duration, GoCommand, Option
from rescheduler.cli.liqo_options import face_options, health_option
from rescheduler.cli.options import connection_options, logging_options
from rescheduler.cli.run import ignored_options
from rescheduler.settings import Address, Connection, Logging

if TYPE_CHECKING:
    from rescheduler.liqo.serving import Face

_NODE_MANAGER: Final = "node-manager"
DATABASE: Final = "/var/lib/spot-rescheduler/discovery.db"


class Parts(click.Group):
    """The parts; the node manager is in a module of its own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), _NODE_MANAGER]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != _NODE_MANAGER:
            return super().get_command(ctx, cmd_name)
        found: click.Command = importlib.import_module("rescheduler.cli.liqo_node_manager").command
        return found


@click.group("liqo", cls=Parts, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Virtual nodes of Liqo: discovery knows clusters that share, the node manager makes nodes of them."""


@command.command("discovery", cls=GoCommand)
@face_options(":9010")
@Option(
    "--database",
    FILE_TEXT,
    metavar="FILE",
    default=DATABASE,
    help="SQLite file with what is known; only we may read it, for kubeconfigs are in it. :memory: forgets all at the "
    "end.",
)
@Option(
    "--namespace",
    default="demo",
    help="The namespace whose Secrets describe clusters; empty: no Secrets are read, agents tell everything.",
)
@Option(
    "--secret-selector",
    metavar="LABELS",
    default="autoscaling=true",
    help="Labels of the Secrets that describe clusters, as kubectl --selector takes them.",
)
@Option(
    "--expire-after",
    Duration(least=timedelta(seconds=1)),
    default="5m",
    help="How long what an agent says of its cluster holds; an update can say otherwise (ttl).",
)
@Option(
    "--reader",
    to="readers",
    multiple=True,
    metavar="NAME",
    help="A name of a certificate (common name, DNS or URI) that may list clusters, kubeconfigs included. Repeatable; "
    "without it every certificate of --tls-client-ca may.",
)
@Option(
    "--updater",
    to="updaters",
    multiple=True,
    metavar="NAME",
    help="A name of a certificate that may update every cluster; others may update the one whose ID is a name of "
    "theirs. Repeatable; without it every certificate may update every cluster.",
)
@health_option
@connection_options
@logging_options
@ignored_options
def discovery(
    face: "Face",
    readers: tuple[str, ...],
    updaters: tuple[str, ...],
    secret_selector: str,
    health_address: Address,
    connection: Connection,
    logs: Logging,
    **more: Any,
) -> int:
    """Keep and list the clusters that share their resources.

    GET /list is for the node manager, POST /update for agents of the clusters. Every client shows a certificate.
    """
    from rescheduler.liqo.discovery.app import Access  # noqa: PLC0415 - imported when it is needed
    from rescheduler.liqo.discovery.run import Settings, run  # noqa: PLC0415

    access = Access(frozenset(readers), frozenset(updaters))
    settings = Settings(
        face=face, pages=health_address, connection=connection, selector=secret_selector, access=access, **more
    )
    return run(settings, logs)
