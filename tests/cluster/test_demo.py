"""``make demo`` and ``make demo-proxy``, as a stranger runs them."""

import subprocess
import sys

from tests.cluster.daemon import ROOT, environment

CELLS = 4  #: of a row about a cloudpool: node, machine, before, after


def shown(module: str) -> str:
    """What the demo prints; it has to end well."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def cloudpool(text: str) -> dict[str, tuple[str, str]]:
    """The first column of the cloudpool's table → before, after."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    return {cells[0]: (cells[2], cells[3]) for cells in rows if len(cells) == CELLS}


def test_the_demo_empties_nodes_and_the_cloudpool_takes_their_machines() -> None:
    text = shown("deploy.local.demo")
    assert "3 nodes emptied" in text
    assert "none Pending, no taint left" in text
    for reason in ("no-controller", "pod-disruption-budget", "no-room-on-spot"):
        assert reason in text
    found = cloudpool(text)
    gone = {node for node, (_, after) in found.items() if "Node gone" in after}
    assert gone == {"on-demand-1", "on-demand-2", "on-demand-3"}
    for what in ("machines RUNNING", "Nodes", "desired size"):
        assert found[what] == ("5", "2")


def test_the_demo_of_the_proxy_shrinks_a_pool_and_lets_it_grow() -> None:
    """The empty machine goes first; the one with a pod that nothing would make anew stays."""
    smaller, _, larger = shown("deploy.local.demo.proxy").partition("4. Its client asks for 6 again")
    shrunk, grown = cloudpool(smaller), cloudpool(larger)
    gone = {node for node, (_, after) in shrunk.items() if "Node gone" in after}
    assert (len(gone), "on-demand-6" in gone, "on-demand-4" in gone) == (3, True, False)
    assert {node for node, (before, _) in grown.items() if before == "—"} == {f"on-demand-{n}" for n in (7, 8, 9)}
    for what in ("machines RUNNING", "Nodes", "desired size"):
        assert (shrunk[what], grown[what]) == (("6", "3"), ("3", "6"))
    for size in (3, 6):
        assert f"""-d '{{"desiredSize": {size}}}'""" in smaller + larger
