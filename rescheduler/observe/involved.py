"""The objects that events are about."""

from dataclasses import dataclass
from typing import Self

from predicates.objects import Node


@dataclass(frozen=True, slots=True)
class InvolvedNode:
    """A node, identified by its UID: a new node with the same name is a different one."""

    name: str
    uid: str

    @classmethod
    def of(cls, node: Node) -> Self:
        return cls(node.metadata.name, node.metadata.uid)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class InvolvedLease:
    """The Lease of this installation."""

    namespace: str
    name: str
    uid: str  #: "" if it does not exist
