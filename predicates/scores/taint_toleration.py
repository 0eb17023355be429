"""TaintToleration: prefer nodes with fewer intolerable ``PreferNoSchedule`` taints (``taint_toleration.go``)."""

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import Taint
from predicates.scores.frame import ScoringRequest, normalized
from predicates.tolerations import tolerated

_SOFT = "PreferNoSchedule"


def score(request: ScoringRequest) -> Numbers | None:
    """Evaluate each distinct set of taints once, regardless of the number of nodes that have it."""
    table = request.snapshot.nodes
    tolerations = request.pod.spec.tolerations

    def intolerable(taints: tuple[Taint, ...]) -> int:
        return sum(taint.effect == _SOFT and not tolerated(taint, tolerations) for taint in taints)

    counts = np.array([intolerable(taints) for taints in table.taint_sets], np.int64)
    return normalized(counts[table.taint_set[request.rows]], reverse=True)
