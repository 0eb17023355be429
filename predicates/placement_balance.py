"""Detection of replaced pods that leave the results of filters and the counts of pods unchanged.

After a pod of a DaemonSet or StatefulSet is deleted, or a node restarts, a pod of the same class is often created on
the same node.
"""

from typing import TypeAlias

from predicates.bound_labels import LabelPairs
from predicates.changes import counted_apart
from predicates.objects import Amounts, OwnerReference, Pod, PodClass

_Kind: TypeAlias = tuple[str, PodClass, LabelPairs, tuple[Amounts, object], OwnerReference | str, object]


class PlacementBalance:
    """Counts the pods of each kind that were added and removed since the last call of :meth:`version`."""

    def __init__(self) -> None:
        self._balance: dict[_Kind, int] = {}
        self._version = 0

    def note(self, pod: Pod, delta: int) -> None:
        """Record that *pod* was added (delta = +1) or removed (delta = -1)."""
        # A pod without a controller is counted as its own controller.
        loads, owner = (pod.load, pod.older_loads), pod.owner or pod.uid
        kind = pod.node_name, pod.cls, pod.added_labels, loads, owner, counted_apart(pod)
        if count := self._balance.get(kind, 0) + delta:
            self._balance[kind] = count
        else:
            del self._balance[kind]

    def replaced_all(self) -> None:
        """Record that any pod may have been replaced by a different one."""
        self._balance.clear()
        self._version += 1

    def version(self) -> int:
        """Return a number that changes if the pods on any node are no longer equal to those at the last call."""
        if self._balance:
            self.replaced_all()
        return self._version
