"""The folder where built and fetched things are kept, once for all checkouts of one user."""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.local.errors import SetupError

KEPT_VERSIONS = 4  #: of one thing; the oldest of more are deleted when a new one is made


def folder() -> Path:
    """`$XDG_CACHE_HOME/spot-rescheduler`; as the XDG rules ask, a relative XDG_CACHE_HOME is ignored."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    base = given if given.is_absolute() else Path.home() / ".cache"
    path = base / "spot-rescheduler"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot make the cache folder {path}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
        ) from error
    return path


def say(line: str) -> None:
    """Progress, for the person who waits; standard output stays free for results."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the machine-wide lock *name*: of two processes that need the same thing, one makes it."""
    locks = folder() / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / name).open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{name}: another process is at it, waiting for it to finish")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def made_once(name: str, version: str, make: Callable[[Path], None]) -> Path:
    """The folder of *name* at *version*; *make* fills it the first time.

    It appears whole or not at all: *make* works in a folder of its own that is renamed when it is done.
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
    """Keep the newest versions, and what a killed process left unfinished not at all (the lock is held)."""
    for leftover in shelf.glob(".unfinished-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    versions = sorted(shelf.iterdir(), key=lambda version: version.stat().st_mtime, reverse=True)
    for old in versions[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
