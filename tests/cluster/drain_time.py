"""How long a drain takes where nothing goes wrong: `python -m tests.cluster.drain_time`.

A healthy node of 30 pods of 10 owners is drained on the local control plane, with kwok's fast stages. Printed are the
seconds from our taint to its end, by the API server's audit log.
"""

from typing import Final

import click

from deploy.local import build, cleaning
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

OWNERS: Final = 10
REPLICAS: Final = 3


@click.command()
@click.option("--runs", default=3, show_default=True, help="Drains, one after the other.")
def main(runs: int) -> None:
    """Drain a healthy node and print how long it carried the taint."""
    build.binaries()
    with ControlPlane() as plane:
        for run in range(runs):
            click.echo(f"run {run + 1}: {drained(plane):.1f} s from taint to taint's end")
            plane.wait_for(lambda: cleaning.wipe(plane.api), "an empty cluster")


def drained(plane: ControlPlane) -> float:
    """Seconds for which the node was marked."""
    observer, pods = Observer(plane), OWNERS * REPLICAS
    observer.nodes(1, 4)
    plane.apply(deployment(f"app{number}", REPLICAS) for number in range(OWNERS))
    observer.running(pods)
    observer.open_spot()
    with Daemon(plane, "--once") as daemon:
        code = daemon.end()
    [marking] = observer.markings()
    if code or observer.kinds() != {"spot": pods}:
        raise click.ClickException(f"the drain failed: exit code {code}, pods on {observer.kinds()}")
    return marking.seconds


if __name__ == "__main__":
    main()
