"""``rescheduler proxy``: a replacement for kubeaware-cloudpool-proxy, in front of a cloudpool."""

from functools import partial
from pathlib import Path

import click
from click.core import ParameterSource

from rescheduler import VERSION
from rescheduler.cli.go_flags import FILE, GoCommand, Option
from rescheduler.cli.options import (
    ADDRESS,
    allowed_host_option,
    ignored_options,
    logging_options,
    node_name_option,
    pool_lease_option,
    proxy_memory_option,
    proxy_namespace_option,
)
from rescheduler.settings import ListenAddress, Logging, PageHosts, PoolLeaseName

_PORTS = click.IntRange(0, 65535)


@click.command("proxy", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--config-file",
    FILE,
    default="/etc/elastisys/kubeaware-cloudpool-proxy.json",
    metavar="FILE",
    help="Configuration file in the format of kubeaware-cloudpool-proxy: JSON with server, apiServer and backend.",
)
# A Service named rescheduler sets RESCHEDULER_PORT in the environment of every pod, with a different meaning.
@Option(
    "--port",
    _PORTS,
    envvar="RESCHEDULER_PROXY_PORT",
    default="8080",
    help="Port for clients of the pool; 0: any free port.",
)
@Option(
    "--host",
    envvar="RESCHEDULER_PROXY_HOST",
    default="",
    help="Address for clients of the pool; empty: all interfaces.",
)
@Option(
    "--listen-address",
    ADDRESS,
    default="localhost:9235",
    help="Address of /metrics, /healthz and /readyz. Use 0.0.0.0:9235 for a Prometheus outside of the pod. If "
    "this flag is not set and the default port is in use, another port is used.",
)
@allowed_host_option
@node_name_option
@proxy_namespace_option
@pool_lease_option
@proxy_memory_option
@logging_options
@ignored_options
@click.version_option(VERSION, message="Version: %(version)s")
def command(
    config_file: Path,
    port: int,
    host: str,
    listen_address: ListenAddress,
    allowed_hosts: tuple[str, ...],
    node_name: str,
    namespace: str,
    pool_lease: str,
    memory_name: str,
    logs: Logging,
) -> int:
    """Serve the cloudpool REST API in front of a cloudpool, and drain nodes before their machines are removed.

    POST /pool/size, /pool/terminate, /pool/detach and a disposable membership status drain nodes first. All other
    requests are forwarded unchanged.
    """
    from rescheduler.cloudpool.proxy import config as configuration  # noqa: PLC0415
    from rescheduler.cloudpool.proxy.run import run  # noqa: PLC0415
    from rescheduler.housekeeping.synced_memory import stored_ledger  # noqa: PLC0415
    from rescheduler.observe.logs import configure  # noqa: PLC0415 - imported on demand

    configure(logs)
    file = configuration.read(config_file)
    configuration.check_files(file, config_file)
    source = click.get_current_context().get_parameter_source("listen_address")
    other_port = source is ParameterSource.DEFAULT
    lease, hosts = PoolLeaseName(namespace, pool_lease), PageHosts(allowed_hosts, namespace)
    keep = partial(stored_ledger, namespace, memory_name)
    return run(file, host, port, listen_address, node_name, other_port=other_port, lease=lease, keep=keep, hosts=hosts)
