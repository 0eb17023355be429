"""Why no drain may start: the process cannot decide, drains are paused, or the cluster has to settle first."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Pod
from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.loop_inputs import LoopState, Mode
from rescheduler.observe.events import Held, PauseChanged, Report, Waiting
from rescheduler.planning.drain_windows import closed_until
from rescheduler.planning.timestamps import utc

#: Maximum number of pods in a message.
_NAMED: Final = 3

#: A namespace has to be without pending pods for this many times as long as its pods have delayed drains.
_QUIET: Final = 10


class PendingDelays:
    """How long the pending pods of each namespace may still delay drains: for *patience* at most.

    This holds also if the pods are deleted and created again. The time is regained while the namespace has no such
    pods.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._left: dict[str, timedelta] = {}
        self._pending: frozenset[str] = frozenset()  #: namespaces with pending pods, when they were last looked at
        self._delaying: frozenset[str] = frozenset()  #: those of them whose pods delayed drains
        self._at: datetime | None = None

    def delaying(self, pods: Sequence[Pod], now: datetime) -> list[Pod]:
        """Return those of the pending *pods* that delay drains *now*."""
        elapsed = max(now - (self._at or now), timedelta())
        for namespace in self._delaying:
            self._left[namespace] -= elapsed
        for namespace in self._left.keys() - self._pending:
            self._left[namespace] = min(self._left[namespace] + elapsed / _QUIET, self._patience)
        self._at, self._pending = now, frozenset(pod.namespace for pod in pods)
        self._left = {
            namespace: left
            for namespace, left in self._left.items()
            if left < self._patience or namespace in self._pending
        }
        for namespace in self._pending:
            self._left.setdefault(namespace, self._patience)
        self._delaying = frozenset(name for name in self._pending if self._left[name] >= timedelta())
        return [pod for pod in pods if pod.namespace in self._delaying]


class Holds:
    """Determines whether a drain may start. Used by the loop's thread only."""

    def __init__(
        self, view: ClusterView, history: DrainHistory, run_state: LoopState, mode: Mode, clock: Clock, report: Report
    ) -> None:
        self._view = view
        self._history = history
        self._run_state = run_state
        self._patience = mode.timing.pending_patience
        self._delays = PendingDelays(self._patience)
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
        if pods := self._delays.delaying(self._view.waiting(self._patience), self._clock.now()):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pending pods may fit on spot nodes: {named}")
        return None
