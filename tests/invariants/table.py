"""All invariants by number."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.invariants.agreement import InAgreement
from tests.invariants.evictions import NothingForbidden
from tests.invariants.holding import HoldsNobody
from tests.invariants.judging import Invariant
from tests.invariants.landing import LandsInTime
from tests.invariants.leadership import OneLeader
from tests.invariants.leftovers import NoLeftovers
from tests.invariants.minimum import KeepsMinimum
from tests.invariants.moves import WithinMoves
from tests.invariants.owing import NoPlaceAtRisk, NothingOwed
from tests.invariants.removals import MovedBeforeRemoval
from tests.invariants.resting import LeftoversRest
from tests.invariants.waves import WithinWaves

INVARIANTS: Final[Mapping[int, Callable[[], Invariant]]] = {
    1: LandsInTime,
    2: WithinWaves,
    3: NothingForbidden,
    4: OneLeader,
    5: NoLeftovers,
    6: MovedBeforeRemoval,
    7: KeepsMinimum,
    8: InAgreement,
    9: WithinMoves,
    10: HoldsNobody,
    11: NothingOwed,
    12: NoPlaceAtRisk,
    13: LeftoversRest,
}
