"""A new virtual environment with the wheel of a release, to test that the wheel works."""

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from deploy.release import sbom
from deploy.release.errors import ReleaseError

SAMPLE = Path(__file__).with_name("sample.json")


class Installed:
    """The environment in *folder*. Dependencies are downloaded with the hashes in *lock*; *wheel* is a local file."""

    def __init__(self, folder: Path, lock: Path, wheel: Path) -> None:
        self._folder = folder
        venv.create(folder, with_pip=False)  # pip would be listed in the SBOM
        self._pip("install", "--require-hashes", "--requirement", str(lock))
        self._pip("install", "--no-index", "--no-deps", str(wheel))
        self._pip("check")

    def check(self, version: str) -> None:
        """Check that the program prints its version and plans the sample. Raises ReleaseError."""
        response = self._run("version")
        if response.split()[:2] != ["rescheduler", version]:
            raise ReleaseError(f"rescheduler version: {response!r}, expected {version}")
        summary = json.loads(self._run("plan", f"--snapshot={SAMPLE}", "-o", "json"))["summary"]
        counts = {key: summary[key] for key in ("on_demand_nodes", "spot_nodes", "drainable_nodes", "pods_to_move")}
        if set(counts.values()) != {1}:
            raise ReleaseError(f"rescheduler plan: {counts}, expected 1 of each")

    def bill(self, version: str) -> sbom.Json:
        """Return the SBOM of the environment. Raises ReleaseError."""
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"]
        inventory = _done([*command, "--output-format", "JSON", str(self._python)])
        return sbom.subject(json.loads(inventory), version)

    @property
    def _python(self) -> Path:
        return self._folder / "bin" / "python"

    def _pip(self, *arguments: str) -> None:
        pip = ["-m", "pip", "--python", str(self._python), "--quiet", "--disable-pip-version-check"]
        _done([sys.executable, *pip, *arguments])

    def _run(self, *arguments: str) -> str:
        """Return the output of the installed program, run in a folder without the source code."""
        return _done([str(self._folder / "bin" / "rescheduler"), *arguments], self._folder)


def _done(command: Sequence[str], folder: Path | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RESCHEDULER_"))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()[-3:]
        raise ReleaseError(f"{' '.join(command[:6])} …: exit code {done.returncode}: {' '.join(lines)}")
    return done.stdout
