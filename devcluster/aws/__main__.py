"""``python -m devcluster.aws``: the API as a process, with an on-demand and a spot group."""

from collections.abc import Mapping
from typing import Any, Final

import click

from devcluster import manifests
from devcluster.aws.app import application
from devcluster.aws.cloud import AwsCloud, AwsCloudSettings, members, provider_id
from devcluster.standin.nodes import Nodes
from devcluster.standin.server import StandinServer, serve
from rescheduler.clock import SystemClock

ON_DEMAND: Final = "on-demand"
SPOT: Final = "spot"


def nodes(cloud: AwsCloud, labels: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the Nodes of the running instances by name, with the labels of their groups."""
    found = {}
    for group, labelled in labels.items():
        for instance in members(cloud, group):
            name = f"ip-{instance.id.removeprefix('i-').lstrip('0') or '0'}.eu-west-1.compute.internal"
            found[name] = manifests.node(name, labels=dict(labelled), providerID=provider_id(instance))
    return found


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free port.", show_default=True)
@click.option("--on-demand", type=int, default=3, show_default=True, help="Instances of the group on-demand.")
@click.option("--spot", type=int, default=2, show_default=True, help="Instances of the group spot.")
@click.option("--minimum", type=int, default=0, show_default=True, help="Minimum size of the group on-demand.")
@click.option("--hook", type=float, default=2.0, show_default=True, help="Seconds of a lifecycle hook at terminations.")
@click.option("--terminating", type=float, default=2.0, show_default=True, help="Seconds until EC2 has terminated.")
@click.option("--kubeconfig", help="The cluster to create Nodes in; default: create no Nodes.")
def main(
    port: int, on_demand: int, spot: int, minimum: int, hook: float, terminating: float, kubeconfig: str | None
) -> None:
    """Serve EC2 Auto Scaling and EC2 of eu-west-1 on 127.0.0.1, for the access key AKIDSTANDIN, and print the URL."""
    clock = SystemClock()
    cloud = AwsCloud(AwsCloudSettings(hook=hook, terminating=terminating), clock)
    cloud.add_group(ON_DEMAND, on_demand, min_size=minimum)
    cloud.add_group(SPOT, spot, spot=True)
    labels = {name: {"eks.amazonaws.com/capacityType": kind} for name, kind in _KINDS.items()}
    server = StandinServer(cloud, application(cloud), port=port)
    serve(server, (lambda: Nodes(kubeconfig, lambda: nodes(cloud, labels), clock)) if kubeconfig else None)


_KINDS: Final = {ON_DEMAND: "ON_DEMAND", SPOT: "SPOT"}

if __name__ == "__main__":
    main()
