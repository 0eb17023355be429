"""What is going on, on standard error, for a person at a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show *what* is being done as long as it takes; silent where standard error is no terminal."""
    console = Console(stderr=True)
    if not console.file.isatty():  # rich takes any file for a terminal where FORCE_COLOR is set
        yield
        return
    with console.status(f"{what} …"):
        yield
