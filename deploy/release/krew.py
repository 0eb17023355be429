"""The manifest of the kubectl plugin for krew, and the archive that it names.

The archive has one script, which runs the wheel of the same release with uv or pipx, in an environment of its own.
"""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Final

from deploy.release.project import Project

PLUGIN: Final = "kubectl-spot_rescheduler"
MANIFEST: Final = "krew.yaml"

_SCRIPT: Final = """#!/bin/sh
# Runs spot-rescheduler {version} with uv or pipx, which install it into an environment of its own.
set -eu
wheel="spot-rescheduler @ {url}#sha256={digest}"
if command -v uvx >/dev/null 2>&1; then
  exec uvx --quiet --from "$wheel" {plugin} "$@"
elif command -v pipx >/dev/null 2>&1; then
  exec pipx run --quiet --spec "$wheel" {plugin} "$@"
fi
echo "kubectl spot-rescheduler: expected uv or pipx on the PATH, with which it runs" >&2
exit 1
"""


def write(output: Path, wheel: Path, version: str, epoch: int, project: Project) -> None:
    """Write the archive and the manifest to *output*. *epoch* is the time of the archive's file, in Unix seconds."""
    repository = f"https://github.com/{project.owner}/spot-rescheduler"
    files = f"{repository}/releases/download/v{version}"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    script = _SCRIPT.format(version=version, url=f"{files}/{wheel.name}", digest=digest, plugin=PLUGIN).encode()
    archive = output / f"{PLUGIN}-{version}.tar.gz"
    archive.write_bytes(_packed(script, epoch))
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "spot-rescheduler"},
        "spec": {
            "version": f"v{version}",
            "homepage": repository,
            "shortDescription": "Show which on-demand nodes spot nodes can replace",
            "description": "Shows which on-demand nodes can be drained onto spot nodes, what that saves, and what\n"
            "prevents it. Nothing in the cluster is changed.\n",
            "caveats": "The plugin runs with uv or pipx, and needs Python 3.11 or newer.\n",
            "platforms": [
                {
                    "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["darwin", "linux"]}]},
                    "uri": f"{files}/{archive.name}",
                    "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
                    "bin": PLUGIN,
                }
            ],
        },
    }
    (output / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")  # JSON is YAML


def _packed(script: bytes, epoch: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(PLUGIN)
        entry.size, entry.mtime, entry.mode = len(script), epoch, 0o755
        archive.addfile(entry, io.BytesIO(script))
    return gzip.compress(packed.getvalue(), mtime=0)
