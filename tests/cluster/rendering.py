"""Rendering of deploy/ with the engines of Helm and kustomize."""

import json
import shutil
import subprocess
import textwrap
from pathlib import Path

import yaml

from devcluster import build
from devcluster.api import Json
from devcluster.plane import ControlPlane

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart" / "spot-rescheduler"


class RenderingError(Exception):
    """The engine rejected the input; the message is the engine's."""


def kustomization(folder: str | Path) -> list[Json]:
    """Return the objects of the kustomization in *folder*, which is relative to deploy/ or absolute."""
    return _objects(["kustomization", str(DEPLOY / folder)])


def composed(folder: Path, **layers: Json) -> list[Json]:
    """Write the kustomizations *layers* next to links to those of deploy/. Return the objects of the last one."""
    for name in ("base", "components", "limits", "liqo", "provider", "proxy"):
        (folder / name).symlink_to(DEPLOY / name)
    for name, layer in layers.items():
        (folder / name).mkdir()
        (folder / name / "kustomization.yaml").write_text(yaml.safe_dump(layer))
    return kustomization(folder / name)


def chart(
    values: Json | None = None,
    release: str = "spot-rescheduler",
    namespace: str = "spot-rescheduler",
    plane: ControlPlane | None = None,
) -> list[Json]:
    """Return the objects of a release of the chart. Raises RenderingError if the chart rejects *values*.

    The chart looks up objects of *plane*; without one, as in ``helm template``, it finds none.
    """
    found = [plane.server, str(plane.ca), plane.token] if plane is not None else []
    return _objects(["chart", str(CHART), release, namespace, *found], json.dumps(values or {}))


def notes(folder: Path, values: Json, release: str, namespace: str) -> str:
    """Return the notes that Helm prints after an installation. *folder* is for a copy of the chart."""
    copy = Path(shutil.copytree(CHART, folder / CHART.name))
    text = textwrap.indent((copy / "templates" / "NOTES.txt").read_text(), "  ")
    (copy / "templates" / "notes.yaml").write_text(f"kind: Notes\ntext: |\n{text}")
    return str(only_of_kind(_objects(["chart", str(copy), release, namespace], json.dumps(values)), "Notes")["text"])


def only_of_kind(objects: list[Json], kind: str) -> Json:
    [item] = [each for each in objects if each["kind"] == kind]
    return item


def _objects(arguments: list[str], stdin: str = "") -> list[Json]:
    done = subprocess.run([str(build.render()), *arguments], input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RenderingError(done.stderr)
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def leader_lease(objects: list[Json]) -> Json:
    """Return the Lease by which the replicas elect their leader. The other one is for orders of machines."""
    [lease] = [item for item in objects if item["kind"] == "Lease" and "pool" not in item["metadata"]["name"]]
    return lease
