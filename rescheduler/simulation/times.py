"""Times of the API."""

import datetime as dt


def parsed(text: str) -> dt.datetime:
    """Return the time in *text*, as in the API."""
    return dt.datetime.fromisoformat(text)


def seconds_since(text: str | None, now: dt.datetime) -> float:
    """Return how long ago the time in *text* was; 0 if there is none."""
    return (now - parsed(text)).total_seconds() if text else 0.0
