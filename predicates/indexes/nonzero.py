"""What the placed pods request for scoring: with the scheduler's defaults where a container names nothing.

Source: ``NonZeroRequested`` of ``framework/types.go``. Only what the defaults add to ``requested`` is kept here, so
pods that name both cpu and memory cost nothing, and what an in-place resize changes is in it already. One thing
differs: a pod in a resize that first names cpu or memory gets the default on top.
"""

from functools import partial

import numpy as np

from predicates.nodes import CPU, MEMORY, Numbers
from predicates.objects import PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot


class NonZero:
    """What defaults add to cpu (thousandths) and memory, by row. A placement costs O(1)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._resize(np.zeros((len(snapshot.nodes), 2), np.int64))

    def watch(self, pod: PodClass) -> Watchers | None:
        """Pods to which the defaults add anything."""
        added = _added(pod)
        return Watchers(partial(self._shift, *added)) if any(added) else None

    def _shift(self, cpu: int, memory: int, row: int, by: int) -> None:
        if row >= len(self._defaults):
            self._grow()
        cells = self._cells
        cells[row, 0] += by * cpu
        cells[row, 1] += by * memory

    def requested(self) -> Numbers:
        """One line a row of the node table: cpu, memory."""
        if len(self._defaults) < len(self._snapshot.nodes):
            self._grow()
        table, both = self._snapshot.nodes, slice(CPU, MEMORY + 1)
        found: Numbers = table.allocatable[:, both] - table.free[:, both] + self._defaults
        return found

    def _grow(self) -> None:
        more = len(self._snapshot.nodes) - len(self._defaults)
        self._resize(np.pad(self._defaults, ((0, more), (0, 0))))

    def _resize(self, defaults: Numbers) -> None:
        self._defaults = defaults
        self._cells = defaults.data  # Single cells are read and written faster through it.


def _added(pod: PodClass) -> tuple[int, int]:
    named = dict(pod.requests)
    cpu, memory = pod.nonzero
    return cpu - named.get("cpu", 0), memory - named.get("memory", 0)
