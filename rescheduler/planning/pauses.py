"""The pause that a person sets with an annotation on the Lease. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rescheduler.planning.timestamps import instant, utc

#: Annotation of the Lease: ``true``, or the end of the pause as an RFC 3339 time. Any other value also pauses drains.
PAUSED: Final = "spot-rescheduler/paused"
#: Annotation of the Lease: why drains are paused, for people.
PAUSE_REASON: Final = "spot-rescheduler/pause-reason"

#: Maximum length of a reason, in characters. It is part of log lines and Kubernetes Events.
LONGEST_REASON: Final = 256

#: Control characters, and halves of surrogate pairs.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


@dataclass(frozen=True, slots=True)
class ManualPause:
    """A pause that is active."""

    until: datetime | None = None  #: its end in UTC; None if it lasts until the annotation is removed
    reason: str = ""
    unreadable: str = ""  #: the value of the annotation if it cannot be read; "" if it can

    @property
    def text(self) -> str:
        """The message about the pause, on one line."""
        until = f" until {utc(self.until)}" if self.until is not None else ""
        why = f": {self.reason}" if self.reason else ""
        if not self.unreadable:
            return f"drains are paused{until}{why}"
        value = f"annotation {PAUSED}: {self.unreadable!r}, expected an RFC 3339 time or true"
        return f"drains are paused{why} ({value})"


def manual_pause(annotations: Mapping[str, str], now: datetime) -> ManualPause | None:
    """Return the pause in the *annotations* of the Lease, or None if there is none or if it has ended."""
    value = annotations.get(PAUSED)
    if value is None:
        return None
    reason = one_line(annotations.get(PAUSE_REASON, ""))
    if value == "true":
        return ManualPause(None, reason)
    until = _end(value)
    if until is None:
        return ManualPause(None, reason, one_line(value) or "empty")
    return ManualPause(until, reason) if now < until else None


def pause_annotations(until: datetime | None, reason: str) -> dict[str, str | None]:
    """Return the annotations of a pause that ends at *until*, or that has no end (None). None removes an annotation."""
    end = "true" if until is None else utc(until)
    return {PAUSED: end, PAUSE_REASON: one_line(reason) or None}


def one_line(text: str) -> str:
    """Return *text* as one line of at most LONGEST_REASON characters. Control characters become ``?``."""
    line = " ".join(text.split())[:LONGEST_REASON]
    return "".join("?" if is_control(character) else character for character in line)


def is_control(character: str) -> bool:
    """Return whether *character* is a control character (such as ESC) or half of a surrogate pair."""
    return _CONTROL.fullmatch(character) is not None


def _end(value: str) -> datetime | None:
    """Parse an RFC 3339 time. Return None if *value* is not one."""
    if not _RFC3339.fullmatch(value.upper()):
        return None
    try:
        end = instant(value.upper())
        return None if end is None else end.astimezone(UTC)
    except OverflowError:
        return None
