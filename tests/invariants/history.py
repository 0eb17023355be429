"""The observations of the watchdog, as values that can be stored and evaluated later."""

import gzip
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from tests.invariants.objects import SeenObject, SeenWorkload
from tests.invariants.rules import Rules

#: Within this time after a change, an answer shows it, in seconds.
_ANSWERED = 1e-5


class Revision(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object after a write. etcd numbers the revisions of all kinds together, so they order all writes."""

    number: int
    at: datetime  #: when the watchdog saw it, slightly after the write
    object: SeenObject
    gone: bool = False  #: it was deleted; *object* is its last state
    initial: bool = False  #: it existed before the watchdog started: its number does not define its order

    @property
    def order(self) -> tuple[bool, bool, int]:
        """The sort key: initial objects first, and among them owners before their pods."""
        return not self.initial, self.initial and not isinstance(self.object, SeenWorkload), self.number


class SentWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A write of the daemon, or any write to the daemon's Lease, from the audit log."""

    verb: str
    kind: str  #: resource and subresource: `pods/eviction`
    namespace: str
    name: str
    user: str
    pod: str  #: the pod that the token is bound to, or ""
    code: int
    received: datetime
    handled: datetime
    dry_run: bool = False
    uid: str = ""  #: the pod UID that an eviction requires, or ""
    holder: str | None = None  #: the new holder, for a write to the Lease
    mark_holder: str = ""  #: the holder in the mark, for a write of a mark

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300


class ObservedTermination(msgspec.Struct, frozen=True, omit_defaults=True):
    """A termination of a machine by the daemon."""

    at: datetime
    machine: str
    node: str
    decrement: bool
    looked: datetime | None = None  #: when the daemon last read the Node before, if that is known

    def look(self, longest: float) -> float:
        """Return how many seconds before, at most *longest*, the daemon had looked at the cluster.

        What was so when the read was answered, it knew.
        """
        if self.looked is None:
            return longest
        return max(min((self.at - self.looked).total_seconds() - _ANSWERED, longest), 0.0)


class SeenSize(msgspec.Struct, frozen=True):
    """A response of GET /pool/size."""

    at: datetime
    desired: int
    allocated: int  #: machines that are requested, pending or running


class History(msgspec.Struct, frozen=True):
    """The observations between *since* and *until*."""

    since: datetime
    until: datetime
    revisions: tuple[Revision, ...] = ()  #: revisions in the order of the writes
    writes: tuple[SentWrite, ...] = ()  #: writes in order of completion
    terminations: tuple[ObservedTermination, ...] = ()
    sizes: tuple[SeenSize, ...] = ()
    kept_nodes: tuple[str, ...] = ()  #: nodes whose machines the pool still has at the end


class Recorded(msgspec.Struct, frozen=True):
    """A history in a file, with the rules for its evaluation."""

    rules: Rules
    history: History

    def save(self, file: Path) -> None:
        file.write_bytes(gzip.compress(msgspec.json.encode(self), mtime=0))

    @classmethod
    def load(cls, file: Path) -> "Recorded":
        return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=cls)


def seconds(period: float) -> timedelta:
    return timedelta(seconds=period)
