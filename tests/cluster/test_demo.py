"""``make demo``, as a stranger runs it."""

import subprocess
import sys

from tests.cluster.daemon import ROOT, environment

CELLS = 4  #: of the table of the cloudpool's machines


def test_the_demo_empties_nodes_and_says_so() -> None:
    command = [sys.executable, "-m", "deploy.local.demo"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "3 nodes emptied" in done.stdout
    assert "none Pending, no taint left" in done.stdout
    for reason in ("no-controller", "pod-disruption-budget", "no-room-on-spot"):
        assert reason in done.stdout
    rows = {cells[0]: cells[1:] for cells in map(cells_of, done.stdout.splitlines()) if len(cells) == CELLS}
    for number in (1, 2, 3):
        _, before, after = rows[f"on-demand-{number}"]
        assert (before, "Node gone" in after) == ("RUNNING", True)
    for what in ("machines RUNNING", "Nodes", "desired size"):
        assert rows[what][1:] == ["5", "2"]


def cells_of(line: str) -> list[str]:
    """Of a table's row."""
    return [cell.strip() for cell in line.strip("│").split("│")] if line.startswith("│") else []
