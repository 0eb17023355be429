"""``python -m devcluster.stackpoint``: the API as a process, with a master, a worker without group, and a group."""

import click

from devcluster.stackpoint.app import application
from devcluster.stackpoint.cloud import StackpointCloud, StackpointCloudSettings, StackpointPool
from devcluster.stackpoint.nodes import nodes as nodes_of
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer, serve
from rescheduler.clock import SystemClock


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free port.", show_default=True)
@click.option("--token", default="token", show_default=True, help="The accepted API token.")
@click.option("--database", default=":memory:", show_default=True, help="SQLite file.")
@click.option("--group", default="default", show_default=True, help="First generation: the nodes' autoscaling group.")
@click.option("--pool", default="", help="Second generation: the instance id of the one pool.")
@click.option("--nodes", type=int, default=3, show_default=True, help="Number of initial nodes.")
@click.option("--building", type=float, default=1.0, show_default=True, help="Seconds in each build state.")
@click.option("--deleting", type=float, default=2.0, show_default=True, help="Seconds from DELETE to termination.")
@click.option(
    "--label", type=(str, str), multiple=True, metavar="KEY VALUE", help="A label of all worker Nodes; repeatable."
)
@click.option("--kubeconfig", help="The cluster to create Nodes in; default: create no Nodes.")
def main(
    port: int,
    token: str,
    database: str,
    group: str,
    pool: str,
    nodes: int,
    building: float,
    deleting: float,
    label: tuple[tuple[str, str], ...],
    kubeconfig: str | None,
) -> None:
    """Serve StackPointCloud's API (organization 6, cluster 810) on 127.0.0.1 and print its URL."""
    clock = SystemClock()
    pools = (StackpointPool(pk=1, instance_id=pool),) if pool else ()
    settings = StackpointCloudSettings(
        token=token, database=database, pools=pools, building=building, deleting=deleting
    )
    cloud = StackpointCloud(settings, clock)
    if not cloud.nodes():
        cloud.add(role="master", etcd_state="kube_etcd", eligible=False, building=0)
        cloud.add(building=0)
        for _ in range(nodes):
            cloud.add(group_name=f"autoscaling-{pool or group}", pool=1 if pool else None, building=0)

    server = StandinServer(cloud, application(cloud), port=port)
    serve(server, (lambda: Nodes(kubeconfig, lambda: nodes_of(cloud, dict(label)), clock)) if kubeconfig else None)


if __name__ == "__main__":
    main()
