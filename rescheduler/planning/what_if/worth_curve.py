"""What is saved with fewer moves: plans for rising values of ``--min-worth``. Pure.

Each point is a plan of its own: when nodes stay, other nodes may fit in their place.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.money.move_costs import MoveWorth, WorthCurve, WorthPoint
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Planning
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances
from rescheduler.planning.what_if.overview import Overview, worths_of

#: The share of the money that the recommended value keeps, and the most of the moves for which it is recommended.
_MONEY: Final = 0.9
_MOVES: Final = 0.8

#: The number of steps of a whole curve, and of plans that are made to find the recommended value.
_STEPS: Final = 6
_TRIES: Final = 7

#: A value is written with at most this many digits.
_DIGITS: Final = 6


def worth_curve(
    planner: Planner,
    known: Overview,
    snapshot: Snapshot,
    circumstances: Circumstances,
    time_is_up: Callable[[], bool],
    *,
    whole: bool,
) -> WorthCurve | None:
    """Return the curve of the plan in *known*, which *planner* made; None if what it saves is not known.

    Without *whole*, only the recommended value is looked for, by bisection: rising values leave less and less money,
    with few exceptions. No more plans are made once *time_is_up*.
    """
    plans = known.planning.plans
    worths = planner.worths([each.node for each in known.planning.verdicts], circumstances) if plans else {}
    trials = _Trials(planner, snapshot, circumstances, known.prices, worths)
    first = trials.point(known.planning, planner.policy.min_worth)
    if first is None or not first.per_month or not first.pods:
        return None
    values = _values(worths[plan.node].per_move for plan in plans)
    enough, points = first.per_month * Decimal(_MONEY), {first.min_worth: first}
    low, high = -1, len(values)
    for _ in range(_TRIES):
        middle = (low + high) // 2
        if high - low <= 1 or time_is_up() or (point := trials.planned(values[middle])) is None:
            break
        points[point.min_worth] = point
        low, high = (middle, high) if point.per_month >= enough else (low, middle)
    best = min(points.values(), key=lambda each: (each.per_month < enough, each.pods, -each.per_month))
    for value in values[:: -(-len(values) // _STEPS) or 1] if whole else ():
        if value not in points and not time_is_up() and (point := trials.planned(value)) is not None:
            points[value] = point
    recommended = best if best.pods <= _MOVES * first.pods else None
    return WorthCurve(tuple(points[value] for value in sorted(points)), recommended)


def _values(per_moves: Iterable[float | None]) -> list[float]:
    """Return rising values of ``--min-worth`` with few digits, one between each two of *per_moves* if there is one."""
    ranked = sorted({each for each in per_moves if each is not None and math.isfinite(each)})
    return sorted({value for below, above in pairwise(ranked) if (value := _between(below, above)) is not None})


def _between(below: float, above: float) -> float | None:
    """Return a value greater than *below* and at most *above*, with as few digits as possible; None if it has many."""
    for digits in range(1, _DIGITS):
        unit = 10.0 ** (math.floor(math.log10(above)) - digits) if above > 0 else 1.0
        value = float(f"{math.floor(above / unit) * unit:.{_DIGITS}g}")
        if below < value <= above:
            return value
    return None


@dataclass(frozen=True, slots=True)
class _Trials:
    """Plans with other values of ``--min-worth``: a node has one worth, whichever nodes are drained before."""

    planner: Planner
    snapshot: Snapshot
    circumstances: Circumstances
    prices: PriceList
    worths: Mapping[str, MoveWorth]

    def planned(self, value: float) -> WorthPoint | None:
        """Return the point of the plan with the *value*; None if it is not known what the plan saves."""
        kept = {
            node: (*self.circumstances.vetoes.get(node, ()), blocker)
            for node, worth in self.worths.items()
            if (blocker := worth.blocker(value, self.prices.currency)) is not None
        }
        vetoes = {**self.circumstances.vetoes, **kept}
        return self.point(self.planner.plan_all(replace(self.circumstances, vetoes=vetoes)), value)

    def point(self, planning: Planning, value: float) -> WorthPoint | None:
        """Return the point of *planning*, which was made with the *value*; None if it is not known what it saves."""
        worths = worths_of(planning, self.snapshot, self.prices, self.circumstances.now.date())
        if (saved := summed(worths.values()).saved_per_month) is None:
            return None
        cost = self.planner.move_cost(planning.plans, self.circumstances)
        return WorthPoint(value, len(planning.plans), planning.moved_pods, cost, saved)
