"""The interface of the score plugins. Like the filters, they evaluate many nodes at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

#: The highest score of one plugin for one node (``MaxNodeScore``).
MAX_SCORE: Final = 100


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
