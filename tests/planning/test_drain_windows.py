"""Windows in which drains may start."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.errors import UsageError
from rescheduler.planning.pauses import closed_until, parse_window

WORK = "Mon-Fri 09:00-17:00 Europe/Stockholm"
NIGHT = "Fri 22:00-06:00 Europe/Stockholm"
#: The clock skips 02:00 to 03:00 on 29 March 2026, a Sunday, and repeats 02:00 to 03:00 on 25 October 2026, a Sunday.
SKIPPED = "Sun 02:00-03:00 Europe/Stockholm"
INTO_GAP = "Sun 02:30-04:00 Europe/Stockholm"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


#: 23 November 2026 is a Monday; Stockholm is one hour ahead of UTC then.
STATES: dict[str, tuple[str, str, bool]] = {
    "the first minute": (WORK, "2026-11-23 08:00", True),
    "the minute before": (WORK, "2026-11-23 07:59:59", False),
    "the last second": (WORK, "2026-11-23 15:59:59", True),
    "the end": (WORK, "2026-11-23 16:00", False),
    "Saturday": (WORK, "2026-11-28 09:00", False),
    "in summer the zone is two hours ahead": (WORK, "2026-07-20 07:00", True),
    "the evening of the day": (NIGHT, "2026-11-27 21:00", True),
    "after midnight it belongs to the day before": (NIGHT, "2026-11-28 04:59", True),
    "the morning of the next day": (NIGHT, "2026-11-28 05:00", False),
    "the morning of the day": (NIGHT, "2026-11-27 04:00", False),
    "every day, UTC": ("00:00-24:00", "2026-11-28 23:59:59", True),
    "the end of a day": ("Sat 12:00-24:00", "2026-11-28 23:59:59", True),
    "the day after it": ("Sat 12:00-24:00", "2026-11-29 00:00", False),
    "until midnight": ("Sat 12:00-00:00", "2026-11-28 23:59:59", True),
    "days across the weekend": ("Fri-Mon 10:00-11:00", "2026-11-29 10:30", True),
    "days that are left out": ("Fri-Mon 10:00-11:00", "2026-11-25 10:30", False),
    "a list of days": ("mon,Wed-thu 10:00-11:00", "2026-11-26 10:30", True),
    "the hour is skipped": (SKIPPED, "2026-03-29 01:00", False),
    "it starts in the skipped hour": (INTO_GAP, "2026-03-29 01:00", True),
    "the hour is repeated, first": (SKIPPED, "2026-10-25 00:30", True),
    "the hour is repeated, second": (SKIPPED, "2026-10-25 01:30", True),
    "after the repeated hour": (SKIPPED, "2026-10-25 02:00", False),
}


@pytest.mark.parametrize(("window", "now", "is_open"), STATES.values(), ids=STATES)
def test_a_window_is_open_between_its_times(window: str, now: str, is_open: bool) -> None:
    assert parse_window(window).is_open(at(now)) is is_open


OPENINGS: dict[str, tuple[Sequence[str], str, str]] = {
    "the same day": ([WORK], "2026-11-23 05:00", "2026-11-23T08:00:00Z (Mon 09:00 Europe/Stockholm)"),
    "after the weekend": ([WORK], "2026-11-27 16:00", "2026-11-30T08:00:00Z (Mon 09:00 Europe/Stockholm)"),
    "the earlier of two": (
        [WORK, "Sat 12:00-13:00"],
        "2026-11-27 16:00",
        "2026-11-28T12:00:00Z (Sat 12:00 UTC)",
    ),
    "a week later": (["Mon 10:00-11:00"], "2026-11-23 11:00", "2026-11-30T10:00:00Z (Mon 10:00 UTC)"),
    "the hour is skipped this week": (
        [SKIPPED],
        "2026-03-28 12:00",
        "2026-04-05T00:00:00Z (Sun 02:00 Europe/Stockholm)",
    ),
    "it starts in the skipped hour": (
        [INTO_GAP],
        "2026-03-28 12:00",
        "2026-03-29T01:00:00Z (Sun 03:00 Europe/Stockholm)",
    ),
    "between the two repeated hours": (
        ["Sun 02:00-02:30 Europe/Stockholm"],
        "2026-10-25 00:45",
        "2026-10-25T01:00:00Z (Sun 02:00 Europe/Stockholm)",
    ),
}


@pytest.mark.parametrize(("windows", "now", "opening"), OPENINGS.values(), ids=OPENINGS)
def test_the_next_opening_is_reported(windows: Sequence[str], now: str, opening: str) -> None:
    text = closed_until([parse_window(window) for window in windows], at(now))
    assert text == f"no drain window is open; the next one opens at {opening}"


def test_without_windows_and_in_one_of_several_drains_may_start() -> None:
    now = at("2026-11-28 12:30")
    assert closed_until((), now) == ""
    assert closed_until([parse_window(WORK), parse_window("Sat 12:00-13:00")], now) == ""


MOMENTS = st.datetimes(datetime(2024, 1, 1), datetime(2034, 1, 1))  # noqa: DTZ001 - in UTC
TIMES = st.times().map(lambda clock: clock.strftime("%H:%M"))
ZONES = st.sampled_from(["UTC", "Europe/Stockholm", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


@given(MOMENTS, TIMES, TIMES, ZONES)
def test_no_window_opens_before_the_next_opening(moment: datetime, start: str, end: str, zone: str) -> None:
    """The window is closed at every quarter of an hour before the opening, and a minute before the opening."""
    window, now = parse_window(f"{start}-{end if end != start else '24:00'} {zone}"), moment.replace(tzinfo=UTC)
    if window.is_open(now):
        return
    opening = window.next_opening(now)
    assert opening is not None
    assert window.is_open(opening)
    between = (now + number * timedelta(minutes=15) for number in range(4 * 24 * 2))
    assert not any(window.is_open(other) for other in between if other < opening)
    assert opening - now <= timedelta(minutes=1) or not window.is_open(opening - timedelta(minutes=1))


EXPECTED = "expected [DAYS] HH:MM-HH:MM [ZONE], such as 'Mon-Fri 09:00-17:00 Europe/Stockholm'"
WRONG = {
    "": EXPECTED,
    "Mon": EXPECTED,
    "Mon-Fri 9-17": EXPECTED,
    "09:00-25:00": EXPECTED,
    "09:60-10:00": EXPECTED,
    "09:00": EXPECTED,
    "09:00-10:00 UTC more": EXPECTED,
    "Mon Fri 09:00-10:00": EXPECTED,
    "Mo-Fr 09:00-10:00": f"day 'Mo-Fr': expected Mon, Tue, Wed, Thu, Fri, Sat, Sun or a range; {EXPECTED}",
    "Mon, 09:00-10:00": f"day '': expected Mon, Tue, Wed, Thu, Fri, Sat, Sun or a range; {EXPECTED}",
    "09:00-09:00": "it starts and ends at 09:00; for whole days use 00:00-24:00",
    "09:00-10:00 Europe/Stokholm": (
        "zone 'Europe/Stokholm': expected a name of the IANA time zone database, such as Europe/Stockholm or UTC"
    ),
    **{
        f"09:00-10:00 {zone}": (
            f"zone {zone!r}: expected a name of the IANA time zone database, such as Europe/Stockholm or UTC"
        )
        for zone in ("localtime", "posix/UTC", "right/UTC", "europe/Stockholm/", "tzdata.zi", "Europe")
    },
    "09:00-10:00 ../../etc/passwd": (
        "zone '../../etc/passwd': expected a name of the IANA time zone database, such as Europe/Stockholm or UTC"
    ),
}


@pytest.mark.parametrize(("text", "why"), WRONG.items())
def test_an_invalid_window_is_a_usage_error(text: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_window(text)
    assert str(raised.value) == f"drain window {text!r}: {why}"
