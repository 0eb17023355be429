"""Leader election rules: decide from a Lease and the local clock which replica leads. Pure.

Source: ``client-go/tools/leaderelection``. The times in a Lease are informational. A holder is considered dead when
*this process* has observed no change of the record for the record's lease duration, so clocks may differ.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

LEASE_SECONDS: Final = 15.0  #: other replicas wait this long after the last renewal that they observed
RENEW_SECONDS: Final = 10.0  #: a holder that could not renew for this long stops leading
WRITE_SECONDS: Final = LEASE_SECONDS - 2.0  #: requests of a holder complete within this time after its last renewal
RETRY_SECONDS: Final = 2.0  #: between two reads or renewals


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """``coordination.k8s.io/v1`` LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when it was first observed with this content (monotonic seconds)."""

    record: LeaseRecord
    at: float

    def again(self, record: LeaseRecord, now: float) -> "ObservedLease":
        """Return the observation after another read. An unchanged record keeps its time."""
        return self if record == self.record else ObservedLease(record, now)


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """No replica leads: acquire the Lease."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """The Lease is ours: renew it."""


@dataclass(frozen=True, slots=True)
class WaitForHolder:
    """*holder* leads, or its lease has not expired yet: wait."""

    holder: str


Step: TypeAlias = AcquireLease | RenewLease | WaitForHolder


def decide(observed: ObservedLease | None, identity: str, now: float) -> Step:
    """Return the next step of *identity*. *observed* is None if the Lease does not exist; *now* is monotonic."""
    if observed is None or not (holder := observed.record.holder_identity):
        return AcquireLease()
    if holder == identity:
        return RenewLease()
    duration = observed.record.lease_duration_seconds
    alive_until = observed.at + (LEASE_SECONDS if duration is None else duration)
    return AcquireLease() if now >= alive_until else WaitForHolder(holder)


def held(old: LeaseRecord | None, identity: str, now: dt.datetime) -> LeaseRecord:
    """Return the record with *identity* as the holder. *now* is the wall clock; it is informational."""
    ours = old is not None and old.holder_identity == identity
    transitions = (old.lease_transitions or 0) if old is not None else 0
    return LeaseRecord(
        holder_identity=identity,
        lease_duration_seconds=int(LEASE_SECONDS),
        acquire_time=old.acquire_time if old is not None and ours else micro_time(now),
        renew_time=micro_time(now),
        lease_transitions=transitions if ours or old is None else transitions + 1,
    )


def released(old: LeaseRecord, now: dt.datetime) -> LeaseRecord:
    """Return the record that lets another replica acquire the Lease at once."""
    return msgspec.structs.replace(old, holder_identity="", lease_duration_seconds=1, renew_time=micro_time(now))


def micro_time(now: dt.datetime) -> str:
    """Format *now* as ``meta/v1`` MicroTime."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
