"""``python -m devcluster.cloudpool --config FILE``: the reference cloudpool as a process."""

import sys
from pathlib import Path

import click
import msgspec
from kubernetes.config import ConfigException

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin.server import serve
from rescheduler.clock import SystemClock
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import read


@click.command()
@click.option("--config", "file", type=click.Path(path_type=Path), required=True, help="JSON or YAML; see settings.py.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free port.", show_default=True)
@click.option("--database", help="SQLite file; overrides the file's `database`.")
@click.option("--kubeconfig", help="The cluster to create Nodes in.")
@click.option("--without-cluster", is_flag=True, help="Create no Nodes.")
def main(file: Path, port: int, database: str | None, kubeconfig: str | None, without_cluster: bool) -> None:  # noqa: FBT001
    """Serve a cloudpool on 127.0.0.1 and print its URL."""
    if bool(kubeconfig) == without_cluster:
        raise click.UsageError("expected one of --kubeconfig FILE and --without-cluster")
    clock = SystemClock()
    try:
        settings = read(file, CloudpoolSettings)
        if database:
            settings = msgspec.structs.replace(settings, database=database)
        server = CloudpoolServer(settings, file.parent, clock, port=port)
        cluster = Cluster(kubeconfig, server.pool, clock) if kubeconfig else None
    except (ConfigError, OSError, ConfigException) as error:
        click.echo(f"Error: {' '.join(str(error).split())}", err=True)
        sys.exit(2)
    serve(server, (lambda: cluster) if cluster else None)


if __name__ == "__main__":
    main()
