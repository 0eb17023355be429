"""How whatever runs on is told to end: SIGTERM or SIGINT, and once more to end at once."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_signals(told: Callable[[str], object]) -> Iterator[None]:
    """For the length of the block the first signal calls *told* with its name; a second one ends the process.

    For the main thread only.
    """

    def first(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        told(signal.Signals(number).name)

    before = {number: signal.signal(number, first) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
