"""The commands of `python -m devcluster`."""

import signal
import threading
from pathlib import Path

import click

from devcluster import background, build, debian, manifests
from devcluster.demo import scene
from devcluster.errors import SetupError
from devcluster.plane import ControlPlane

_FOLDER = click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for all files of the control plane; one folder per control plane.  [default: in the cache folder]",
)

_COUNT = click.IntRange(min=0)

#: The fewest on-demand nodes on which the pods of the demo fit: one in each zone.
_LEAST_OCCUPIED = 3


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """A real Kubernetes control plane on this machine, without containers or root.

    It runs unmodified etcd, kube-apiserver, kube-controller-manager and kube-scheduler; kwok simulates the kubelets.
    The binaries are built once, into $XDG_CACHE_HOME/spot-rescheduler (or ~/.cache/spot-rescheduler).
    """


@main.command("build")
@click.option("--prometheus/--no-prometheus", help="Also download Debian's Prometheus if it is not installed.")
@click.option("--chromium/--no-chromium", help="Also download Debian's Chromium if it is not installed.")
def build_all(*, prometheus: bool, chromium: bool) -> None:
    """Download and build all missing binaries.

    Progress is printed to standard error. The first build takes some minutes and 6 GB of disk.
    """
    build.binaries()
    build.oracle()
    build.caller()
    optional = {"prometheus": (prometheus, debian.prometheus_binaries), "chromium": (chromium, debian.chromium)}
    for name, (wanted, download) in optional.items():
        try:
            if wanted:
                download()
        except SetupError as error:
            click.echo(f"{name}: {error}; tests that need it are skipped", err=True)


@main.command()
@_FOLDER
@click.option("--on-demand", type=_COUNT, default=0, show_default=True, help="Number of on-demand nodes.")
@click.option("--spot", type=_COUNT, default=0, show_default=True, help="Number of spot nodes.")
@click.option("--workloads", is_flag=True, help="Also run the pods of the demo on the on-demand nodes, at least 3.")
@click.option("--foreground", is_flag=True, help="Run in the foreground until Ctrl-C or SIGTERM.")
def up(folder: Path | None, on_demand: int, spot: int, *, workloads: bool, foreground: bool) -> None:
    """Start a control plane and print its KUBECONFIG.

    \b
    eval "$(python -m devcluster up --on-demand 5 --spot 8 --workloads)"
    rescheduler plan
    python -m devcluster down

    Each node has the labels that the daemon uses by default, 4 CPUs and 16Gi of memory. The nodes are spread over
    three zones.
    """  # noqa: D301 -- \b prevents click from rewrapping the lines
    folder = (folder or background.default_folder()).absolute()
    kubeconfig = background.plane_folder(folder) / "kubeconfig"
    ready = background.plane_folder(folder) / "ready"
    if workloads and on_demand < _LEAST_OCCUPIED:
        raise click.UsageError(f"--workloads: expected --on-demand={_LEAST_OCCUPIED} or more")
    if foreground:
        _run_in_foreground(folder, on_demand, spot, ready, workloads=workloads)
        return
    if background.owner(folder) is None:
        build.binaries()  # in this process, so that the user sees the progress
        click.echo(f"starting a control plane in {folder}", err=True)
        nodes = ["--on-demand", str(on_demand), "--spot", str(spot)]
        more = ["--workloads"] if workloads else []
        background.start(folder, ["up", "--foreground", "--dir", str(folder), *nodes, *more], ready)
    else:
        click.echo(f"a control plane already runs in {folder}", err=True)
    click.echo(f"export KUBECONFIG={kubeconfig}")


def _run_in_foreground(folder: Path, on_demand: int, spot: int, ready: Path, *, workloads: bool) -> None:
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.set())
    with background.owned(folder) as inside, ControlPlane(inside) as plane:
        plane.apply(manifests.mixed_nodes(on_demand, spot))
        if workloads:
            scene.occupy(plane, on_demand + spot)
        ready.touch()
        click.echo(f"export KUBECONFIG={plane.kubeconfig}")
        plane.wait_until(stopped)


@main.command()
@_FOLDER
def down(folder: Path | None) -> None:
    """Stop a control plane and delete its files."""
    folder = (folder or background.default_folder()).absolute()
    if not background.stop(folder):
        click.echo(f"no control plane runs in {folder}", err=True)
