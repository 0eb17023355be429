"""The outcomes of deleting a machine. :mod:`rescheduler.providers.base` describes how a caller acts on each."""

import enum
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias


class Refusal(enum.StrEnum):
    """Why the system refuses to delete a machine; also a metric label."""

    BELOW_MINIMUM = "below-minimum"
    NOT_IN_GROUP = "not-in-group"
    AMBIGUOUS = "ambiguous"  #: several machines match the node, or several nodes match the machine
    CONTROL_PLANE = "control-plane"
    PROTECTED = "protected"  #: the system itself protects the machine
    WITHHELD = "withheld"  #: the caller does not allow the order any more; it was not sent


class DeleteResult(enum.StrEnum):
    """The kind of a `DeleteOutcome`; also a metric label."""

    DELETED = "deleted"
    ALREADY_GONE = "alreadygone"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Deleted:
    """The machine was deleted by this order, and the system confirmed it."""

    result: ClassVar[DeleteResult] = DeleteResult.DELETED
    detail: str = ""
    unshrunk: str = ""  #: why the target size was not lowered, so that a new machine is launched; "": it was lowered


@dataclass(frozen=True, slots=True)
class AlreadyGone:
    """The machine was already deleted."""

    result: ClassVar[DeleteResult] = DeleteResult.ALREADY_GONE
    detail: str = ""
    unshrunk: str = ""  #: see `Deleted`


@dataclass(frozen=True, slots=True)
class Accepted:
    """The deletion was ordered, or may have been; it was not confirmed before the deadline."""

    result: ClassVar[DeleteResult] = DeleteResult.ACCEPTED
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    result: ClassVar[DeleteResult] = DeleteResult.REFUSED
    reason: Refusal
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


ON_CONTROL_PLANE: Final = Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")


def below_minimum(group: str, minimum: int, left: int) -> Refused | None:
    """Return a refusal if *left*, the number of machines left, is below the *minimum* of *group*."""
    if left >= minimum:
        return None
    return Refused(Refusal.BELOW_MINIMUM, f"group {group} must keep {minimum}, {left} would be left")


@dataclass(frozen=True, slots=True)
class Failed:
    """The machine keeps running and no order is pending; both are certain."""

    result: ClassVar[DeleteResult] = DeleteResult.FAILED
    error: str
    retryable: bool


DeleteOutcome: TypeAlias = Deleted | AlreadyGone | Accepted | Refused | Failed
