"""Programs from Debian packages for tests: downloaded with apt and unpacked into the cache, without root."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster import cache
from devcluster.errors import SetupError

#: A configuration of fontconfig: the fonts that are installed, and those of the unpacked packages.
_FONTS: Final = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>{folder}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


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


@dataclass(frozen=True, slots=True)
class Chromium:
    """The program of the browser, and the environment variables that it needs."""

    program: Path
    environment: Mapping[str, str]


def chromium() -> Chromium:
    """Return Chromium from PATH if it is there, otherwise from Debian's package, with the libraries it depends on.

    Raises SetupError if the packages cannot be downloaded.
    """
    installed = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if installed is not None:
        return Chromium(Path(installed), {})
    root = unpacked("chromium", dependencies=True)
    libraries = [folder for folder in (root / "usr/lib").glob("*-linux-gnu") if folder.is_dir()]
    paths = [str(path) for folder in libraries for path in (folder, folder / "pulseaudio") if path.is_dir()]
    fonts = root / "fonts.conf"
    if not fonts.exists():
        fonts.write_text(_FONTS.format(folder=root / "usr/share/fonts", cache=root / "fonts-cache"), encoding="utf-8")
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(paths), "FONTCONFIG_FILE": str(fonts)}
    return Chromium(root / "usr/lib/chromium/chromium", environment)


def unpacked(package: str, *, dependencies: bool = False) -> Path:
    """Return the folder with the files of the Debian *package*; a cached copy is not updated.

    With *dependencies*, the folder also has the files of the packages that it requires and that are not installed.
    """
    missing = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
    if missing:
        raise SetupError(f"{package} is not installed, and downloading it requires {missing[0]}; install {package}")

    def fetch(target: Path) -> None:
        cache.print_progress(f"{package}: downloading Debian's package")
        download = _downloaded_with_dependencies if dependencies else _downloaded
        if not download(package, target, []) and not download(package, target, _own_lists()):
            raise SetupError(f"apt-get cannot download {package}; install {package}, or check apt's sources")
        for archive in target.glob("*.deb"):
            _run(["dpkg", "-x", str(archive), str(target)], target)
            archive.unlink()

    return cache.get_or_create(package, "debian", fetch)


def _downloaded(package: str, target: Path, options: Sequence[str]) -> bool:
    return _run(["apt-get", *options, "download", package], target) and any(target.glob("*.deb"))


def _downloaded_with_dependencies(package: str, target: Path, options: Sequence[str]) -> bool:
    (target / "partial").mkdir(exist_ok=True)
    local = ["-oDebug::NoLocking=1", f"-oDir::Cache::archives={target}", "-oAPT::Sandbox::User=root"]
    install = ["install", "--yes", "--download-only", "--no-install-recommends", package]
    return _run(["apt-get", *options, *local, *install], target) and any(target.glob("*.deb"))


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
