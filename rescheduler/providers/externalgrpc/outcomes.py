"""The outcome of each node of a deletion, as call metadata, because the protocol has one status for all nodes.

The service adds the trailing metadata :data:`OUTCOMES` to successful and failed calls; other clients ignore it.
A client that repeats an earlier process's order sends its time as :data:`ORDERED_AT`; other services ignore it.
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from rescheduler import decoding
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Failed, Refusal, Refused

OUTCOMES: Final = "rescheduler-outcomes-bin"
ORDERED_AT: Final = "rescheduler-ordered-at"
RETRY_AFTER: Final = "rescheduler-retry-after"

#: Bytes. gRPC implementations accept 8 KiB of call metadata by default, including the status message.
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
    """Return the outcomes as one metadata entry, or no entry if it would be too large."""
    encoded = msgspec.json.encode({node: _encoded(outcome) for node, outcome in outcomes.items()})
    return [(OUTCOMES, encoded)] if len(encoded) <= _LARGEST else []


def read(metadata: Metadata | None) -> dict[str, DeleteOutcome]:
    """Return the outcomes by node; empty if the metadata contains none or is invalid."""
    raw = dict(metadata or ()).get(OUTCOMES, b"")
    try:
        decoded = decoding.decode(raw, dict[str, _Outcome])
    except msgspec.MsgspecError:
        return {}
    return {node: _decoded(outcome) for node, outcome in decoded.items()}


def ordered_at(metadata: Metadata | None) -> dt.datetime | None:
    """Return the time of an earlier order. Raises ValueError if it is not a time with a zone."""
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


def _encoded(outcome: DeleteOutcome) -> _Outcome:
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


def _decoded(message: _Outcome) -> DeleteOutcome:
    if message.outcome == "refused":
        return Refused(message.reason or Refusal.PROTECTED, message.detail)
    if message.outcome == "failed":
        return Failed(message.detail, message.retryable)
    return _PLAIN[message.outcome](message.detail)
