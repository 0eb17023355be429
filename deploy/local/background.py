"""Planes that live in a process of their own, found again by their folder.

The owner of a plane holds a lock on the folder's lock file for as long as it lives, with its process id
inside: the id of a process that ended is never taken for a plane.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from deploy.local import cache
from deploy.local.errors import PlaneError

START_SECONDS = 120.0
STOP_SECONDS = 30.0
_LOCK = "owner.lock"  # beside the plane's folder, which has to be empty when a plane starts
_PLANE = "plane"
_OUTPUT = "output.log"


def default_folder() -> Path:
    """Where the plane is that no folder was named for."""
    return cache.folder() / "plane"


def plane_folder(folder: Path) -> Path:
    """The plane's own folder inside *folder*."""
    return folder / _PLANE


def owner(folder: Path) -> int | None:
    """The process id of the plane's owner; None where no plane runs."""
    try:
        with (folder / _LOCK).open("r+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return int((folder / _LOCK).read_text() or "0")
    return None


@contextmanager
def owned(folder: Path) -> Iterator[Path]:
    """Be the owner of *folder*, and give an empty folder for a plane; what a dead plane left is deleted.

    Raises PlaneError where a plane runs there, or where the folder holds something else.
    """
    _claim(folder)
    with (folder / _LOCK).open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaneError(f"a control plane runs in {folder} already; `down` takes it down") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        shutil.rmtree(folder / _PLANE, ignore_errors=True)
        yield folder / _PLANE


def _claim(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    foreign = {item.name for item in folder.iterdir()} - {_LOCK, _PLANE, _OUTPUT}
    if foreign:
        raise PlaneError(f"{folder} holds {min(foreign)}, so it is not a plane's; name an empty or a new folder")


def start(folder: Path, arguments: Sequence[str], ready: Path) -> None:
    """Run `python -m deploy.local ARGUMENTS…` on its own, and wait until the file *ready* is there.

    Raises PlaneError with its words where it ends before that, and where the folder holds something else.
    """
    _claim(folder)
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "deploy.local", *arguments]
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _came_true(lambda: ready.exists() or process.poll() is not None, START_SECONDS)
    finally:  # also where a person has had enough of waiting
        if not ready.exists():
            process.terminate()
    if not ready.exists():
        process.wait(STOP_SECONDS)
        words = (folder / _OUTPUT).read_text(errors="replace").strip().removeprefix("Error: ")
        raise PlaneError(words or f"the control plane did not start in {START_SECONDS:g} s")
    process.returncode = 0  # it goes on by itself, and is nobody's zombie here


def stop(folder: Path) -> bool:
    """Take down the plane in *folder* and delete its files; whether one ran.

    Raises PlaneError where the owner does not end.
    """
    pid = owner(folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        if not _came_true(lambda: owner(folder) is None, STOP_SECONDS):
            raise PlaneError(f"process {pid} of the control plane in {folder} does not end; kill it")
    for name in (_PLANE, _OUTPUT, _LOCK):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return pid is not None


def _came_true(condition: Callable[[], bool], seconds: float) -> bool:
    polling = Retrying(
        retry=retry_if_result(lambda found: not found), stop=stop_after_delay(seconds), wait=wait_fixed(0.1)
    )
    try:
        return polling(condition)
    except RetryError:
        return False
