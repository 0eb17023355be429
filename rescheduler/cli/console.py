"""The console for tables."""

from typing import Final

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL: Final = 160


def table_console() -> Console:
    """Return a console for standard output; wide if it is not a terminal, so that files and pipes get whole lines."""
    console = Console(highlight=False)
    return console if console.file.isatty() else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
