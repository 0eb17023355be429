"""Control planes in background processes, identified by their folder.

The owner process of a control plane locks a file in the folder until it exits and writes its process id to the file. A
stale process id is therefore never mistaken for a running control plane.
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

from tenacity import RetryError

from devcluster import cache
from devcluster.errors import PlaneError
from devcluster.polling import poll

START_SECONDS = 120.0
STOP_SECONDS = 30.0
_LOCK = "owner.lock"  # next to the plane's folder, which must be empty when the plane starts
_PLANE = "plane"
_OUTPUT = "output.log"


def default_folder() -> Path:
    """Return the folder that is used if none is given."""
    return cache.folder() / "plane"


def plane_folder(folder: Path) -> Path:
    """Return the plane's folder inside *folder*."""
    return folder / _PLANE


def owner(folder: Path) -> int | None:
    """Return the process id of the plane's owner, or None if no plane runs."""
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
    """Lock *folder* for this process and yield an empty folder for a plane; delete leftovers of a dead plane.

    Raises PlaneError if a plane already runs there, or if the folder contains other files.
    """
    _claim(folder)
    with (folder / _LOCK).open("a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaneError(f"a control plane already runs in {folder}; stop it with `down`") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        shutil.rmtree(folder / _PLANE, ignore_errors=True)
        yield folder / _PLANE


def _claim(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    foreign = {item.name for item in folder.iterdir()} - {_LOCK, _PLANE, _OUTPUT}
    if foreign:
        raise PlaneError(
            f"{folder} contains {min(foreign)}, which is not part of a control plane; use an empty or a new folder"
        )


def start(folder: Path, arguments: Sequence[str], ready: Path) -> None:
    """Run `python -m devcluster ARGUMENTS…` in the background and wait until the file *ready* exists.

    Raises PlaneError with the process output if it exits before that, or if the folder contains other files.
    """
    _claim(folder)
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "devcluster", *arguments]
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _poll_until(lambda: ready.exists() or process.poll() is not None, START_SECONDS)
    finally:  # also after Ctrl-C
        if not ready.exists():
            process.terminate()
    if not ready.exists():
        process.wait(STOP_SECONDS)
        message = (folder / _OUTPUT).read_text(errors="replace").strip().removeprefix("Error: ")
        raise PlaneError(message or f"the control plane did not start in {START_SECONDS:g} s")
    process.returncode = 0  # keeps running; prevents Popen's ResourceWarning about an unreaped child


def stop(folder: Path) -> bool:
    """Stop the plane in *folder* and delete its files; return whether one was running.

    Raises PlaneError if the owner process does not exit.
    """
    pid = owner(folder)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        if not _poll_until(lambda: owner(folder) is None, STOP_SECONDS):
            raise PlaneError(f"process {pid} of the control plane in {folder} does not exit; kill it")
    for name in (_PLANE, _OUTPUT, _LOCK):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    return pid is not None


def _poll_until(condition: Callable[[], bool], seconds: float) -> bool:
    try:
        return poll(condition, seconds)
    except RetryError:
        return False
