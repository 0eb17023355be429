"""What a stand-in does beside its answers: one step again and again, on a thread of its own."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from rescheduler.clock import Clock

_INTERVAL: Final = 0.2  #: seconds between two steps

log = logging.getLogger(__name__)


class Rounds:
    """Calls *step* until closed. What it raises of *passing* is logged for debugging; the next round tries again."""

    def __init__(self, name: str, step: Callable[[], None], clock: Clock, passing: tuple[type[Exception], ...]) -> None:
        self._step, self._clock, self._passing = step, clock, passing
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Waits for a step under way; does nothing if never started."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._clock.wait(_INTERVAL, self._stop):
            try:
                self._step()
            except self._passing as error:
                log.debug("%s: %s", self._thread.name, " ".join(str(error).split())[:300])
