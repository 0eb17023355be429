"""``make demo``, as a stranger runs it."""

import subprocess
import sys

from tests.cluster.daemon import ROOT, environment


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
