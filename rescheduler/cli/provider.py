"""``rescheduler provider serve``: a backend as the external gRPC service of Cluster Autoscaler."""

import importlib.util
from pathlib import Path

import click

from rescheduler.backends import FLAGGED
from rescheduler.cli.go_flags import FILE, Bool, GoCommand, Option
from rescheduler.cli.options import logging_options, provider_options
from rescheduler.cli.run import ADDRESS, ignored_options
from rescheduler.errors import ReschedulerError, UsageError
from rescheduler.settings import Address, Logging, Provider


@click.group("provider", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Offer the systems that own machines to other programs."""


@command.command("serve", cls=GoCommand)
@provider_options("The system that is offered.")
@Option(
    "--address",
    ADDRESS,
    default=":8086",
    help="Where to listen. The default is every interface, as Cluster Autoscaler's example server does.",
)
@Option(
    "--key-cert",
    FILE,
    metavar="FILE",
    help="Private key of --cert, PEM. The three files are read again when they change.",
)
@Option("--cert", FILE, metavar="FILE", help="Certificate that callers are shown, PEM.")
@Option("--ca-cert", FILE, metavar="FILE", help="Callers must show a certificate of this authority, PEM.")
@Option(
    "--insecure-plaintext",
    Bool(),
    to="plaintext",
    default=False,
    help="Serve plain text, to anybody who reaches --address. Without it that is done on a loopback address only.",
)
@Option(
    "--listen-address",
    ADDRESS,
    metavar="HOST:PORT",
    help="Where /metrics, /healthz and /readyz are served, in plain text; without it they are not.",
)
@Option(
    "--node-group-auto-discovery",
    multiple=True,
    metavar="SPEC",
    help="Of Cluster Autoscaler's example server; refused: no cloud provider here finds groups by such a text.",
)
@logging_options
@ignored_options
def serve(
    provider: Provider,
    node_group_auto_discovery: tuple[str, ...],
    address: Address,
    key_cert: Path | None,
    cert: Path | None,
    ca_cert: Path | None,
    plaintext: bool,  # noqa: FBT001 - passed by keyword
    listen_address: Address | None,
    logs: Logging,
) -> int:
    """Serve a cloud provider to Cluster Autoscaler 1.25 to 1.37 (--cloud-provider=externalgrpc there).

    Mutual TLS with --key-cert, --cert and --ca-cert; plain text takes --insecure-plaintext, or a loopback address.
    Health and reflection are served too. Every order to raise or lower a size or to delete nodes is logged, with its
    caller and its answer.
    """
    if node_group_auto_discovery:
        groups = "is told its groups by --nodes" if provider.name in FLAGGED else "knows its groups by itself"
        raise UsageError(
            f"--node-group-auto-discovery={node_group_auto_discovery[0]}: "
            f"the cloud provider {provider.name!r} {groups}; leave it out"
        )
    if importlib.util.find_spec("grpc") is None:
        raise ReschedulerError("gRPC is not installed: pip install 'spot-rescheduler[grpc]'")
    from rescheduler.grpcservice.serve import Serving, run  # noqa: PLC0415 - the extra is imported when it is needed

    return run(Serving(address, provider, key_cert, cert, ca_cert, plaintext, listen_address), logs)
