"""Programs from Debian packages, for tests, without root: downloaded by apt, unpacked into the cache."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.local import cache
from deploy.local.errors import SetupError


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Where the two programs are."""

    prometheus: Path
    promtool: Path


def prometheus_binaries() -> Prometheus:
    """Prometheus and promtool: from PATH where both are, otherwise Debian's package in the cache.

    Raises SetupError where neither is to be had.
    """
    names = ("prometheus", "promtool")
    found = [Path(path) for path in map(shutil.which, names) if path]
    if len(found) < len(names):
        programs = unpacked("prometheus") / "usr" / "bin"
        found = [programs / name for name in names]
    return Prometheus(*found)


def unpacked(package: str) -> Path:
    """The files of the Debian *package*, the first version that was fetched; what it depends on is left out."""
    missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
    if missing:
        raise SetupError(f"{package} is not installed, and {missing[0]} is not here to fetch it; install {package}")

    def fetch(target: Path) -> None:
        cache.say(f"{package}: fetching Debian's package")
        if not _downloaded(package, target, []):
            lists = _own_lists()
            if not _downloaded(package, target, lists):
                raise SetupError(f"apt-get cannot download {package}; install {package}, or check apt's sources")
        (archive,) = target.glob("*.deb")
        _run(["dpkg", "-x", str(archive), str(target)], target)
        archive.unlink()

    return cache.made_once(package, "debian", fetch)


def _downloaded(package: str, target: Path, options: Sequence[str]) -> bool:
    return _run(["apt-get", *options, "download", package], target) and any(target.glob("*.deb"))


def _own_lists() -> list[str]:
    """Fresh package lists in the cache, for machines where apt has none and this user may not fetch them."""
    state = cache.folder() / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::State::lists={state / 'lists'}", f"-oDir::Cache={state / 'cache'}"]
    options += ["-oAPT::Sandbox::User=root"]  # apt's own user may not write there
    _run(["apt-get", *options, "update"], state)
    return options


def _run(command: Sequence[str], cwd: Path) -> bool:
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False).returncode == 0
