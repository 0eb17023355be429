"""The current time for rules, and the instant until which their results stay valid if nothing else changes."""

from datetime import datetime


class Deadlines:
    """Tracks the first instant at which a result can change only because time has passed."""

    def __init__(self) -> None:
        self._next: datetime | None = None

    def take(self) -> datetime | None:
        """Return the earliest instant recorded since the last call, or None."""
        first, self._next = self._next, None
        return first

    def record(self, instant: datetime) -> None:
        """Record an *instant* in the future at which a result may change."""
        if self._next is None or instant < self._next:
            self._next = instant


class Now:
    """The current time, which rules can only compare with. Each instant in the future becomes a deadline."""

    __slots__ = ("_deadlines", "_now")

    def __init__(self, now: datetime, deadlines: Deadlines | None = None) -> None:
        self._now = now
        self._deadlines = Deadlines() if deadlines is None else deadlines

    def reached(self, instant: datetime) -> bool:
        """Return whether it is *instant* or later."""
        if self._now < instant:
            self._deadlines.record(instant)
            return False
        return True

    def passed(self, instant: datetime) -> bool:
        """Return whether it is later than *instant*."""
        if self._now <= instant:
            self._deadlines.record(instant)
            return False
        return True
