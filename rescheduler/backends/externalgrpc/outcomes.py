"""What became of each node of a deletion, in the call's metadata: the protocol itself has one status for all.

The service adds the trailing metadata :data:`OUTCOMES` whether the call succeeds or not; other clients ignore it.
A client that repeats an order of an earlier process tells its time in :data:`ORDERED_AT`; other services ignore it.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from rescheduler import shapes
from rescheduler.backends.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Failed, Refusal, Refused

OUTCOMES: Final = "rescheduler-outcomes-bin"
ORDERED_AT: Final = "rescheduler-ordered-at"
RETRY_AFTER: Final = "rescheduler-retry-after"

#: Bytes of a call's metadata that gRPC implementations take by default: 8 KiB, with the status message in it.
_LARGEST: Final = 4096

_PLAIN: Final[dict[str, type[Deleted] | type[AlreadyGone] | type[Accepted]]] = {
    "deleted": Deleted,
    "already-gone": AlreadyGone,
    "accepted": Accepted,
}

Metadata: TypeAlias = Iterable[tuple[str, str | bytes]]


class _Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    outcome: Literal["deleted", "already-gone", "accepted", "refused", "failed"]
    detail: str = ""
    reason: Refusal | None = None
    retryable: bool = False


def trailer(outcomes: Mapping[str, DeleteOutcome]) -> list[tuple[str, str | bytes]]:
    """The metadata entry; none where it would be too large."""
    told = msgspec.json.encode({node: _told(outcome) for node, outcome in outcomes.items()})
    return [(OUTCOMES, told)] if len(told) <= _LARGEST else []


def read(metadata: Metadata | None) -> dict[str, DeleteOutcome]:
    """By node; empty where the service tells nothing that we understand."""
    raw = dict(metadata or ()).get(OUTCOMES, b"")
    try:
        told = shapes.decode(raw, dict[str, _Outcome])
    except msgspec.MsgspecError:
        return {}
    return {node: _read(outcome) for node, outcome in told.items()}


def ordered_at(metadata: Metadata | None) -> dt.datetime | None:
    """The time of an earlier order. Raises ValueError where it is no time with a zone."""
    text = dict(metadata or ()).get(ORDERED_AT)
    if text is None:
        return None
    try:
        time = dt.datetime.fromisoformat(str(text))
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{ORDERED_AT}: expected a time with a zone, got {text!r}")
    return time


def _told(outcome: DeleteOutcome) -> _Outcome:
    match outcome:
        case Deleted(detail):
            return _Outcome("deleted", detail)
        case AlreadyGone(detail):
            return _Outcome("already-gone", detail)
        case Accepted(detail):
            return _Outcome("accepted", detail)
        case Refused(reason, detail):
            return _Outcome("refused", detail, reason)
        case Failed(error, retryable):
            return _Outcome("failed", error, retryable=retryable)


def _read(told: _Outcome) -> DeleteOutcome:
    if told.outcome == "refused":
        return Refused(told.reason or Refusal.PROTECTED, told.detail)
    if told.outcome == "failed":
        return Failed(told.detail, told.retryable)
    return _PLAIN[told.outcome](told.detail)
