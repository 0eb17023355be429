"""``rescheduler provider serve``: a cloud provider as Cluster Autoscaler's external gRPC service."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import click

from rescheduler.cli.go_flags import FILE, Bool, GoCommand, Option
from rescheduler.cli.options import (
    ADDRESS,
    allowed_host_option,
    connection_options,
    ignored_options,
    logging_options,
    pool_lease_option,
    pool_namespace_option,
    provider_options,
)
from rescheduler.errors import ReschedulerError, UsageError
from rescheduler.providers import FLAGGED, OF_THE_CLUSTER
from rescheduler.settings import ApiServerConnection, ListenAddress, Logging, PoolLeaseName, Provider


@click.group("provider", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Serve cloud providers to other programs."""


@command.command("serve", cls=GoCommand)
@provider_options("The cloud provider to serve.")
@Option(
    "--address",
    ADDRESS,
    default=":8086",
    help="Address to listen on. The default is all interfaces, as for Cluster Autoscaler's example server.",
)
@Option(
    "--key-cert",
    FILE,
    metavar="FILE",
    help="Private key of --cert, PEM. Key, certificate and CA files are reloaded when they change.",
)
@Option("--cert", FILE, metavar="FILE", help="Server certificate, PEM.")
@Option(
    "--ca-cert",
    FILE,
    metavar="FILE",
    help="CA of client certificates, PEM. Clients must present a certificate issued by it.",
)
@Option(
    "--insecure-plaintext",
    Bool(),
    to="plaintext",
    default=False,
    help="Serve plain text to every client that reaches --address. Without this flag, plain text is served on a "
    "loopback address only.",
)
@Option(
    "--listen-address",
    ADDRESS,
    metavar="HOST:PORT",
    help="Address of /metrics, /healthz and /readyz, in plain text. Default: not served.",
)
@allowed_host_option
@Option(
    "--node-group-auto-discovery",
    multiple=True,
    metavar="SPEC",
    help="Flag of Cluster Autoscaler's example server. It is rejected, because no cloud provider here supports it.",
)
@connection_options
@Option(
    "--running-in-cluster",
    Bool(),
    help="Use the ServiceAccount of the pod that this program runs in, to hold --pool-lease; false: a kubeconfig. "
    "Default: as for --kubeconfig. Without a cluster, no Lease is held: then only one process may order machines of a "
    "pool.",
)
@pool_namespace_option
@pool_lease_option
@logging_options
@ignored_options
def serve(
    provider: Provider,
    node_group_auto_discovery: tuple[str, ...],
    address: ListenAddress,
    key_cert: Path | None,
    cert: Path | None,
    ca_cert: Path | None,
    plaintext: bool,  # noqa: FBT001 - passed by keyword
    listen_address: ListenAddress | None,
    allowed_hosts: tuple[str, ...],
    connection: ApiServerConnection,
    running_in_cluster: bool | None,  # noqa: FBT001 - passed by keyword
    namespace: str,
    pool_lease: str,
    logs: Logging,
) -> int:
    """Serve a cloud provider to Cluster Autoscaler 1.25 to 1.37 (run with --cloud-provider=externalgrpc).

    Requires mutual TLS with --key-cert, --cert and --ca-cert; plain text requires --insecure-plaintext or a
    loopback address. Health and reflection are also served. Every request to change a size or to delete nodes is
    logged with its caller and its response.
    """
    if why := OF_THE_CLUSTER.get(provider.name):
        raise UsageError(f"--cloud-provider={provider.name}: expected another provider; {why}")
    if node_group_auto_discovery:
        groups = "gets its groups from --nodes" if provider.name in FLAGGED else "lists its groups itself"
        raise UsageError(
            f"--node-group-auto-discovery={node_group_auto_discovery[0]}: "
            f"the cloud provider {provider.name!r} {groups}; remove this flag"
        )
    if importlib.util.find_spec("grpc") is None:
        raise ReschedulerError("gRPC is not installed: in a checkout, pip install '.[grpc]'")
    from rescheduler.grpc_service.serve import Serving, run  # noqa: PLC0415 - the extra is imported on demand

    named = connection.kubeconfig is not None or connection.context is not None
    serving = Serving(
        address,
        provider,
        key_cert,
        cert,
        ca_cert,
        plaintext,
        listen_address,
        allowed_hosts,
        cluster=replace(connection, in_cluster=False if named else running_in_cluster),
        named=named or running_in_cluster is True,
        lease=PoolLeaseName(namespace, pool_lease),
    )
    return run(serving, logs)
