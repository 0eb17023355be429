"""Where tables are printed."""

from typing import Final

from rich.console import Console

_WIDTH_WITHOUT_TERMINAL: Final = 160


def table_console() -> Console:
    """Standard output; wide where it is no terminal, so that a file or a pipe gets whole lines."""
    console = Console(highlight=False)
    return console if console.file.isatty() else Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
