"""The queue of changes from the reflectors' threads to the loop's thread."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from predicates.objects import Object
from predicates.snapshot import key_of
from predicates.unreadable import Unreadable
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.kube.codec import Change
from rescheduler.kube.lister import Listing

#: Minimum interval between two log lines about kinds that cannot be read.
COMPLAINT_SECONDS: Final = 15.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pending:
    """The pending changes of one kind, at most one per object."""

    replaced: bool = False  #: objects not in *latest* are gone
    latest: dict[str, Object | None] = field(default_factory=dict)  #: None: gone


@dataclass(frozen=True, slots=True)
class Taken:
    """The pending changes and the undecodable objects at one moment."""

    pending: Mapping[str, Pending]
    unreadable: tuple[Unreadable, ...]


class Inbox:
    """Collects changes; :meth:`take` returns and clears them. Thread-safe."""

    def __init__(self, required: frozenset[str], clock: Clock) -> None:
        """Create the inbox. *required* kinds must be listed, or known as not served, before decisions are made."""
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
        """The required kinds that were not listed yet."""
        with self._lock:
            return tuple(sorted(self._missing))

    @property
    def errors(self) -> Mapping[str, ReschedulerError]:
        """The current read errors, by kind."""
        with self._lock:
            return dict(self._errors)

    @property
    def unreadable(self) -> Mapping[tuple[str, str], Unreadable]:
        """The objects that cannot be decoded, by kind and key."""
        with self._lock:
            return self._undecoded()

    def _undecoded(self) -> Mapping[tuple[str, str], Unreadable]:
        return {(item.kind, key): item for by_key in self._unreadable.values() for key, item in by_key.items()}

    def listed(self, kind: str, listing: Listing) -> None:
        for unreadable in listing.unreadable.values():
            _left_out(unreadable)
        with self._lock:
            self._unreadable[kind] = dict(listing.unreadable)
            self._pending[kind] = Pending(replaced=True, latest={key_of(item): item for item in listing.objects})
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
        """Record the read error of a kind.

        One log line covers all kinds, which usually fail for the same reason. Each missing permission gets its own
        line, so that all of them are reported at once.
        """
        with self._lock:
            if error is None:
                if self._errors.pop(kind, None) is not None and not self._errors:
                    log.info("the cluster can be read again")
                return
            of_one_kind = isinstance(error, Forbidden) and str(self._errors.get(kind)) != str(error)
            self._errors[kind] = error
            now = self._clock.monotonic()
            if not of_one_kind and self._complained is not None and now - self._complained < COMPLAINT_SECONDS:
                return
            self._complained = now
            kinds = kind if of_one_kind else ", ".join(sorted(self._errors))
        log.warning("cannot read %s, retrying: %s", kinds, error)

    def take(self) -> Taken:
        """Return the changes since the last call by kind, and the objects that cannot be decoded at that moment."""
        with self._lock:
            pending, self._pending = self._pending, {}
            return Taken(pending, tuple(self._undecoded().values()))


def _left_out(unreadable: Unreadable) -> None:
    log.error("skipping an object that cannot be decoded: %s", unreadable.why)
