"""NodeResourcesFit, strategy LeastAllocated: prefer nodes with more free cpu and memory (``least_allocated.go``)."""

import numpy as np

from predicates.indexes.nonzero import NonZero
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.scores.frame import MAX_SCORE, ScoringRequest


def score(request: ScoringRequest) -> Numbers:
    """Return the mean of the free shares of cpu and memory with the pod.

    ``((capacity - requested) * MaxNodeScore) / capacity``; 0 if requested exceeds capacity. A resource that the node
    does not have is left out of the mean.
    """
    rows = request.rows
    capacity = request.snapshot.nodes.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    requested = request.snapshot.index(NonZero).requested().take(rows, axis=0) + np.array(request.pod.nonzero)
    free = np.maximum(capacity - requested, 0)
    shares = free * MAX_SCORE // np.maximum(capacity, 1)
    resources = np.count_nonzero(capacity, axis=1)
    scores: Numbers = shares.sum(axis=1) // np.maximum(resources, 1)
    return scores
