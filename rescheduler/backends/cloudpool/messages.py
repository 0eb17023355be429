"""The messages of the cloudpool REST API, version 5, read as leniently as its clients must be.

A pool may leave out or null every field but a machine's id and state, and may add what it likes; a time may have
any ISO 8601 form or none. What decides over a machine's life is not guessed: a protection that cannot be read
protects.
"""

import datetime as dt
import enum
from dataclasses import dataclass

import msgspec


class MachineState(enum.StrEnum):
    REQUESTED = "REQUESTED"  #: asked for, not given yet
    REJECTED = "REJECTED"  #: refused by the cloud
    PENDING = "PENDING"  #: being launched
    RUNNING = "RUNNING"  #: launched; its boot may not be complete
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


ALLOCATED = frozenset({MachineState.REQUESTED, MachineState.PENDING, MachineState.RUNNING})
#: States that end a machine, or in which it never was one.
GONE = frozenset({MachineState.REJECTED, MachineState.TERMINATING, MachineState.TERMINATED})


class ServiceState(enum.StrEnum):
    BOOTING = "BOOTING"
    IN_SERVICE = "IN_SERVICE"
    UNHEALTHY = "UNHEALTHY"
    OUT_OF_SERVICE = "OUT_OF_SERVICE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Membership:
    """`evictable` false protects a machine; `active` says whether it counts for the pool's size."""

    active: bool = True
    evictable: bool = True


class _Message(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    pass


class Machine(_Message, frozen=True, kw_only=True):
    id: str
    machine_state: str  #: a MachineState; an unknown one is neither allocated nor gone
    membership_status: object = None
    service_state: object = None
    cloud_provider: object = None  #: "AWS-EC2", "AWS-SPOT", "GCE", "Azure", "OpenStack", …
    region: object = None
    machine_size: object = None
    request_time: object = None
    launch_time: object = None
    public_ips: object = None
    private_ips: object = None
    metadata: object = None  #: what the cloud says about the machine, raw

    @property
    def membership(self) -> Membership:
        """Absent and null mean yes, as in the reference server; anything but a boolean means no."""
        status = {} if self.membership_status is None else self.membership_status
        if not isinstance(status, dict):
            return Membership(active=False, evictable=False)
        return Membership(active=_yes(status.get("active")), evictable=_yes(status.get("evictable")))

    @property
    def allocated(self) -> bool:
        return self.machine_state in ALLOCATED

    @property
    def gone(self) -> bool:
        return self.machine_state in GONE

    @property
    def active(self) -> bool:
        """Counted by the pool's desired size."""
        return self.allocated and self.membership.active

    @property
    def disposable(self) -> bool:
        """The pool terminates it by itself, at its next resize."""
        return self.allocated and self.membership.evictable and not self.membership.active


class MachinePool(_Message, frozen=True, kw_only=True):
    machines: list[Machine]
    timestamp: object = None  #: when the pool looked; answers may come from a cache


class PoolSize(_Message, frozen=True, kw_only=True):
    desired_size: int
    allocated: int | None = None
    active: int | None = None
    timestamp: object = None


class PoolStatus(_Message, frozen=True, kw_only=True):
    started: bool
    configured: bool


class ErrorMessage(_Message, frozen=True, kw_only=True):
    """The body of every error that the pool itself reports."""

    message: str
    detail: str | None = None


_FIRST_YEAR = 1971


def _yes(value: object) -> bool:
    return value is None or value is True


def moment(value: object) -> dt.datetime | None:
    """A time of the API in UTC; `None` for what is no ISO 8601 time. Without a zone it is UTC.

    Programs write an unset time as the year 1 or as 1970: that is none either, and nor is what no clock can show.
    """
    if not isinstance(value, str):
        return None
    try:
        parsed = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    if not _FIRST_YEAR < parsed.year < dt.MAXYEAR:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or dt.UTC).astimezone(dt.UTC)
