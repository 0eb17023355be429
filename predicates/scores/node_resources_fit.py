"""NodeResourcesFit, strategy LeastAllocated: prefer nodes with more free cpu and memory (``least_allocated.go``)."""

import numpy as np

from predicates.indexes.nonzero import NonZero
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.requests import scored
from predicates.scores.frame import MAX_SCORE, ScoringRequest


def score(request: ScoringRequest) -> Numbers:
    """Return the mean of the shares of cpu and memory that are free after the pod is placed.

    ``((capacity - requested) * MaxNodeScore) / capacity``; 0 if requested exceeds capacity. A resource that the node
    does not have is left out of the mean.
    """
    table, rows = request.snapshot.nodes, request.rows
    capacity = table.allocatable.take(rows, axis=0)[:, CPU : MEMORY + 1]
    defaults = request.snapshot.index(NonZero).defaults().take(rows, axis=0)
    free = table.free.take(rows, axis=0)[:, CPU : MEMORY + 1] - defaults - np.array(scored(request.pod))
    shares = np.maximum(free, 0) * MAX_SCORE // np.maximum(capacity, 1)
    total: Numbers = shares[:, 0] + shares[:, 1]
    if capacity.all():
        return total // 2
    resources: Numbers = np.count_nonzero(capacity, axis=1)
    return total // np.maximum(resources, 1)
