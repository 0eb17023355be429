"""Measurement of the duration of a drain without failures: `python -m tests.cluster.drain_time`.

It drains a healthy node with 30 pods of 10 owners on the local control plane, with kwok's fast stages. It prints the
seconds from the creation to the removal of our taint, from the API server's audit log.
"""

from typing import Final

import click

from devcluster import build, cleaning
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer

OWNERS: Final = 10
REPLICAS: Final = 3


@click.command()
@click.option("--runs", default=3, show_default=True, help="Number of drains.")
def main(runs: int) -> None:
    """Drain a healthy node and print how long it had the taint."""
    build.binaries()
    with ControlPlane() as plane:
        for run in range(runs):
            click.echo(f"run {run + 1}: {drained(plane):.1f} s with the taint")
            cleaning.empty(plane)


def drained(plane: ControlPlane) -> float:
    """Drain a node and return for how many seconds it was marked."""
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
