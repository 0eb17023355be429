"""The commands of README that read a cluster, and those that they print, on a local cluster with pods of the demo."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from devcluster.api import MERGE_PATCH
from devcluster.demo import scene
from devcluster.manifests import mixed_nodes
from devcluster.plane import ControlPlane
from tests.cli.test_printed_commands import printed_by, shell_words

ROOT = Path(__file__).parents[2]
_BLOCK = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Estimate the savings")[2].split("```")[1]
#: The commands, without the installation, the daemon, which does not end, and kubectl, which is not built here.
COMMANDS = [
    line.partition("  #")[0].strip()
    for line in re.sub(r"\\\n", "", _BLOCK).splitlines()
    if line.startswith("rescheduler ") and " run " not in line
]


#: The kinds of objects that printed commands patch.
KINDS = {
    "node": ("v1", "Node"),
    "pod": ("v1", "Pod"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "poddisruptionbudget": ("policy/v1", "PodDisruptionBudget"),
}


def test_the_commands_of_the_readme_work_as_they_are(cluster: ControlPlane, tmp_path: Path) -> None:
    cluster.apply(mixed_nodes(5, 8))
    scene.occupy(cluster, 13)
    program = tmp_path / "bin" / "rescheduler"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rescheduler "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path, "PYTHONPATH": str(ROOT)}

    def run(command: str) -> tuple[int, str, str]:
        words = ["bash", "-c", command]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout, done.stderr

    results = {command: run(command) for command in COMMANDS}
    assert results["rescheduler plan"][1].startswith("3 of 5 on-demand nodes drainable")
    assert len(COMMANDS) > 4
    assert {command: (code, errors) for command, (code, _, errors) in results.items()} == dict.fromkeys(
        COMMANDS, (0, "")
    )
    report = (tmp_path / "report.html").read_text()
    levers = json.loads(run("rescheduler plan -o json")[1])["summary"]["levers"]
    printed = [lever["try"] for lever in levers]
    assert printed_by(report) == printed
    assert printed
    for command in printed:
        code, page, errors = run(command)
        assert (code, "Can also be drained" in page, errors) == (0, True, "")
    patches = [run(f"rescheduler plan --lever={number} --patch")[1] for number in range(1, len(levers) + 1)]
    kubectl = [shell_words(line) for patch in patches for line in patch.splitlines() if line.startswith("kubectl ")]
    assert {accepted(words, cluster) for words in kubectl} >= {"Deployment", "Pod", "PodDisruptionBudget"}


def accepted(words: list[str], cluster: ControlPlane) -> str:
    """Send the patch of a printed ``kubectl`` command as a dry run, as kubectl would. Return the kind of its object."""
    target, body = words[2:-3], json.loads(words[-1])
    assert (words[:2], words[-3:-1]) == (["kubectl", "patch"], ["--type=merge", "-p"])
    metadata = {"name": target[-1]} | ({"namespace": target[1]} if target[0] == "-n" else {})
    version, kind = KINDS[target[-2]]
    path = cluster.api.path({"apiVersion": version, "kind": kind, "metadata": metadata})
    cluster.api.request("PATCH", path, body, MERGE_PATCH, {"dryRun": "All"})
    return kind
