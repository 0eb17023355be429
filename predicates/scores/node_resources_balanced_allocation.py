"""NodeResourcesBalancedAllocation: better where the pod evens out the use of cpu and memory.

Source: ``noderesources/balanced_allocation.go`` of 1.36, which scores the improvement: 75 where nothing changes.
"""

import numpy as np
import numpy.typing as npt

from predicates.nodes import CPU, MEMORY, Numbers
from predicates.scores.frame import MAX_SCORE, Question


def score(question: Question) -> Numbers | None:
    """None for pods that request neither cpu nor memory."""
    pod, table, rows = question.pod, question.snapshot.nodes, question.rows
    amounts = dict(pod.requests)
    own = np.array([amounts.get("cpu", 0), amounts.get("memory", 0)])
    if not own.any():
        return None
    capacity = table.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    before = capacity - table.free.take(rows, axis=0)[:, CPU : MEMORY + 1]
    better = _balance(before + own, capacity) - _balance(before, capacity)
    found: Numbers = MAX_SCORE // 2 + (MAX_SCORE // 2 + better) // 2
    return found


def _balance(requested: Numbers, capacity: Numbers) -> Numbers:
    """100 less the standard deviation of the used shares in percent; 100 where a node has only one of the two."""
    shares: npt.NDArray[np.float64] = np.minimum(requested / np.maximum(capacity, 1), 1.0)
    deviation = np.abs((shares[:, 0] - shares[:, 1]) / 2)
    deviation[(capacity == 0).any(axis=1)] = 0.0
    return ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)
