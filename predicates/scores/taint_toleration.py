"""TaintToleration: prefer nodes with fewer intolerable ``PreferNoSchedule`` taints (``taint_toleration.go``)."""

from predicates.indexes.soft_taints import SoftTaints
from predicates.nodes import Numbers
from predicates.scores.frame import MAX_SCORE, ScoringRequest, normalized


def score(request: ScoringRequest) -> Numbers | int:
    """Return the scores: MAX_SCORE everywhere if the pod tolerates all soft taints."""
    counts = request.snapshot.index(SoftTaints).intolerable(request.pod.spec.tolerations)
    return MAX_SCORE if counts is None else normalized(counts.take(request.rows), reverse=True)
