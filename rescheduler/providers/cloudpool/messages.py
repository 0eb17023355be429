"""The messages of the cloudpool REST API, version 5, decoded leniently, as the API requires of clients.

A pool may omit every field except a machine's id and state, or set it to null, and may add fields; times may have any
ISO 8601 format or be missing. Protection is decoded strictly: an invalid value protects the machine.
"""

import datetime as dt
import enum
from dataclasses import dataclass

import msgspec


class MachineState(enum.StrEnum):
    REQUESTED = "REQUESTED"  #: requested, not allocated yet
    REJECTED = "REJECTED"  #: rejected by the cloud
    PENDING = "PENDING"  #: being launched
    RUNNING = "RUNNING"  #: launched; its boot may not be complete
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


ALLOCATED = frozenset({MachineState.REQUESTED, MachineState.PENDING, MachineState.RUNNING})
#: States in which a machine is being terminated, is terminated, or never existed.
GONE = frozenset({MachineState.REJECTED, MachineState.TERMINATING, MachineState.TERMINATED})


@dataclass(frozen=True, slots=True)
class Membership:
    """A membership status: `evictable` false protects a machine; `active` machines count towards the pool's size."""

    active: bool = True
    evictable: bool = True


class _PoolMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    pass


class Machine(_PoolMessage, frozen=True, kw_only=True):
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
    metadata: object = None  #: the cloud's own description of the machine

    @property
    def membership(self) -> Membership:
        """The membership status; absent and null mean true, as in the reference server, and non-booleans false."""
        status = {} if self.membership_status is None else self.membership_status
        if not isinstance(status, dict):
            return Membership(active=False, evictable=False)
        return Membership(
            active=_is_true_or_absent(status.get("active")), evictable=_is_true_or_absent(status.get("evictable"))
        )

    @property
    def allocated(self) -> bool:
        return self.machine_state in ALLOCATED

    @property
    def gone(self) -> bool:
        return self.machine_state in GONE

    @property
    def active(self) -> bool:
        """Whether the machine counts towards the pool's desired size."""
        return self.allocated and self.membership.active

    @property
    def disposable(self) -> bool:
        """Whether the pool terminates the machine on its own at its next resize."""
        return self.allocated and self.membership.evictable and not self.membership.active


class MachinePool(_PoolMessage, frozen=True, kw_only=True):
    machines: list[Machine]
    timestamp: object = None  #: when the pool listed the machines; responses may be cached


class PoolSize(_PoolMessage, frozen=True, kw_only=True):
    desired_size: int
    allocated: int | None = None
    active: int | None = None
    timestamp: object = None


class ErrorMessage(_PoolMessage, frozen=True, kw_only=True):
    """The body of every error that the pool itself reports."""

    message: str
    detail: str | None = None


_FIRST_YEAR = 1971


def _is_true_or_absent(value: object) -> bool:
    return value is None or value is True


def moment(value: object) -> dt.datetime | None:
    """Parse a time of the API, in UTC unless it has a zone; `None` if it is not a valid ISO 8601 time.

    Programs write an unset time as a date in the year 1 or 1970, so these also give `None`, as do times that datetime
    cannot represent.
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
