"""Periodic background work of a stand-in."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from rescheduler.clock import Clock

_INTERVAL: Final = 0.2  #: seconds between two steps

log = logging.getLogger(__name__)


class PeriodicTask:
    """Calls *step* periodically in a thread. Exceptions of the types *retried* are logged, and the step is retried."""

    def __init__(self, name: str, step: Callable[[], None], clock: Clock, retried: tuple[type[Exception], ...]) -> None:
        self._step, self._clock, self._retried = step, clock, retried
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop and wait for a running step; do nothing if not started."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._clock.wait(_INTERVAL, self._stop):
            try:
                self._step()
            except self._retried as error:
                log.debug("%s: %s", self._thread.name, " ".join(str(error).split())[:300])
