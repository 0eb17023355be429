"""What the placed pods request for scoring: with the scheduler's defaults where a container names nothing.

Source: ``NonZeroRequested`` of ``framework/types.go``. Only what the defaults add to ``requested`` is kept here, so
pods that name both cpu and memory cost nothing, and what an in-place resize changes is in it already. One thing
differs: a pod in a resize that first names cpu or memory gets the default on top.
"""

import numpy as np

from predicates.nodes import CPU, MEMORY, Numbers
from predicates.objects import PodClass
from predicates.snapshot import Snapshot


class NonZero:
    """What defaults add to cpu (thousandths) and memory, by row. ``shift`` costs O(1)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._resize(np.zeros((len(snapshot.nodes), 2), np.int64))

    def concerns(self, pod: PodClass) -> bool:
        """Whether the defaults add anything to such pods."""
        return any(_added(pod))

    def shift(self, pod: PodClass, row: int, by: int) -> None:
        """*by* pods of the class came to *row*, or left it."""
        if row >= len(self._defaults):
            self._grow()
        cpu, memory = _added(pod)
        cells = self._cells
        cells[row, 0] += by * cpu
        cells[row, 1] += by * memory

    def requested(self) -> Numbers:
        """One line a row of the node table: cpu, memory."""
        if len(self._defaults) < len(self._snapshot.nodes):
            self._grow()
        found: Numbers = self._snapshot.nodes.requested[:, CPU : MEMORY + 1] + self._defaults
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
