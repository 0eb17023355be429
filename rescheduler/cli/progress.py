"""Progress messages on standard error, for a person at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def progress(activity: str) -> Iterator[None]:
    """Show *activity* while the block runs; print nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():  # rich treats any file as a terminal if FORCE_COLOR is set
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - imported on demand

    with Console(stderr=True).status(f"{activity} …"):
        yield
