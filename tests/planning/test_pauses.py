"""The pause in the annotations of the Lease."""

import datetime as dt

import pytest

from rescheduler.planning.pauses import PAUSE_REASON, PAUSED, ManualPause, manual_pause, pause_annotations
from tests.planning.builders import NOW

IN_TWO_HOURS = NOW + dt.timedelta(hours=2)

VALUES: dict[str, tuple[str, ManualPause | None]] = {
    "true": ("true", ManualPause()),
    "a time in the future": ("2026-01-01T14:00:00Z", ManualPause(IN_TWO_HOURS)),
    "a time in lower case": ("2026-01-01t14:00:00z", ManualPause(IN_TWO_HOURS)),
    "a time with a fraction": ("2026-01-01T14:00:00.000Z", ManualPause(IN_TWO_HOURS)),
    "a time of another zone": ("2026-01-01T15:00:00+01:00", ManualPause(IN_TWO_HOURS)),
    "the present": ("2026-01-01T12:00:00Z", None),
    "a time in the past": ("2026-01-01T11:59:59Z", None),
    "a time without a zone": ("2026-01-01T14:00:00", ManualPause(unreadable="2026-01-01T14:00:00")),
    "a date": ("2026-01-01", ManualPause(unreadable="2026-01-01")),
    "a day that does not exist": ("2026-02-30T00:00:00Z", ManualPause(unreadable="2026-02-30T00:00:00Z")),
    "the last day, west of Greenwich": (
        "9999-12-31T23:00:00-02:00",
        ManualPause(unreadable="9999-12-31T23:00:00-02:00"),
    ),
    "a duration": ("2h", ManualPause(unreadable="2h")),
    "false": ("false", ManualPause(unreadable="false")),
    "True": ("True", ManualPause(unreadable="True")),
    "several lines": ("a\nb", ManualPause(unreadable="a b")),
    "control characters": ("\x1b[31mtrue", ManualPause(unreadable="?[31mtrue")),
    "a long text": ("x" * 10_000, ManualPause(unreadable="x" * 255 + "…")),
    "a leap second": ("2026-06-30T23:59:60Z", ManualPause(unreadable="2026-06-30T23:59:60Z")),
    "a space before the time": (" 2026-01-01T14:00:00Z", ManualPause(unreadable="2026-01-01T14:00:00Z")),
    "nothing": ("", ManualPause(unreadable="empty")),
}


@pytest.mark.parametrize(("value", "expected"), VALUES.values(), ids=VALUES)
def test_the_annotation_is_parsed_as_a_pause(value: str, expected: ManualPause | None) -> None:
    assert manual_pause({PAUSED: value}, NOW) == expected


def test_without_the_annotation_drains_are_not_paused() -> None:
    assert manual_pause({PAUSE_REASON: "left behind"}, NOW) is None


TEXTS = {
    "drains are paused: a ?[31mred release": {PAUSED: "true", PAUSE_REASON: "a \x1b[31mred\trelease"},
    "drains are paused: a ?gpj.exe": {PAUSED: "true", PAUSE_REASON: "a \u202egpj.exe"},
    "drains are paused: 👩‍💻": {PAUSED: "true", PAUSE_REASON: "👩‍💻"},
    "drains are paused": {PAUSED: "true"},
    "drains are paused: a release": {PAUSED: "true", PAUSE_REASON: " a\n release "},
    "drains are paused until 2026-01-01T14:00:00Z: a release": {
        PAUSED: "2026-01-01T14:00:00Z",
        PAUSE_REASON: "a release",
    },
    "drains are paused: a release (annotation spot-rescheduler/paused: 'no', expected an RFC 3339 time or true)": {
        PAUSED: "no",
        PAUSE_REASON: "a release",
    },
}


@pytest.mark.parametrize(("text", "annotations"), TEXTS.items())
def test_the_message_names_the_end_and_the_reason(text: str, annotations: dict[str, str]) -> None:
    pause = manual_pause(annotations, NOW)
    assert pause is not None
    assert pause.text == text


@pytest.mark.parametrize("until", [None, IN_TWO_HOURS])
@pytest.mark.parametrize("reason", ["", "a release"])
def test_a_pause_that_was_written_is_read_again(until: dt.datetime | None, reason: str) -> None:
    annotations = pause_annotations(until, reason)
    remaining = {key: text for key, text in annotations.items() if text is not None}
    assert set(annotations) == {PAUSED, PAUSE_REASON}
    assert manual_pause(remaining, NOW) == ManualPause(until, reason)
