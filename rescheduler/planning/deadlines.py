"""How long results of planning stay valid if only the time changes."""

from datetime import datetime


class Deadlines:
    """The first instant at which the time alone can change a result.

    Rules ask here whether an instant has come. The earliest instant that has not come yet is noted.
    """

    def __init__(self) -> None:
        self._next: datetime | None = None

    def reached(self, instant: datetime, now: datetime) -> bool:
        """Return whether *now* is *instant* or later."""
        if now < instant:
            self._note(instant)
            return False
        return True

    def passed(self, instant: datetime, now: datetime) -> bool:
        """Return whether *now* is later than *instant*."""
        if now <= instant:
            self._note(instant)
            return False
        return True

    def take(self) -> datetime | None:
        """Return the earliest instant that was noted since the last call, or None."""
        first, self._next = self._next, None
        return first

    def _note(self, instant: datetime) -> None:
        if self._next is None or instant < self._next:
            self._next = instant
