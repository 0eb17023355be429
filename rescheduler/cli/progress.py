"""What is going on, on standard error, for a person at a terminal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show *what* is being done as long as it takes; silent where standard error is no terminal."""
    if not sys.stderr.isatty():  # rich itself takes any file for a terminal where FORCE_COLOR is set
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - nobody else needs it

    with Console(stderr=True).status(f"{what} …"):
        yield
