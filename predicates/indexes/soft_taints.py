"""Counts of ``PreferNoSchedule`` taints on nodes that pods do not tolerate."""

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import PodClass, Taint, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import tolerated

_SOFT = "PreferNoSchedule"


class SoftTaints:
    """The number of intolerable soft taints by row, for each distinct list of tolerations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = (-1, 0)
        self._counts: dict[tuple[Toleration, ...], Numbers | None] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore pods: only nodes affect this index."""

    def intolerable(self, tolerations: tuple[Toleration, ...]) -> Numbers | None:
        """Return the number of soft taints by row that *tolerations* do not tolerate; None if no row has any.

        The result is cached until a node changes. Each distinct set of taints is evaluated once.
        """
        stamp = (self._snapshot.epoch, len(self._snapshot.node_changes))
        if stamp != self._stamp:
            self._stamp = stamp
            self._counts.clear()
        if tolerations not in self._counts:
            self._counts[tolerations] = self._count(tolerations)
        return self._counts[tolerations]

    def _count(self, tolerations: tuple[Toleration, ...]) -> Numbers | None:
        table = self._snapshot.nodes

        def intolerable(taints: tuple[Taint, ...]) -> int:
            return sum(taint.effect == _SOFT and not tolerated(taint, tolerations) for taint in taints)

        by_row = np.array([intolerable(taints) for taints in table.taint_sets], np.int64)[table.taint_set]
        return by_row if by_row.any() else None
