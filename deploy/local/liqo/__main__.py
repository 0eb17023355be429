"""``python -m deploy.local.liqo``: play Liqo's part on the control plane of a kubeconfig, until a signal comes."""

import signal
import threading
from pathlib import Path

import click
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from deploy.local.liqo.connecting import connected
from deploy.local.liqo.controller import Policy
from deploy.local.liqo.playing import Wait, playing

WAIT_SECONDS = 60.0


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path, exists=True), required=True, help="Of `make up`.")
@click.option("--cluster", "clusters", multiple=True, default=["rome", "milan"], help="A peer; repeatable.")
@click.option("--deny", multiple=True, metavar="CLUSTER", help="One that denies whatever is asked; repeatable.")
def main(kubeconfig: Path, clusters: tuple[str, ...], deny: tuple[str, ...]) -> None:
    """Make slices of the peers into Nodes, and remove them again; at the end none is left."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    policy = Policy(denying=dict.fromkeys(deny, "Resources"))
    with connected(kubeconfig) as api, playing(api, _waiting(), clusters, policy):
        click.echo(f"playing Liqo with {', '.join(clusters)}")
        stop.wait()


def _waiting() -> Wait:
    def wait(found: object, _: str) -> object:
        assert callable(found)
        again = retry_if_result(lambda result: not result)
        return Retrying(retry=again, stop=stop_after_delay(WAIT_SECONDS), wait=wait_fixed(0.1))(found)

    return wait


if __name__ == "__main__":
    main()
