"""Timestamps in the format of the Kubernetes API."""

from datetime import UTC, datetime


def instant(text: str | None) -> datetime | None:
    """Parse an API timestamp. Return None if *text* is empty or not a timestamp. A timestamp without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def utc(moment: datetime) -> str:
    """Format *moment* in UTC, to the second: ``2026-03-01T12:00:00Z``."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
