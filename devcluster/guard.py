"""Runs a command that ends when its owner ends, even if the owner is killed.

`python guard.py OWNER COMMAND…`, where OWNER is the process id of the direct parent. The command ends in these cases:

- The owner ends, even by SIGKILL: its pidfd becomes readable, and the guard kills the command. (The kernel's parent
  death signal alone is not sufficient: it is sent when the thread that forked ends, not the process.)
- The guard itself is killed: it has only one thread, so the kernel's parent death signal kills the command.
- The guard receives SIGTERM or SIGINT, or the command exits.

The module imports only the standard library and is started by its path, so that it starts in milliseconds.
"""

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_STARTED = 127  #: exit code if the command cannot run, as in a shell


def main(arguments: list[str]) -> int:
    """Run the command until it or the owner ends; return its exit code, or 128 + n for signal n."""
    owner, command = int(arguments[0]), arguments[1:]
    try:
        owner_fd = os.pidfd_open(owner)
    except ProcessLookupError:
        return NOT_STARTED
    if os.getppid() != owner:  # the owner has ended: the pidfd may belong to an unrelated process
        return NOT_STARTED
    child = os.fork()
    if child == 0:
        _become(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
    child_fd = os.pidfd_open(child)
    select.select([owner_fd, child_fd], [], [])
    os.kill(child, signal.SIGKILL)  # not reaped yet, so the process id is still valid
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(command: list[str]) -> NoReturn:
    """Execute the command in this child process."""
    guard = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # the guard died before prctl
        os._exit(NOT_STARTED)
    try:
        os.execvp(command[0], command)  # noqa: S606 -- the owner chooses the command
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
