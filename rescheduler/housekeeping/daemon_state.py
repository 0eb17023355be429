"""The state of the daemon's process: whether it is the leader, paused by a user, or stopping."""

import logging
import threading

from rescheduler.clock import Clock
from rescheduler.kube.elector import Elector
from rescheduler.kube.lease_object import LeaseNotes, LeaseReader
from rescheduler.observe.events import InvolvedLease
from rescheduler.observe.health import Health
from rescheduler.planning.pauses import manual_pause
from rescheduler.settings import Running

log = logging.getLogger(__name__)


class DaemonState:
    """Whether the daemon may act: it is the leader (if leader election is on) and was not told to stop."""

    def __init__(self, clock: Clock, running: Running) -> None:
        self.elector: Elector | None = None
        self.lease_reader: LeaseReader | None = None  #: used if there is no elector
        self._clock = clock
        self._running = running
        self._stop = threading.Event()
        self.health: Health | None = None

    @property
    def leading(self) -> bool:
        return self.elector is None or self.elector.leading

    @property
    def lease(self) -> InvolvedLease:
        return InvolvedLease(self._running.namespace, self._running.lease_name, self._notes.uid)

    @property
    def paused(self) -> str:
        """Why a user paused drains, or ""."""
        pause = manual_pause(self._notes.annotations, self._clock.now())
        return pause.text if pause is not None else ""

    @property
    def _notes(self) -> LeaseNotes:
        source = self.elector or self.lease_reader
        return source.notes if source is not None else LeaseNotes()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    @property
    def rival(self) -> str:
        return self.elector.rival if self.elector is not None else ""

    def beat(self) -> None:
        if self.health is not None:
            self.health.beat()

    def pause(self, seconds: float) -> None:
        self._clock.wait(seconds, self._stop)

    def stop(self) -> None:
        self._stop.set()

    def on_stop_signal(self, signal: str) -> None:
        log.warning("%s: rolling back the current drain, then exiting", signal)
        self.stop()
