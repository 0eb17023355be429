"""The program with an offset on its wall clock; the monotonic clock is unchanged.

``python -m tests.faults.jumping_clock FILE run …`` is ``rescheduler run …``. FILE contains the offset in seconds. Write
a new number into it to make the clock jump.
"""

import datetime as dt
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from rescheduler import cli
from rescheduler.clock import SystemClock


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


def main(offset: str, arguments: Sequence[str]) -> None:
    """Run the program, for example as the `main` of a `Program`."""
    follow(Path(offset))
    cli.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
