"""How the score plugins are asked, and what they answer: many rows at once, as the filters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.selectors import NOTHING, Selector
from predicates.snapshot import Snapshot

#: The best score of one plugin on one node.
MAX_SCORE: Final = 100


@dataclass(frozen=True, slots=True)
class Question:
    """Where would pods of the class like it best, among *rows*, which all take them?"""

    snapshot: Snapshot
    pod: PodClass
    rows: npt.NDArray[np.intp]
    #: Which pods one without spread constraints is kept apart from; NOTHING: it has no owner and no Service.
    spread_from: Selector = NOTHING


#: One score a row, 0 to MAX_SCORE; None where the plugin has nothing to say (Skip), which counts as 0 everywhere.
Score: TypeAlias = Callable[[Question], Numbers | None]


@dataclass(frozen=True, slots=True)
class Scorer:
    """A score plugin of the kube-scheduler, called as there, and what it counts for."""

    name: str
    weight: int
    score: Score


def normalized(scores: Numbers, *, reverse: bool = False) -> Numbers:
    """*scores* as shares of the highest, the other way round with *reverse* (``helper.DefaultNormalizeScore``)."""
    most = int(scores.max(initial=0))
    if most == 0:
        return np.full(len(scores), MAX_SCORE, np.int64) if reverse else scores
    shares: Numbers = MAX_SCORE * scores // most
    return MAX_SCORE - shares if reverse else shares
