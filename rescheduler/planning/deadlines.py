"""The time until which planning results stay valid if nothing else changes."""

from datetime import datetime


class Deadlines:
    """Tracks the first instant at which a result can change only because time has passed.

    Rules use this object to compare instants with the time. The earliest instant in the future is recorded.
    """

    def __init__(self) -> None:
        self._next: datetime | None = None

    def reached(self, instant: datetime, now: datetime) -> bool:
        """Return whether *now* is *instant* or later."""
        if now < instant:
            self._record(instant)
            return False
        return True

    def passed(self, instant: datetime, now: datetime) -> bool:
        """Return whether *now* is later than *instant*."""
        if now <= instant:
            self._record(instant)
            return False
        return True

    def take(self) -> datetime | None:
        """Return the earliest instant recorded since the last call, or None."""
        first, self._next = self._next, None
        return first

    def _record(self, instant: datetime) -> None:
        if self._next is None or instant < self._next:
            self._next = instant
