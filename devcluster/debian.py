"""Programs from Debian packages for tests: downloaded with apt and unpacked into the cache, without root."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache
from devcluster.errors import SetupError


@dataclass(frozen=True, slots=True)
class Prometheus:
    """The paths of the Prometheus programs."""

    prometheus: Path
    promtool: Path


def prometheus_binaries() -> Prometheus:
    """Return Prometheus and promtool from PATH if both are there, otherwise from Debian's package.

    Raises SetupError if the package cannot be downloaded.
    """
    names = ("prometheus", "promtool")
    paths = [Path(path) for path in map(shutil.which, names) if path]
    if len(paths) < len(names):
        folder = unpacked("prometheus") / "usr" / "bin"
        paths = [folder / name for name in names]
    return Prometheus(*paths)


def unpacked(package: str) -> Path:
    """Return the folder with the files of the Debian *package*, without dependencies; a cached copy is not updated."""
    missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
    if missing:
        raise SetupError(f"{package} is not installed, and downloading it requires {missing[0]}; install {package}")

    def fetch(target: Path) -> None:
        cache.print_progress(f"{package}: downloading Debian's package")
        if not _downloaded(package, target, []):
            lists = _own_lists()
            if not _downloaded(package, target, lists):
                raise SetupError(f"apt-get cannot download {package}; install {package}, or check apt's sources")
        (archive,) = target.glob("*.deb")
        _run(["dpkg", "-x", str(archive), str(target)], target)
        archive.unlink()

    return cache.get_or_create(package, "debian", fetch)


def _downloaded(package: str, target: Path, options: Sequence[str]) -> bool:
    return _run(["apt-get", *options, "download", package], target) and any(target.glob("*.deb"))


def _own_lists() -> list[str]:
    """Update package lists in the cache and return the options to use them, for machines without package lists."""
    state = cache.folder() / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    options = [f"-oDir::State::lists={state / 'lists'}", f"-oDir::Cache={state / 'cache'}"]
    options += ["-oAPT::Sandbox::User=root"]  # apt's sandbox user has no write permission there
    _run(["apt-get", *options, "update"], state)
    return options


def _run(command: Sequence[str], cwd: Path) -> bool:
    return subprocess.run(command, cwd=cwd, capture_output=True, check=False).returncode == 0
