"""Tests of ``make demo-cluster`` and ``make demo-proxy``."""

import subprocess
import sys

from tests.forking import ROOT, environment

CELLS = 4  #: cells in a row of the cloudpool's table: node, machine, before, after


def shown(module: str) -> str:
    """Run the demo, which must succeed, and return its output."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def cloudpool(text: str) -> dict[str, tuple[str, str]]:
    """Return the "before" and "after" columns of the cloudpool's table, keyed by the first column."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {cells[0]: (cells[2], cells[3]) for cells in rows if len(cells) == CELLS}


def test_the_demo_drains_nodes_and_terminates_their_machines() -> None:
    text = shown("devcluster.demo")
    assert "3 nodes drained" in text
    assert "none is Pending. No drain taint is left." in text
    for reason in ("no-controller", "pod-disruption-budget", "pinned-to-on-demand"):
        assert reason in text
    table = cloudpool(text)
    gone = {node for node, (_, after) in table.items() if "Node gone" in after}
    assert gone == {"on-demand-1", "on-demand-2", "on-demand-3"}
    for row in ("machines RUNNING", "Nodes", "desired size"):
        assert table[row] == ("5", "2")


def test_the_proxy_demo_scales_a_pool_down_and_up() -> None:
    """The empty machine is terminated first; the machine with the bare pod is kept."""
    smaller, _, larger = shown("devcluster.demo.proxy").partition("4. Set the desired size to 6 again")
    shrunk, grown = cloudpool(smaller), cloudpool(larger)
    gone = {node for node, (_, after) in shrunk.items() if "Node gone" in after}
    assert (len(gone), "on-demand-6" in gone, "on-demand-4" in gone) == (3, True, False)
    assert {node for node, (before, _) in grown.items() if before == "—"} == {f"on-demand-{n}" for n in (7, 8, 9)}
    for row in ("machines RUNNING", "Nodes", "desired size"):
        assert (shrunk[row], grown[row]) == (("6", "3"), ("3", "6"))
    for size in (3, 6):
        assert f"""-d '{{"desiredSize": {size}}}'""" in smaller + larger
