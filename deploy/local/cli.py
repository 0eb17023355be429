"""The commands of `python -m deploy.local`."""

import signal
import threading
from pathlib import Path

import click

from deploy.local import background, build, debian, manifests
from deploy.local.errors import SetupError
from deploy.local.plane import ControlPlane

_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where everything of this control plane is kept: one folder for each.  [default: in the cache folder]",
)

_COUNT = click.IntRange(min=0)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A real Kubernetes control plane on this machine, without containers or root.

    etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as they are; kwok plays the kubelets.
    What they are built from is fetched and built once, into $XDG_CACHE_HOME/spot-rescheduler (or ~/.cache).
    """


@main.command("build")
@click.option("--prometheus/--no-prometheus", help="Fetch Debian's Prometheus too, where none is installed.")
def build_all(*, prometheus: bool) -> None:
    """Fetch and build everything that is not there yet.

    Progress goes to standard error. The first time takes some minutes and 6 GB, later times a moment.
    """
    build.binaries()
    build.oracle()
    build.caller()
    if prometheus:
        try:
            debian.prometheus_binaries()
        except SetupError as error:
            click.echo(f"prometheus: {error}; tests that need it are skipped", err=True)


@main.command()
@_FOLDER
@click.option("--on-demand", type=_COUNT, default=0, show_default=True, help="Make on-demand nodes, so many.")
@click.option("--spot", type=_COUNT, default=0, show_default=True, help="Make spot nodes, so many.")
@click.option("--foreground", is_flag=True, help="Stay, and take it down at Ctrl-C or when killed.")
def up(folder: Path | None, on_demand: int, spot: int, *, foreground: bool) -> None:
    """Bring a control plane up and print its KUBECONFIG.

    \b
    eval "$(python -m deploy.local up --on-demand 5 --spot 8)"
    rescheduler plan
    python -m deploy.local down

    The nodes carry the labels that the daemon looks for by default, have 4 CPUs and 16Gi each, and are spread
    over three zones.
    """  # noqa: D301 -- a mark for click: leave these lines as they are
    folder = (folder or background.default_folder()).absolute()
    kubeconfig = background.plane_folder(folder) / "kubeconfig"
    ready = background.plane_folder(folder) / "ready"
    if foreground:
        _stay(folder, on_demand, spot, ready)
        return
    if background.owner(folder) is None:
        build.binaries()  # here, where a person sees the progress
        click.echo(f"starting a control plane in {folder}", err=True)
        nodes = ["--on-demand", str(on_demand), "--spot", str(spot)]
        background.start(folder, ["up", "--foreground", "--dir", str(folder), *nodes], ready)
    else:
        click.echo(f"a control plane runs in {folder} already", err=True)
    click.echo(f"export KUBECONFIG={kubeconfig}")


def _stay(folder: Path, on_demand: int, spot: int, ready: Path) -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    with background.owned(folder) as inside, ControlPlane(inside) as plane:
        plane.apply(manifests.mixed_nodes(on_demand, spot))
        ready.touch()
        click.echo(f"export KUBECONFIG={plane.kubeconfig}")
        plane.wait_until(stopped)


@main.command()
@_FOLDER
def down(folder: Path | None) -> None:
    """Take a control plane down and delete its files."""
    folder = (folder or background.default_folder()).absolute()
    if not background.stop(folder):
        click.echo(f"no control plane runs in {folder}", err=True)
