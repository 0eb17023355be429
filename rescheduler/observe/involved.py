"""The objects that events are about."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InvolvedNode:
    """A node, identified by its UID: a new node with the same name is a different one."""

    name: str
    uid: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class InvolvedLease:
    """The Lease of this installation."""

    namespace: str
    name: str
    uid: str  #: "" if it does not exist
