"""The commands of README that read a cluster, as they are written, on a local cluster with the pods of the demo."""

import os
import re
import subprocess
import sys
from pathlib import Path

from devcluster.demo import scene
from devcluster.manifests import mixed_nodes
from devcluster.plane import ControlPlane

ROOT = Path(__file__).parents[2]
_BLOCK = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Estimate the savings")[2].split("```")[1]
#: The commands, without the installation, the daemon, which does not end, and kubectl, which is not built here.
COMMANDS = [
    line.partition("  #")[0].strip()
    for line in re.sub(r"\\\n", "", _BLOCK).splitlines()
    if line.startswith("rescheduler ") and " run " not in line
]


def test_the_commands_of_the_readme_work_as_they_are(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.apply(mixed_nodes(5, 8))
    scene.occupy(cluster, 13)
    program = tmp_path / "bin" / "rescheduler"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rescheduler "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path, "PYTHONPATH": str(ROOT)}
    results = {}
    for command in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        results[command] = done.returncode, done.stderr
        if command == "rescheduler plan":
            assert done.stdout.startswith("3 of 5 on-demand nodes drainable")
    assert len(COMMANDS) > 4
    assert results == dict.fromkeys(COMMANDS, (0, ""))
    assert (tmp_path / "report.html").exists()
