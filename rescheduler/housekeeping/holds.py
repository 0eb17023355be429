"""Why no drain may start: the process cannot decide, drains are paused, or the cluster has to settle first."""

from datetime import datetime
from typing import Final

from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.loop_inputs import LoopState, Mode
from rescheduler.observe.events import Held, PauseChanged, Report, Waiting
from rescheduler.planning.drain_windows import closed_until
from rescheduler.planning.timestamps import utc

#: Maximum number of pods in a message.
_NAMED: Final = 3


class Holds:
    """Determines whether a drain may start. Used by the loop's thread only."""

    def __init__(
        self, view: ClusterView, history: DrainHistory, run_state: LoopState, mode: Mode, clock: Clock, report: Report
    ) -> None:
        self._view = view
        self._history = history
        self._run_state = run_state
        self._patience = mode.timing.pending_patience
        self._windows = mode.windows
        self._clock = clock
        self._report = report
        self._paused = ""  # why a user paused drains, as it was last reported

    def not_ready(self, missing_rights: str, *, leading: bool) -> Held | None:
        """Return why no decision can be made at present, or None. *missing_rights* is a message or ""."""
        if missing_rights:
            return Held(Waiting.NOT_SYNCED, missing_rights)
        if not leading:
            rival = self._run_state.rival
            detail = f"another replica leads: {rival}" if rival else "another replica leads"
            paused = self._run_state.paused  # for the status page: the leader reports the pause
            return Held(Waiting.NOT_LEADING, f"{detail}; {paused}" if paused else detail, rival)
        if why := self._view.why_unusable():
            return Held(Waiting.NOT_SYNCED, why)
        if why := self._view.stale():
            return Held(Waiting.STALE_WATCH, why)
        return None

    def paused(self) -> Held | None:
        """Report any change of a user's pause. Return the active pause as the reason to wait, or None."""
        paused = self._run_state.paused
        if paused != self._paused:
            self._paused = paused
            self._report(PauseChanged(self._run_state.lease, paused))
        return Held(Waiting.PAUSED, paused) if paused else None

    def held(self, settled_at: datetime | None) -> Held | None:
        """Return why no drain may start at present, or None.

        *settled_at* is the end of the wait after a burst of lost spot nodes.
        """
        if (held := self._history.held()) is not None:
            return held
        if closed := closed_until(self._windows, self._clock.now()):
            return Held(Waiting.OUTSIDE_DRAIN_WINDOW, closed)
        if settled_at is not None:
            return Held(
                Waiting.SPOT_SETTLING,
                f"many spot nodes were lost at once; drains wait until {utc(settled_at)}",
            )
        if pods := self._view.waiting(self._patience):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pending pods may fit on spot nodes: {named}")
        return None
