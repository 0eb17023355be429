"""NodeResourcesFit, strategy LeastAllocated: the more cpu and memory stay free, the better (``least_allocated.go``)."""

import numpy as np

from predicates.indexes.nonzero import NonZero
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.scores.frame import MAX_SCORE, Question


def score(question: Question) -> Numbers:
    """The mean over cpu and memory, each 0 where the pod is more than fits; what a node has none of is left out."""
    rows = question.rows
    capacity = question.snapshot.nodes.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    wanted = question.snapshot.index(NonZero).requested().take(rows, axis=0) + np.array(question.pod.nonzero)
    free = np.maximum(capacity - wanted, 0)
    shares = free * MAX_SCORE // np.maximum(capacity, 1)
    given = np.count_nonzero(capacity, axis=1)
    found: Numbers = shares.sum(axis=1) // np.maximum(given, 1)
    return found
