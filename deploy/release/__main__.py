"""``make release``: write the wheel, the sdist, the chart, the SBOM and their checksums to dist/."""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.release import chart, krew, project, sbom
from deploy.release.errors import ReleaseError
from deploy.release.installed import Installed
from deploy.release.tree import Tree, export

ROOT: Final = Path(__file__).parents[2]
CHART: Final = Path("deploy", "chart", "spot-rescheduler")
#: Files for kubectl apply: the daemon, and its alerts.
MANIFESTS: Final = (Path("rescheduler", "cli", "manifests.yaml"), Path("deploy", "components", "alerts", "rules.yaml"))
SUMS: Final = "SHA256SUMS"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist", help="Output folder; existing content is deleted."
    )
    project.add_arguments(parser)
    values = vars(parser.parse_args())
    output = values.pop("output")
    try:
        release(output, project.chosen(**values))
    except ReleaseError as error:
        sys.exit(f"release: {error}")


def release(output: Path, of: project.Project) -> None:
    """Build the release of a project in *output*, whose existing content is deleted. Raises ReleaseError."""
    for name in of.unset:
        sys.stderr.write(f"release: {name} is not set, so links or images name nobody: make release {name}=…\n")
    os.umask(0o022)  # file modes become part of the wheel
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        tree = export(ROOT, Path(folder) / "source")
        project.render(tree.folder, of)
        wheel = _built(tree, output)
        installed = Installed(Path(folder) / "installed", tree.folder / "requirements.lock", wheel)
        installed.check(tree.version)
        lock = (tree.folder / "requirements.lock").read_text()
        bill = sbom.hashed(installed.bill(tree.version), lock)
        sbom.check(bill, sbom.pins(lock))
        (output / f"{sbom.NAME}-{tree.version}.cdx.json").write_text(json.dumps(bill, indent=2, sort_keys=True) + "\n")
        chart.pack(tree.folder / CHART, tree.version, tree.epoch, output)
        krew.write(output, wheel, tree.version, tree.epoch, of)
        for file in MANIFESTS:
            shutil.copyfile(tree.folder / file, output / f"{sbom.NAME}-{tree.version}-{file.name}")
    sums = "".join(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(output.iterdir())
    )
    (output / SUMS).write_text(sums)
    sys.stdout.write(f"release {tree.version} of commit {tree.commit}:\n{sums}")


def _built(tree: Tree, output: Path) -> Path:
    """Build the sdist, and the wheel from it, so that a file missing in the sdist is noticed. Return the wheel."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(tree.epoch), "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(tree.folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"python -m build: {' '.join((done.stderr or done.stdout).split()[-60:])}")
    [wheel] = output.glob("*.whl")
    [_] = output.glob("*.tar.gz")
    return wheel


if __name__ == "__main__":
    main()
