"""Runs one command that does not outlive its owner, however the owner ends.

`python guard.py OWNER COMMAND…`, where OWNER is the process id of the direct parent. Three ways to go:

- the owner ends, even by SIGKILL: its pidfd becomes readable, the command is killed. (The kernel's parent
  death signal alone does not do here: it follows the thread that forked, not the process.)
- the guard itself is killed: it has one thread, so the kernel's parent death signal takes the command.
- SIGTERM or SIGINT to the guard, or the end of the command.

Imports nothing but the standard library, and is started by its path, so that it is up in milliseconds.
"""

import ctypes
import os
import select
import signal
import sys
from typing import NoReturn

PR_SET_PDEATHSIG = 1  # linux/prctl.h
NOT_STARTED = 127  #: exit code where the command cannot run, as a shell has it


def main(arguments: list[str]) -> int:
    """Run the command to its end or the owner's; the command's exit code, 128 + n for signal n."""
    owner, command = int(arguments[0]), arguments[1:]
    try:
        owner_fd = os.pidfd_open(owner)
    except ProcessLookupError:
        return NOT_STARTED
    if os.getppid() != owner:  # the owner was gone already: the pidfd may be of an unrelated process
        return NOT_STARTED
    child = os.fork()
    if child == 0:
        _become(command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os.kill(child, signal.SIGKILL))
    child_fd = os.pidfd_open(child)
    select.select([owner_fd, child_fd], [], [])
    os.kill(child, signal.SIGKILL)  # not reaped yet, so the number is still its own
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _become(command: list[str]) -> NoReturn:
    """Turn this fresh child into the command."""
    guard = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:  # it died before the signal was armed
        os._exit(NOT_STARTED)
    try:
        os.execvp(command[0], command)  # noqa: S606 -- a guard runs what its owner names
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(NOT_STARTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
