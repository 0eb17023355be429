"""The commands of README and docs that concern a live cluster, and those that they print, on a local cluster.

The cluster has the pods of the demo, and a daemon, which is paused. Commands with placeholders, of the sample, of
clouds and of services are left out: tests/cli/test_printed_commands.py checks their flags, and plans the sample.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import httpx2
import tenacity

from devcluster.api import MERGE_PATCH
from devcluster.demo import scene
from devcluster.manifests import mixed_nodes
from devcluster.plane import ControlPlane
from tests.cli.test_printed_commands import DOCUMENTED, PLACEHOLDER, printed_by, shell_words
from tests.cluster.daemon import Daemon
from tests.sample import files

ROOT: Final = Path(__file__).parents[2]
READERS: Final = ("plan", "explain", "report", "status", "snapshot")
_ALL: Final = dict.fromkeys(command.partition("  #")[0].strip() for _, command in DOCUMENTED)
_LIVE: Final = [command for command in _ALL if not PLACEHOLDER.search(command) and "docs/" not in command]
#: The commands that read the cluster.
COMMANDS: Final = [command for command in _LIVE if command.split()[1] in READERS]
#: Those that show what drains have saved: nothing before the first drain.
SAVINGS: Final = [command for command in _LIVE if command.split()[1] == "savings"]
#: Those that stop drains, that release an owner, and that allow drains again.
PAUSES: Final = [command for command in _LIVE if command.split()[1] == "pause"]
WAIVERS: Final = [command for command in _LIVE if " resume --waive " in command]
RESUMES: Final = [command for command in _LIVE if command.split()[1:] == ["resume"]]
#: The daemon that drains nothing. It ends after a round here, which it makes without another leader.
DRY_RUNS: Final = [
    f"{command} --once --listen-address=127.0.0.1:0" for command in _LIVE if " run --dry-run " in command
]


#: The kinds of objects that printed commands patch.
KINDS = {
    "node": ("v1", "Node"),
    "pod": ("v1", "Pod"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "poddisruptionbudget": ("policy/v1", "PodDisruptionBudget"),
}


def test_the_documented_commands_and_those_that_they_print_work_as_they_are(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "rescheduler"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rescheduler "$@"\n')
    program.chmod(0o755)
    shutil.copy(files.PRICES, tmp_path / "prices.csv")
    path = f"{program.parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "PATH": path, "PYTHONPATH": str(ROOT)}

    def run(command: str) -> tuple[int, str, str]:
        words = ["bash", "-c", command]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout, done.stderr

    assert min(map(len, (SAVINGS, PAUSES, WAIVERS, RESUMES, DRY_RUNS))) > 0
    assert {command.split()[1] for command in COMMANDS} >= {"plan", "explain", "report", "status"}
    failures: dict[str, object] = {command: ran for command in DRY_RUNS if (ran := run(command))[0]}
    with Daemon(cluster) as daemon:
        cluster.wait_for(lambda: run("rescheduler status")[0] == 0, "a leader")
        failures |= {command: ran for command in PAUSES if (ran := run(command))[0]}
        cluster.apply(mixed_nodes(5, 8))
        scene.occupy(cluster, 13)
        results = {command: run(command) for command in COMMANDS}
        assert "3 of 5 on-demand nodes drainable" in results["rescheduler plan"][1]
        failures |= {command: (code, errors) for command, (code, _, errors) in results.items() if code}
        failures |= {command: errors for command in COMMANDS if (errors := results[command][2])}
        assert [command for command in SAVINGS if "after its first drain" not in run(command)[2]] == []
        owed = {command: run(command)[2].partition(": ")[2] for command in WAIVERS}
        assert owed == {command: f"{command.split()[-1]}: nothing to release; known: none\n" for command in WAIVERS}
        levers = json.loads(run("rescheduler plan -o json")[1])["summary"]["levers"]
        printed = [lever["try"] for lever in levers]
        assert printed
        assert printed_by((tmp_path / "report.html").read_text()) == printed
        for command in dict.fromkeys([*printed, *printed_by_status_page(daemon)]):
            code, text, errors = run(command)
            assert (command, code, "Can also be drained" in text, errors) == (command, 0, True, "")
        patches = [run(f"rescheduler plan --lever={number} --patch")[1] for number in range(1, len(levers) + 1)]
        kubectl = [shell_words(line) for patch in patches for line in patch.splitlines() if line.startswith("kubectl ")]
        assert {accepted(words, cluster) for words in kubectl} >= {"Deployment", "Pod", "PodDisruptionBudget"}
        failures |= {command: ran for command in RESUMES if (ran := run(command))[0]}
    assert failures == {}


@tenacity.retry(stop=tenacity.stop_after_delay(300), wait=tenacity.wait_fixed(2), reraise=True)
def printed_by_status_page(daemon: Daemon) -> list[str]:
    """Return the commands of the status page, which plans all drains in the round after it was opened."""
    html = httpx2.get(f"{daemon.address}/statusz", headers={"Accept": "text/html"}, timeout=60, trust_env=False)
    return printed_by(html.text)


def accepted(words: list[str], cluster: ControlPlane) -> str:
    """Send the patch of a printed ``kubectl`` command as a dry run, as kubectl would. Return the kind of its object."""
    target, body = words[2:-3], json.loads(words[-1])
    assert (words[:2], words[-3:-1]) == (["kubectl", "patch"], ["--type=merge", "-p"])
    metadata = {"name": target[-1]} | ({"namespace": target[1]} if target[0] == "-n" else {})
    version, kind = KINDS[target[-2]]
    path = cluster.api.path({"apiVersion": version, "kind": kind, "metadata": metadata})
    cluster.api.request("PATCH", path, body, MERGE_PATCH, {"dryRun": "All"})
    return kind
