"""What deploy/ ships, as Helm's and kustomize's own engines make it."""

import json
import subprocess
from pathlib import Path

import yaml

from deploy.local import build
from deploy.local.api import Json

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart" / "spot-rescheduler"


class Refused(Exception):
    """The engine's own words."""


def kustomization(folder: str | Path) -> list[Json]:
    """The objects of the kustomization in *folder*, below deploy/ or absolute."""
    return _objects(["kustomization", str(DEPLOY / folder)])


def composed(folder: Path, **layers: Json) -> list[Json]:
    """The objects of the last of *layers*: kustomizations in *folder*, beside folders of deploy/."""
    for name in ("base", "components", "liqo"):
        (folder / name).symlink_to(DEPLOY / name)
    for name, layer in layers.items():
        (folder / name).mkdir()
        (folder / name / "kustomization.yaml").write_text(yaml.safe_dump(layer))
    return kustomization(folder / name)


def chart(values: Json | None = None, release: str = "spot-rescheduler", namespace: str = "kube-system") -> list[Json]:
    """The objects of a release of the chart with *values*; Refused where the chart takes them for wrong."""
    return _objects(["chart", str(CHART), release, namespace], json.dumps(values or {}))


def one(objects: list[Json], kind: str) -> Json:
    [found] = [each for each in objects if each["kind"] == kind]
    return found


def _objects(arguments: list[str], given: str = "") -> list[Json]:
    done = subprocess.run([str(build.render()), *arguments], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stderr)
    return [each for each in yaml.safe_load_all(done.stdout) if each]
