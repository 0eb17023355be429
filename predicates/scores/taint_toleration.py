"""TaintToleration: the fewer ``PreferNoSchedule`` taints a pod has to put up with, the better."""

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import Taint
from predicates.scores.frame import Question, normalized
from predicates.tolerations import tolerated

_SOFT = "PreferNoSchedule"


def score(question: Question) -> Numbers | None:
    """Judges each distinct set of taints once, whatever the number of nodes that carry it."""
    table = question.snapshot.nodes
    tolerations = question.pod.spec.tolerations

    def borne(taints: tuple[Taint, ...]) -> int:
        return sum(one.effect == _SOFT and not tolerated(one, tolerations) for one in taints)

    counts = np.array([borne(taints) for taints in table.taint_sets], np.int64)
    return normalized(counts[table.taint_set[question.rows]], reverse=True)
