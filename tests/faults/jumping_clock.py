"""The program with a wall clock that is ahead of the real one, or behind it; the monotonic clock is the real one.

``python -m tests.faults.jumping_clock FILE run …`` is ``rescheduler run …``. FILE has the seconds; whoever writes
another number into it lets the clock jump.
"""

import datetime as dt
import sys
from pathlib import Path
from unittest.mock import patch

from rescheduler import cli
from rescheduler.clock import SystemClock
from tests.acceptance.program import run_program


def jump(offset: Path, seconds: float) -> None:
    """From now on the clock that follows the file *offset* is so many *seconds* ahead."""
    new = offset.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(offset)


def follow(offset: Path) -> None:
    """Let the wall clock of this process follow the file *offset*, until the process ends."""
    real = SystemClock.now

    def now(clock: SystemClock) -> dt.datetime:
        return real(clock) + dt.timedelta(seconds=float(offset.read_text()))

    patch.object(SystemClock, "now", now).start()


def forked(offset: str, arguments: tuple[str, ...], log: str) -> None:
    """The `main` of a `Program`."""
    follow(Path(offset))
    run_program(arguments, log)


if __name__ == "__main__":
    follow(Path(sys.argv[1]))
    cli.main(sys.argv[2:])
