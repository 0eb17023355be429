"""What the reflectors have seen and the loop has not taken yet: the one place where their threads meet."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from predicates.objects import Object
from predicates.snapshot import key_of
from predicates.unreadable import Unreadable
from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError
from rescheduler.kube.codec import Change
from rescheduler.kube.lister import Listing

#: At most one line about what cannot be read in so many seconds, however many kinds it concerns.
COMPLAINT_SECONDS: Final = 15.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pending:
    """What is new of one kind: at most one entry an object, so that an idle reader costs no more than a list."""

    replaced: bool = False  #: objects not in *latest* are gone
    latest: dict[str, Object | None] = field(default_factory=dict)  #: None: gone


@dataclass(frozen=True, slots=True)
class Taken:
    """One moment."""

    pending: Mapping[str, Pending]
    unreadable: tuple[Unreadable, ...]


class Inbox:
    """Collects; :meth:`take` hands over. Safe for use by many threads."""

    def __init__(self, required: frozenset[str], clock: Clock) -> None:
        """*required*: the kinds that must have been listed, or found not to be served, before anything is decided."""
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, Pending] = {}
        self._missing = set(required)
        self._errors: dict[str, ReschedulerError] = {}
        self._unreadable: dict[str, dict[str, Unreadable]] = {}
        self._complained: float | None = None
        self.complete = threading.Event()  #: every required kind was listed

    @property
    def missing(self) -> tuple[str, ...]:
        """Required kinds that were never listed."""
        with self._lock:
            return tuple(sorted(self._missing))

    @property
    def errors(self) -> Mapping[str, ReschedulerError]:
        """Why kinds cannot be read at present."""
        with self._lock:
            return dict(self._errors)

    @property
    def unreadable(self) -> Mapping[tuple[str, str], Unreadable]:
        """Objects, by kind and key, that the API server has and we cannot decode."""
        with self._lock:
            return self._undecoded()

    def _undecoded(self) -> Mapping[tuple[str, str], Unreadable]:
        return {(one.kind, key): one for ones in self._unreadable.values() for key, one in ones.items()}

    def listed(self, kind: str, listing: Listing) -> None:
        for unreadable in listing.unreadable.values():
            _left_out(unreadable)
        with self._lock:
            self._unreadable[kind] = dict(listing.unreadable)
            self._pending[kind] = Pending(replaced=True, latest={key_of(one): one for one in listing.objects})
            self._missing.discard(kind)
            if not self._missing:
                self.complete.set()

    def changed(self, kind: str, change: Change) -> None:
        with self._lock:
            known = self._unreadable.setdefault(kind, {})
            new = change.key not in known
            if change.unreadable is not None:
                known[change.key] = change.unreadable
            else:
                known.pop(change.key, None)
            self._pending.setdefault(kind, Pending()).latest[change.key] = change.object
        if new and change.unreadable is not None:
            _left_out(change.unreadable)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        """One line for all kinds, as they mostly fail for one reason."""
        with self._lock:
            if error is None:
                if self._errors.pop(kind, None) is not None and not self._errors:
                    log.info("the cluster can be read again")
                return
            self._errors[kind] = error
            now = self._clock.monotonic()
            if self._complained is not None and now - self._complained < COMPLAINT_SECONDS:
                return
            self._complained = now
            kinds = ", ".join(sorted(self._errors))
        log.warning("cannot read %s, trying again: %s", kinds, error)

    def take(self) -> Taken:
        """All that came in since the last call, by kind, and what cannot be decoded at the same moment."""
        with self._lock:
            pending, self._pending = self._pending, {}
            return Taken(pending, tuple(self._undecoded().values()))


def _left_out(unreadable: Unreadable) -> None:
    log.error("left out, as it cannot be read: %s", unreadable.why)
