"""``rescheduler proxy``: in place of kubeaware-cloudpool-proxy, before a cloudpool."""

from pathlib import Path

import click
from click.core import ParameterSource

from rescheduler.cli.go_flags import FILE, GoCommand, Option
from rescheduler.cli.options import logging_options, node_name_option
from rescheduler.cli.run import ADDRESS, ignored_options
from rescheduler.settings import Address, Logging
from rescheduler.version import VERSION

_PORTS = click.IntRange(0, 65535)


@click.command("proxy", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--config-file",
    FILE,
    default="/etc/elastisys/kubeaware-cloudpool-proxy.json",
    metavar="FILE",
    help="The configuration, as kubeaware-cloudpool-proxy's: JSON with server, apiServer and backend.",
)
# A Service named rescheduler puts a RESCHEDULER_PORT of another meaning into every pod's environment.
@Option(
    "--port",
    _PORTS,
    envvar="RESCHEDULER_PROXY_PORT",
    default="8080",
    help="Where the pool's clients are served; 0: any free port.",
)
@Option("--host", envvar="RESCHEDULER_PROXY_HOST", default="", help="The address to serve them on; empty: all.")
@Option(
    "--listen-address",
    ADDRESS,
    default="localhost:9235",
    help="Where /metrics, /healthz and /readyz are served. A Prometheus elsewhere needs 0.0.0.0:9235. Unless it is "
    "given, another port is taken where this one is in use.",
)
@node_name_option
@logging_options
@ignored_options
@click.version_option(VERSION, message="Version: %(version)s")
def command(config_file: Path, port: int, host: str, listen_address: Address, node_name: str, logs: Logging) -> int:
    """Serve a cloudpool's REST API before a cloudpool, and drain nodes before their machines are removed.

    POST /pool/size, /pool/terminate, /pool/detach and a disposable membership status are done gracefully; all else
    is forwarded as it is.
    """
    from rescheduler.observe import logs as log_lines  # noqa: PLC0415 - imported when it is needed
    from rescheduler.proxy import config  # noqa: PLC0415
    from rescheduler.proxy.run import run  # noqa: PLC0415

    log_lines.configure(logs)
    file = config.read(config_file)
    config.check_files(file, config_file)
    told = click.get_current_context().get_parameter_source("listen_address")
    other_port = told is ParameterSource.DEFAULT
    return run(file, host, port, listen_address, node_name, other_port=other_port)
