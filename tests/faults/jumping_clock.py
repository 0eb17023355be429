"""The program with an offset on its wall clock; the monotonic clock is unchanged.

``python -m tests.faults.jumping_clock FILE run …`` is ``rescheduler run …``. FILE contains the offset in seconds. Write
a new number into it to make the clock jump.
"""

import datetime as dt
import sys
from pathlib import Path
from unittest.mock import patch

from rescheduler import cli
from rescheduler.clock import SystemClock
from tests.acceptance.program import run_program


def jump(offset: Path, seconds: float) -> None:
    """Set the offset of the clocks that follow the file *offset*."""
    new = offset.with_suffix(".new")
    new.write_text(str(seconds))
    new.replace(offset)


def follow(offset: Path) -> None:
    """Make the wall clock of this process follow the file *offset* until the process exits."""
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
