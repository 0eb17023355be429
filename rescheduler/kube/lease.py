"""Who leads: decided from a Lease and the local clock alone. Pure.

Source: ``client-go/tools/leaderelection``. The times written in a Lease are for people. A holder is taken for
dead when *we* have seen no change of the record for as long as the record promises, so clocks may differ.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

LEASE_SECONDS: Final = 15.0  #: others wait that long after the last renewal they saw
RENEW_SECONDS: Final = 10.0  #: a holder that could not renew for so long stops leading
WRITE_SECONDS: Final = LEASE_SECONDS - 2.0  #: what a holder sends has ended so long after its last renewal
RETRY_SECONDS: Final = 2.0  #: between two looks, or two renewals


class Record(msgspec.Struct, frozen=True, rename="camel"):
    """``coordination.k8s.io/v1`` LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A record, and when we first saw it as it is (monotonic seconds)."""

    record: Record
    at: float

    def again(self, record: Record, now: float) -> "Seen":
        """After looking once more: the clock of an unchanged record goes on."""
        return self if record == self.record else Seen(record, now)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Nobody leads: become the holder."""


@dataclass(frozen=True, slots=True)
class Renew:
    """We hold it: say so again."""


@dataclass(frozen=True, slots=True)
class Wait:
    """*holder* leads, or must be taken to."""

    holder: str


Step: TypeAlias = Acquire | Renew | Wait


def decide(seen: Seen | None, identity: str, now: float) -> Step:
    """What *identity* does about a Lease; None where there is no Lease yet. *now* in monotonic seconds."""
    if seen is None or not (holder := seen.record.holder_identity):
        return Acquire()
    if holder == identity:
        return Renew()
    promised = seen.record.lease_duration_seconds
    alive_until = seen.at + (LEASE_SECONDS if promised is None else promised)
    return Acquire() if now >= alive_until else Wait(holder)


def held(old: Record | None, identity: str, now: dt.datetime) -> Record:
    """The record that makes *identity* the holder; *now* is the wall clock, for people to read."""
    ours = old is not None and old.holder_identity == identity
    transitions = (old.lease_transitions or 0) if old is not None else 0
    return Record(
        holder_identity=identity,
        lease_duration_seconds=int(LEASE_SECONDS),
        acquire_time=old.acquire_time if old is not None and ours else micro_time(now),
        renew_time=micro_time(now),
        lease_transitions=transitions if ours or old is None else transitions + 1,
    )


def released(old: Record, now: dt.datetime) -> Record:
    """The record that lets anybody else in at once."""
    return msgspec.structs.replace(old, holder_identity="", lease_duration_seconds=1, renew_time=micro_time(now))


def micro_time(now: dt.datetime) -> str:
    """``meta/v1`` MicroTime."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
