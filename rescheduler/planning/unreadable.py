"""Which nodes stay because of objects that cannot be decoded."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final

from predicates.objects import Pod
from predicates.unreadable import Unreadable
from rescheduler.planning.outcome import Blocker, Reason

#: Kinds that bear on all pods of their namespace that move.
_OF_NAMESPACES: Final = ("PodDisruptionBudget", "PersistentVolumeClaim")

#: At most so many objects are named for one node.
_NAMED: Final = 5


class LeftOut:
    """The objects that a snapshot lacks, by what they bear on. An unreadable Node is no candidate."""

    def __init__(self, unreadable: Iterable[Unreadable]) -> None:
        #: Pods by node, and under None those whose node cannot be told.
        self._pods: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        #: Others by namespace, and under None those whose namespace cannot be told.
        self._others: defaultdict[str | None, list[Unreadable]] = defaultdict(list)
        for one in unreadable:
            if one.kind == "Pod":
                self._pods[one.node].append(one)
            elif one.kind in _OF_NAMESPACES:
                namespace, slash, _ = one.key.partition("/")
                self._others[namespace if slash else None].append(one)
        #: Nodes with such pods: how much room they have left is not known.
        self.nodes = frozenset(node for node in self._pods if node)

    def blockers(self, node: str, movers: Iterable[Pod]) -> Iterator[Blocker]:
        """Why *node*, from which *movers* would have to move, stays."""
        if not self._pods and not self._others:
            return
        namespaces: dict[str | None, None] = dict.fromkeys(pod.namespace for pod in movers)
        if namespaces:
            namespaces[None] = None
        concerned = chain(
            *(self._pods.get(key, ()) for key in (node, None)), *(self._others.get(key, ()) for key in namespaces)
        )
        for one in islice(concerned, _NAMED):
            yield Blocker(Reason.UNREADABLE_OBJECT, f"it cannot be decoded: {one.why}")
