"""Signal handling: the first SIGTERM or SIGINT requests a graceful stop, and the second one ends the process."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def on_signals(handle: Callable[[str], object]) -> Iterator[None]:
    """Within the block, call *handle* with the name of the first signal. A second signal ends the process.

    For the main thread only.
    """

    def handle_first(number: int, _: FrameType | None) -> None:
        signal.signal(number, before[signal.Signals(number)])
        handle(signal.Signals(number).name)

    before = {number: signal.signal(number, handle_first) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
