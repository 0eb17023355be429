"""``make agreement``: run the scenes on the real control plane and in the simulated cluster, and compare them."""

import logging
import sys
from pathlib import Path
from typing import Final

import click

from devcluster import cleaning
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from tests.agreement.judging import Agreement, table
from tests.agreement.real import real
from tests.agreement.recorded import RecordedScene, agreement, load, save
from tests.agreement.scenes import SCENES, AgreementScene

DOCS: Final = Path(__file__).parents[2] / "docs" / "simulating.md"
BEGIN: Final = "<!-- make agreement writes this table -->\n"
END: Final = "<!-- end of the table -->\n"
#: How many of the scenes may differ.
MOST: Final = 1


@click.command()
@click.argument("names", nargs=-1)
@click.option("--recorded", is_flag=True, help="Run only the simulated cluster, and compare it with the recordings.")
def main(names: tuple[str, ...], *, recorded: bool) -> None:
    """Compare the scenes NAMES, by default all. All of them together are written to docs/simulating.md."""
    exit_on_sigterm()
    logging.getLogger("rescheduler").setLevel(logging.CRITICAL)
    scenes = [scene for scene in SCENES if not names or scene.name in names]
    if not recorded:
        with ControlPlane() as plane:
            for scene in scenes:
                _record(scene, plane)
    compared = [agreement(scene, load(scene)) for scene in scenes]
    for line in table(compared):
        click.echo(line)
    if len(scenes) == len(SCENES):
        write(compared)
    sys.exit(sum(bool(each.differences) for each in compared) > MOST)


def _record(scene: AgreementScene, plane: ControlPlane) -> None:
    click.echo(f"{scene.name} …", err=True)
    save(scene, RecordedScene(*real(scene, plane)))
    cleaning.empty(plane)


def write(compared: list[Agreement]) -> None:
    """Write the table to the documentation."""
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    DOCS.write_text(f"{before}{BEGIN}{chr(10).join(table(compared))}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
