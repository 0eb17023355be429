"""The interface of the score plugins. Like the filters, they evaluate many nodes at once."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

#: The highest score of one plugin for one node (``MaxNodeScore``).
MAX_SCORE: Final = 100


#: Points of a scoring function: utilization in percent, ascending, and score.
Shape: TypeAlias = tuple[tuple[int, int], ...]


def broken_line(shape: Shape, utilization: int) -> int:
    """Return the score at *utilization*, on the lines between the points of *shape* (``BuildBrokenLinearFunction``)."""
    for before, after in pairwise(((-1, shape[0][1]), *shape)):
        if utilization <= after[0]:
            if before[0] < 0:
                return after[1]
            # The quotient is truncated toward zero, as in Go.
            return before[1] + int((after[1] - before[1]) * (utilization - before[0]) / (after[0] - before[0]))
    return shape[-1][1]


@dataclass(frozen=True, slots=True)
class ScoringRequest:
    """The pod class to score, and the feasible rows for which to score it."""

    snapshot: Snapshot
    pod: PodClass
    rows: npt.NDArray[np.intp]
    spreads_by_default: bool = False  #: whether the default constraints spread the pods of its owner


#: Returns one score (0 to MAX_SCORE) per row, or a single number if all rows have the same score, which is cheaper.
#: Returns None if the plugin does not apply (Skip), which counts as 0.
Score: TypeAlias = Callable[[ScoringRequest], Numbers | int | None]


@dataclass(frozen=True, slots=True)
class Scorer:
    """A score plugin, under its name in the kube-scheduler, with its weight."""

    name: str
    weight: int
    score: Score


def normalized(scores: Numbers, *, reverse: bool = False) -> Numbers:
    """Scale *scores* so that the highest becomes MAX_SCORE, and reverse the order if *reverse*.

    Source: ``helper.DefaultNormalizeScore``.
    """
    max_score = int(scores.max(initial=0))
    if max_score == 0:
        return np.full(len(scores), MAX_SCORE, np.int64) if reverse else scores
    scaled: Numbers = MAX_SCORE * scores // max_score
    return MAX_SCORE - scaled if reverse else scaled
