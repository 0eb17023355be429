"""``python -m devcluster.cherry``: the stand-in as a process, with initial servers."""

import click

from devcluster.cherry.app import application
from devcluster.cherry.cloud import CherryCloud, CherryCloudSettings
from devcluster.cherry.nodes import nodes
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer, serve
from rescheduler.clock import SystemClock


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free port.", show_default=True)
@click.option("--token", default="token", show_default=True, help="The accepted API token.")
@click.option("--database", default=":memory:", show_default=True, help="SQLite file.")
@click.option("--project", type=int, default=10001, show_default=True)
@click.option("--cluster", default="cluster1", show_default=True, help="Value of the servers' tag k8s-cluster.")
@click.option("--pool", default="pool1", show_default=True, help="Value of the servers' tag k8s-nodepool.")
@click.option("--servers", type=int, default=3, show_default=True, help="Number of initial servers.")
@click.option("--terminating", type=float, default=2.0, show_default=True, help="Seconds from DELETE to termination.")
@click.option("--deploying", type=float, default=5.0, show_default=True, help="Seconds from creation to Node.")
@click.option("--per-second", type=int, default=4, show_default=True, help="Rate limit; above it, requests get 429.")
@click.option("--label", type=(str, str), multiple=True, metavar="KEY VALUE", help="A label of all Nodes; repeatable.")
@click.option("--kubeconfig", help="The cluster to create Nodes in; default: create no Nodes.")
def main(
    port: int,
    token: str,
    database: str,
    project: int,
    cluster: str,
    pool: str,
    servers: int,
    terminating: float,
    deploying: float,
    per_second: int,
    label: tuple[tuple[str, str], ...],
    kubeconfig: str | None,
) -> None:
    """Serve Cherry Servers' API on 127.0.0.1 and print its URL."""
    clock = SystemClock()
    cloud = CherryCloud(
        CherryCloudSettings(token=token, database=database, terminating=terminating, deploying=deploying), clock
    )
    order = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}
    tags = {"k8s-cluster": cluster, "k8s-nodepool": pool}
    for number in range(0 if cloud.servers() else servers):
        cloud.create(project, {**order, "tags": tags, "hostname": f"k8s-{cluster}-{pool}-{number + 1}"}, deploying=0)
    server = StandinServer(cloud, application(cloud, per_second=per_second), port=port, path="/v1")

    serve(server, (lambda: Nodes(kubeconfig, lambda: nodes(cloud, dict(label)), clock)) if kubeconfig else None)


if __name__ == "__main__":
    main()
