"""``python -m deploy.local.stackpoint``: the API as a process; one master, one free worker, and a group's nodes."""

from typing import Any

import click

from deploy.local import manifests
from deploy.local.stackpoint.app import application
from deploy.local.stackpoint.cloud import Cloud, NodeState, Pool, Settings
from deploy.local.standin.nodes import Nodes
from deploy.local.standin.server import Server, serve
from rescheduler.clock import SystemClock


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free one.", show_default=True)
@click.option("--token", default="token", show_default=True, help="Who shows it is let in.")
@click.option("--database", default=":memory:", show_default=True, help="SQLite file.")
@click.option("--group", default="default", show_default=True, help="First generation: the nodes' autoscaling group.")
@click.option("--pool", default="", help="Second generation: the instance id of the one pool.")
@click.option("--nodes", type=int, default=3, show_default=True, help="Of the group or pool, at the first start.")
@click.option("--building", type=float, default=1.0, show_default=True, help="Seconds in each state of a build.")
@click.option("--deleting", type=float, default=2.0, show_default=True, help="Seconds from DELETE to the end.")
@click.option("--kubeconfig", help="The cluster whose Nodes the nodes are; none: the API only.")
def main(
    port: int,
    token: str,
    database: str,
    group: str,
    pool: str,
    nodes: int,
    building: float,
    deleting: float,
    kubeconfig: str | None,
) -> None:
    """Serve StackPointCloud's API (organization 6, cluster 810) on 127.0.0.1 and print its URL."""
    clock = SystemClock()
    pools = (Pool(pk=1, instance_id=pool),) if pool else ()
    settings = Settings(token=token, database=database, pools=pools, building=building, deleting=deleting)
    cloud = Cloud(settings, clock)
    if not cloud.nodes():
        cloud.add(role="master", etcd_state="kube_etcd", eligible=False, building=0)
        cloud.add(building=0)
        for _ in range(nodes):
            cloud.add(group_name=f"autoscaling-{pool or group}", pool=1 if pool else None, building=0)

    def wanted() -> dict[str, dict[str, Any]]:
        now = clock.now()
        there = [one for one in cloud.nodes() if one.state(now) in {"running", "deleting"}]
        return {name_of(one): node_of(one) for one in there}

    server = Server(cloud, application(cloud), port=port)
    serve(server, (lambda: Nodes(kubeconfig, wanted, clock)) if kubeconfig else None)


def name_of(node: NodeState) -> str:
    """A Node's name: the address, as the cloud's DNS has it."""
    return f"ip-{node.private_ip.replace('.', '-')}"


def node_of(node: NodeState) -> dict[str, Any]:
    """The Node as StackPointCloud's builder labels it."""
    labels = {"stackpoint.io/instance_id": node.instance_id, "stackpoint.io/role": node.role}
    if node.group_name:
        labels["stackpoint.io/node_group"] = node.group_name
    manifest = manifests.node(name_of(node), labels=labels)
    manifest["status"]["addresses"] = [{"type": "InternalIP", "address": node.private_ip}]
    return manifest


if __name__ == "__main__":
    main()
