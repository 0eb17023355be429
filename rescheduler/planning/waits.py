"""Waits that grow exponentially, and cooldowns: periods in which a node is not drained again after a failed drain."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, TypeAlias

import msgspec

from predicates.texts import printable
from rescheduler.durations import Backoff
from rescheduler.planning.forms import merged_entries

# Waits that grow exponentially: after failed drains, and after pods returned to on-demand nodes.

#: A wall-clock time with its time zone.
Moment: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]

#: Limited, so that calculations with stored numbers cannot overflow.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**9)]


#: How far the clock of the API server may be ahead of ours.
CLOCK_SKEW: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Waits:
    """The lengths of the waits of nodes, drains and controllers. The defaults are those of the flags."""

    cooldown: Backoff = Backoff(timedelta(minutes=5), timedelta(hours=2))  #: after a failed drain, for its node
    pause: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=4))  #: for all drains, after returned pods
    recovery: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=24))  #: for an owner whose pods did not run
    room: Backoff = Backoff(timedelta(minutes=15), timedelta(hours=4))  #: for orders of spot room
    returned: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=24))  #: for a controller whose pods returned
    pool: Backoff = Backoff(timedelta(minutes=10), timedelta(hours=6))  #: for a pool of spot nodes that lost nodes
    moves_per_pod: float = 3.0  #: per 24 hours, on average over a controller's replicas; 0 means no limit


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pause of drains, which doubles with each further failure."""

    times: Count = 0  #: consecutive failures
    until: Moment | None = None

    def lengthened(self, now: datetime, wait: Backoff) -> "Pause":
        """Return the pause, lengthened after one more failure."""
        return Pause(self.times + 1, now + wait.after(self.times + 1))

    def active(self, now: datetime) -> datetime | None:
        """Return the end of the pause, or None if drains need not wait."""
        return self.until if self.until is not None and now < self.until else None

    def bounded(self, now: datetime, wait: Backoff) -> "Pause":
        """Return the same pause, limited to the longest allowed wait."""
        if self.until is None or self.until <= now + wait.longest:
            return self
        return Pause(self.times, now + wait.longest)

    def or_longer(self, other: "Pause", _: object = None) -> "Pause":
        """Return the pause that has the later end and the larger number of failures of both."""
        until = max((each for each in (self.until, other.until) if each is not None), default=None)
        return Pause(max(self.times, other.times), until)


#: The reason of a cooldown that has its own detail.
_MADE_ROOM: Final = "cooling-down"

#: Longer failure details are cut to this many characters.
_LONGEST_DETAIL: Final = 300


class Cooldown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of a node whose last drains failed, or were of no use."""

    uid: str  #: of the node: the cooldown does not apply to a new node with the same name
    failures: Count  #: consecutive failed drains; 0: it made room, and nothing has come of it yet
    until: Moment
    reason: str = ""  #: the code of a :class:`~rescheduler.planning.outcome.Reason`; "": ``cooling-down``
    detail: str = ""  #: the failure's message, if there is a reason
    pod: str = ""  #: the pod (``namespace/name``) whose eviction was refused, or ""

    def or_later(self, other: "Cooldown", _: object = None) -> "Cooldown":
        """Return the one of both that ends later, with the larger number of failures of the node."""
        last = max(self, other, key=lambda each: each.until)
        if self.uid != other.uid or not last.failures:
            return last
        return msgspec.structs.replace(last, failures=max(self.failures, other.failures))


class Cooldowns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The nodes whose last drain failed, or made room.

    The wait doubles, so that a node that cannot be drained is tried less and less often.
    """

    by_node: dict[str, Cooldown] = {}

    def failed(
        self, node: str, uid: str, now: datetime, wait: Backoff, reason: str = "", detail: str = "", pod: str = ""
    ) -> "Cooldowns":
        """Return the cooldowns after a failed drain of *node*."""
        last = self.by_node.get(node)
        failures = last.failures + 1 if last is not None and last.uid == uid else 1
        cooldown = Cooldown(uid, failures, now + wait.after(failures), reason, printable(detail[:_LONGEST_DETAIL]), pod)
        return Cooldowns(self.by_node | {node: cooldown})

    def made_room(self, node: str, uid: str, now: datetime, wait: Backoff) -> "Cooldowns":
        """Return the cooldowns after *node* gave pods to spot nodes: it gives no more for as long as possible.

        Otherwise it would give all of them if something else takes the room each time.
        """
        detail = "it gave pods to spot nodes, and none has moved to the room since then"
        return Cooldowns(self.by_node | {node: Cooldown(uid, 0, now + wait.longest, _MADE_ROOM, detail)})

    def received(self, nodes: Container[str]) -> "Cooldowns":
        """Return the cooldowns after pods moved to *nodes*: the room that these made was of use."""
        used = {name for name, cooldown in self.by_node.items() if name in nodes and not cooldown.failures}
        return Cooldowns({name: self.by_node[name] for name in self.by_node if name not in used}) if used else self

    def succeeded(self, node: str) -> "Cooldowns":
        """Return the cooldowns after a successful drain of *node*."""
        if node not in self.by_node:
            return self
        return Cooldowns({name: cooldown for name, cooldown in self.by_node.items() if name != node})

    def kept(self, uids: Mapping[str, str]) -> "Cooldowns":
        """Return the cooldowns of nodes that still exist with the same UID. *uids* maps node names to UIDs."""
        remaining = {node: cooldown for node, cooldown in self.by_node.items() if uids.get(node) == cooldown.uid}
        return self if len(remaining) == len(self.by_node) else Cooldowns(remaining)

    def merged(self, remote: "Cooldowns", base: "Cooldowns") -> "Cooldowns":
        """Return the cooldowns with what *remote* changed since *base*; of two for a node, the later one."""
        return Cooldowns(merged_entries(self.by_node, remote.by_node, base.by_node, Cooldown.or_later))

    def active(self, now: datetime) -> dict[str, Cooldown]:
        """Return the cooldowns that have not expired at *now*, by node."""
        return {node: cooldown for node, cooldown in self.by_node.items() if cooldown.until > now}

    def bounded(self, now: datetime, wait: Backoff) -> "Cooldowns":
        """Return the same cooldowns, limited to the longest allowed wait."""
        latest = now + wait.longest
        shortened = {
            node: msgspec.structs.replace(cooldown, until=latest)
            for node, cooldown in self.by_node.items()
            if cooldown.until > latest
        }
        return Cooldowns(self.by_node | shortened) if shortened else self
