"""Everything that the observer saw, as values that can be stored and judged later."""

import gzip
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from tests.invariants.objects import SeenObject, SeenWorkload
from tests.invariants.rules import Rules


class Revision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object after one write. Revisions of all kinds are counted by one etcd: they order all writes."""

    number: int
    at: datetime  #: when the observer saw it: a moment after it was written
    object: SeenObject
    gone: bool = False  #: it was deleted; *object* is its last state
    initial: bool = False  #: it was there before the observer was: its number says nothing about the order

    @property
    def order(self) -> tuple[bool, bool, int]:
        """What was there at the begin comes first; of that, owners before their pods."""
        return not self.initial, self.initial and not isinstance(self.object, SeenWorkload), self.number


class SentWrite(msgspec.Struct, frozen=True, omit_defaults=True):
    """A write of the daemon, or of anybody to the daemon's Lease, by the audit log."""

    verb: str
    kind: str  #: resource and subresource: `pods/eviction`
    namespace: str
    name: str
    user: str
    pod: str  #: that the token is bound to; "" for none
    code: int
    received: datetime
    handled: datetime
    dry_run: bool = False
    uid: str = ""  #: of an eviction: which pod is meant; "" for any of the name
    holder: str | None = None  #: of a write to a Lease: who holds it now
    mark_holder: str = ""  #: of a write of a mark: whom the mark names

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300


class Termination(msgspec.Struct, frozen=True, omit_defaults=True):
    """A machine that the daemon ordered away, and the pool terminates."""

    at: datetime
    machine: str
    node: str
    decrement: bool


class SeenSize(msgspec.Struct, frozen=True):
    """What GET /pool showed."""

    at: datetime
    desired: int
    allocated: int  #: machines that are requested, pending or running


class History(msgspec.Struct, frozen=True):
    """What was seen between *since* and *until*."""

    since: datetime
    until: datetime
    revisions: tuple[Revision, ...] = ()  #: in their order
    writes: tuple[SentWrite, ...] = ()  #: in the order in which they ended
    terminations: tuple[Termination, ...] = ()
    sizes: tuple[SeenSize, ...] = ()
    kept_nodes: tuple[str, ...] = ()  #: nodes that the pool, asked at the end, still has machines for


class Recorded(msgspec.Struct, frozen=True):
    """A history in a file, with the rules by which it is judged."""

    rules: Rules
    history: History

    def save(self, file: Path) -> None:
        file.write_bytes(gzip.compress(msgspec.json.encode(self), mtime=0))

    @classmethod
    def load(cls, file: Path) -> "Recorded":
        return msgspec.json.decode(gzip.decompress(file.read_bytes()), type=cls)


def seconds(period: float) -> timedelta:
    return timedelta(seconds=period)
