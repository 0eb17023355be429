"""The cache folder for binaries and downloads, shared by all checkouts of a user."""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devcluster.errors import SetupError

KEPT_VERSIONS = 12  #: per program, of all Kubernetes versions; creating a new one deletes the oldest ones


def folder() -> Path:
    """Return `$XDG_CACHE_HOME/spot-rescheduler`; a relative XDG_CACHE_HOME is ignored, as XDG requires."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    path = base / "spot-rescheduler"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot create the cache folder {path}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    return path


def print_progress(line: str) -> None:
    """Print a progress message to standard error; standard output is reserved for results."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the machine-wide lock *name*, so that only one process at a time builds it."""
    locks = folder() / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / name).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_progress(f"{name}: waiting for another process that builds it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def get_or_create(name: str, version: str, make: Callable[[Path], None]) -> Path:
    """Return the cache folder of *name* at *version*; call *make* to fill it the first time.

    The folder is created atomically: *make* fills a temporary folder, which is then renamed.
    """
    shelf = folder() / name
    path = shelf / version
    if path.is_dir():
        return path
    with locked(name):
        if not path.is_dir():
            shelf.mkdir(exist_ok=True)
            _fill(path, make)
            _drop_oldest(shelf)
    return path


def _fill(path: Path, make: Callable[[Path], None]) -> None:
    unfinished = Path(tempfile.mkdtemp(dir=path.parent, prefix=".unfinished-"))
    try:
        make(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _drop_oldest(shelf: Path) -> None:
    """Delete all but the newest versions, and unfinished folders of killed processes; requires the lock."""
    for leftover in shelf.glob(".unfinished-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    versions = sorted(shelf.iterdir(), key=lambda version: version.stat().st_mtime, reverse=True)
    for old in versions[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
