"""Results that are kept from round to round, each with the parts of the snapshot that it depends on."""

import enum
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, TypeVar

from predicates.snapshot import Snapshot


class ClusterPart(enum.Enum):
    """A part of a snapshot that can change by itself."""

    NODES = "nodes"
    PLACED = "placed"  #: the nodes, which pods are on them, and what else a filter reads
    UNPLACED = "unplaced"  #: which pods are on no known node
    ANYTHING = "anything"  #: also the fields of pods that no filter reads, such as annotations and the status
    CLASSES = "classes"  #: pod classes are dropped


#: A part, or a kind of objects other than pods and nodes.
PartOrKind: TypeAlias = ClusterPart | str

#: The nodes, and all pods except for the fields that no filter reads.
NODES_AND_PODS: Final = (ClusterPart.PLACED, ClusterPart.UNPLACED)

_VERSION: Final[dict[ClusterPart, Callable[[Snapshot], int]]] = {
    ClusterPart.NODES: lambda snapshot: snapshot.node_versions,
    ClusterPart.PLACED: lambda snapshot: snapshot.revision,
    ClusterPart.UNPLACED: lambda snapshot: snapshot.unplaced,
    ClusterPart.ANYTHING: lambda snapshot: snapshot.changes,
    ClusterPart.CLASSES: lambda snapshot: snapshot.generation,
}


def version(snapshot: Snapshot, *parts: PartOrKind) -> Hashable:
    """Return a value that is different after any change of *parts* of this *snapshot*."""
    return tuple(
        [_VERSION[part](snapshot) if isinstance(part, ClusterPart) else snapshot.versions[part] for part in parts]
    )


_T = TypeVar("_T")
_P = ParamSpec("_P")


class Kept(Generic[_P, _T]):
    """A value that follows from parts of a snapshot, and from the other arguments of the function that computes it."""

    def __init__(self, compute: Callable[Concatenate[Snapshot, _P], _T], *parts: PartOrKind) -> None:
        self._compute = compute
        self._parts = parts
        self._known: tuple[Snapshot, Hashable, Any, _T] | None = None

    def of(self, snapshot: Snapshot, *others: _P.args, **named: _P.kwargs) -> _T:
        """Return the value for the current *snapshot*. It is the same object while nothing that it names changes."""
        known, current = self._known, version(snapshot, *self._parts)
        if known is None or known[0] is not snapshot or known[1:3] != (current, (others, named)):
            known = self._known = snapshot, current, (others, named), self._compute(snapshot, *others, **named)
        return known[3]
