"""``python -m tests.invariants.record``: run the scenes of `test_broken` and store the watchdog's histories.

`test_recorded` evaluates these histories without a control plane.
"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer
from tests.forking import PROGRAM
from tests.invariants.scenes import BROKEN, SCENES, Stage, daemon_of, played
from tests.invariants.watchdog import Watchdog

HISTORIES: Final = Path(__file__).parent / "histories"
INTACT: Final = "intact"


def file_of(program: str, scene: str) -> Path:
    return HISTORIES / f"{program}-{scene}.json.gz".replace(" ", "-")


@click.command()
@click.argument("names", nargs=-1)
def main(names: tuple[str, ...]) -> None:
    """Record the given safeguards or scenes; by default, all of them."""
    HISTORIES.mkdir(exist_ok=True)
    with ControlPlane() as plane:
        for safeguard, (invariant, scene) in BROKEN.items():
            if not names or safeguard in names:
                _record(plane, safeguard, scene, invariant)
        for scene in SCENES:
            if not names or scene in names:
                _record(plane, INTACT, scene, 0)


def _record(plane: ControlPlane, safeguard: str, name: str, invariant: int) -> None:
    program = PROGRAM if safeguard == INTACT else ("-m", "tests.invariants.broken", safeguard)
    observer = Observer(plane)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        stage = Stage(plane, observer, Path(folder), program)
        scene = opened.enter_context(played(name, stage))
        watchdog = opened.enter_context(Watchdog(plane, scene.rules, scene.pool))
        opened.enter_context(daemon_of(scene, stage))
        scene.disturb()
        if invariant:
            observer.eventually(lambda: {v.invariant for v in watchdog.violations} & {invariant}, "a violation", 60)
        else:
            observer.eventually(scene.done, "the end of the scene")
        watchdog.stop()
        watchdog.recorded().save(file_of(safeguard, name))
    for violation in watchdog.violations:
        click.echo(f"{safeguard}: {violation}")
    cleaning.empty(plane)


if __name__ == "__main__":
    main()
