"""Requests of the placed pods for scoring, with the scheduler's defaults for containers without requests.

Source: ``NonZeroRequested`` of ``framework/types.go``. Only the amounts that the defaults add to the real requests are
stored, so pods that request both cpu and memory cost nothing, and in-place resizes are included. One difference: if a
resize adds the first cpu or memory request of a pod, the default is counted on top of it.
"""

from functools import partial

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot


class NonZero:
    """The defaults of cpu (thousandths) and memory (bytes) by row. A placement costs O(1)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._resize(np.zeros((len(snapshot.nodes), 2), np.int64))

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if they get no default."""
        added = _added(pod)
        return Watchers(partial(self._shift, *added)) if any(added) else None

    def _shift(self, cpu: int, memory: int, row: int, delta: int) -> None:
        if row >= len(self._defaults):
            self._grow()
        cells = self._cells
        cells[row, 0] += delta * cpu
        cells[row, 1] += delta * memory

    def defaults(self) -> Numbers:
        """Return the amounts of cpu and memory that the defaults add, by row. Callers must not modify the array."""
        if len(self._defaults) < len(self._snapshot.nodes):
            self._grow()
        return self._defaults

    def _grow(self) -> None:
        new_rows = len(self._snapshot.nodes) - len(self._defaults)
        self._resize(np.pad(self._defaults, ((0, new_rows), (0, 0))))

    def _resize(self, defaults: Numbers) -> None:
        self._defaults = defaults
        self._cells = defaults.data  # Access to single cells is faster.


def _added(pod: PodClass) -> tuple[int, int]:
    explicit = dict(pod.requests)
    cpu, memory = pod.nonzero
    return cpu - explicit.get("cpu", 0), memory - explicit.get("memory", 0)
