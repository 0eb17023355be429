"""Whether the watched state of the cluster can be used for decisions."""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

from predicates.snapshot import Snapshot
from rescheduler.errors import Forbidden, ReschedulerError

#: A watch without an event or a bookmark for this many seconds may have lost its connection.
STALE_SECONDS: Final = 150.0

#: Maximum number of errors and of kinds in a message.
_MAX_ERRORS: Final = 3
_MAX_KINDS: Final = 3


class State(Protocol):
    """The watched cluster."""

    @property
    def synced(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def errors(self) -> Mapping[str, ReschedulerError]: ...

    def ages(self) -> Mapping[str, float]: ...

    def snapshot(self) -> Snapshot: ...


def stale(ages: Mapping[str, float]) -> str:
    """Return a message about the watches that are too old for decisions, or "". *ages* are in seconds, by kind."""
    silent = sorted((-age, kind) for kind, age in ages.items() if age > STALE_SECONDS)
    silent_texts = [f"{kind}: no event or bookmark for {-age:.0f} s" for age, kind in silent[:_MAX_KINDS]]
    rest = [f"and {len(silent) - _MAX_KINDS} more"] if len(silent) > _MAX_KINDS else []
    return ", ".join(silent_texts + rest)


def why_unusable(state: State) -> str:
    """Return why the watched state cannot be used for decisions, or "". Thread-safe."""
    errors = state.errors
    if not state.synced:
        return "; ".join((f"not read yet: {', '.join(state.missing)}", *_messages(errors.values())))
    if errors:
        return f"{', '.join(sorted(errors))} cannot be read at present: {'; '.join(_messages(errors.values()))}"
    return ""


def _messages(errors: Collection[ReschedulerError]) -> list[str]:
    """Return the first messages of *errors*. Missing permissions come first: they need to be granted."""
    by_weight = sorted(errors, key=lambda error: not isinstance(error, Forbidden))
    return list(dict.fromkeys(map(str, by_weight)))[:_MAX_ERRORS]
