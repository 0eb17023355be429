"""Progress messages on standard error, for a person at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ERASED: Final = "\r\033[K"  #: returns to the start of the line and erases it


@contextmanager
def progress(activity: str) -> Iterator[None]:
    """Show *activity* while the block runs; print nothing if standard error is not a terminal."""
    shown = sys.stderr.isatty()
    if shown:
        print(f"{activity} …", end="", file=sys.stderr, flush=True)  # noqa: T201
    try:
        yield
    finally:
        if shown:
            print(_ERASED, end="", file=sys.stderr, flush=True)  # noqa: T201
