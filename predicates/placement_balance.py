"""Whether the pods of a cluster are equal to those at an earlier moment, if some were replaced by equal ones.

A DaemonSet, a StatefulSet or a restarted node often creates a pod of the same class on the same node. For filters and
for counts of pods nothing has changed then.
"""

from typing import TypeAlias

from predicates.bound_labels import LabelPairs
from predicates.objects import Amounts, OwnerReference, Pod, PodClass

_Kind: TypeAlias = tuple[str, PodClass, LabelPairs, Amounts, OwnerReference | str]


class PlacementBalance:
    """Counts the pods of each kind that were added and removed since the last call of :meth:`version`."""

    def __init__(self) -> None:
        self._balance: dict[_Kind, int] = {}
        self._version = 0

    def note(self, pod: Pod, by: int) -> None:
        """Record that *pod* was added (by = +1) or removed (by = -1)."""
        # A pod without a controller is counted as its own controller.
        kind = pod.node_name, pod.cls, pod.added_labels, pod.load, pod.owner or pod.uid
        if count := self._balance.get(kind, 0) + by:
            self._balance[kind] = count
        else:
            del self._balance[kind]

    def replaced_all(self) -> None:
        """Record that all pods may be others."""
        self._balance.clear()
        self._version += 1

    def version(self) -> int:
        """Return the same number as the last call if there are equal pods on each node, otherwise another one."""
        if self._balance:
            self.replaced_all()
        return self._version
