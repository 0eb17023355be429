"""``python -m devcluster.liqo``: simulate Liqo on the control plane of a kubeconfig until a signal arrives."""

import signal
import threading
from pathlib import Path

import click

from devcluster.liqo.connecting import connected
from devcluster.liqo.controller import LiqoPolicy
from devcluster.liqo.playing import Wait, playing
from devcluster.polling import poll

WAIT_SECONDS = 60.0


@click.command()
@click.option(
    "--kubeconfig", type=click.Path(path_type=Path, exists=True), required=True, help="The file that `make up` created."
)
@click.option("--cluster", "clusters", multiple=True, default=["rome", "milan"], help="A peer; repeatable.")
@click.option("--deny", multiple=True, metavar="CLUSTER", help="A peer that denies all slices; repeatable.")
def main(kubeconfig: Path, clusters: tuple[str, ...], deny: tuple[str, ...]) -> None:
    """Create Nodes for the slices of peers, and delete all of them at the end."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    policy = LiqoPolicy(denying=dict.fromkeys(deny, "Resources"))
    with connected(kubeconfig) as api, playing(api, _waiting(), clusters, policy):
        click.echo(f"simulating Liqo with {', '.join(clusters)}")
        stop.wait()


def _waiting() -> Wait:
    def wait(condition: object, _: str) -> object:
        assert callable(condition)
        return poll(condition, WAIT_SECONDS)

    return wait


if __name__ == "__main__":
    main()
