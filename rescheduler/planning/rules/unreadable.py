"""Which nodes are blocked by objects that cannot be decoded."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from predicates.objects import Pod
from predicates.unreadable import Unreadable
from rescheduler.planning.outcome import Blocker, Reason

#: Kinds that affect all pods of their namespace that would move.
_OF_NAMESPACES: Final = ("PodDisruptionBudget", "PersistentVolumeClaim")

#: At most this many objects are reported for one node.
_NAMED: Final = 5


class UnreadableObjects:
    """The unreadable objects that are missing from a snapshot, by the nodes or namespaces that they affect.

    An unreadable Node is never a candidate, so it is not listed here.
    """

    def __init__(self, unreadable: Iterable[Unreadable]) -> None:
        #: Pods by node; None for those whose node is unknown.
        self._pods: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        #: Other objects by namespace; None for those whose namespace is unknown.
        self._others: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        for item in unreadable:
            if item.kind == "Pod":
                self._pods[item.node].append(item)
            elif item.kind in _OF_NAMESPACES:
                namespace, slash, _ = item.key.partition("/")
                self._others[namespace if slash else None].append(item)
        #: Nodes with unreadable pods: their free resources are unknown.
        self.nodes = frozenset(node for node in self._pods if node)

    def blockers(self, node: str, movers: Iterable[Pod]) -> Iterator[Blocker]:
        """Yield the blockers of *node*, from which *movers* would have to move."""
        if not self._pods and not self._others:
            return
        namespaces: dict[str | None, None] = dict.fromkeys(pod.namespace for pod in movers)
        if namespaces:
            namespaces[None] = None
        relevant = chain(
            *(self._pods.get(key, ()) for key in (node, None)), *(self._others.get(key, ()) for key in namespaces)
        )
        for item in islice(relevant, _NAMED):
            yield Blocker(Reason.UNREADABLE_OBJECT, f"it cannot be decoded: {item.why}")
