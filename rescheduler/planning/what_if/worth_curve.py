"""What is saved with fewer moves: plans for rising values of ``--min-worth``. Pure.

Each point is a plan of its own: when nodes stay, other nodes may fit in their place.
"""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
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

    Without *whole*, only the recommended value is looked for. No more plans are made once *time_is_up*.
    """
    plans = known.planning.plans
    worths = planner.worths([each.node for each in known.planning.verdicts], circumstances) if plans else {}
    trials = _Trials(planner, snapshot, circumstances, known.prices, worths)
    first = trials.point(known.planning, trials.least)
    if first is None or not first.per_month or not first.pods:
        return None
    ranked = sorted(per for plan in plans if (per := worths[plan.node].per_move) is not None and math.isfinite(per))
    values = sorted({value for number in range(1, len(ranked)) if (value := _between(ranked, number)) is not None})
    points = _fewest_moves(trials, first, values, _spared(known, worths), time_is_up)
    enough = [each for each in points.values() if each.per_month >= first.per_month * Decimal(_MONEY)]
    best = min(enough, key=lambda each: (each.pods, -each.per_month))
    steps = [values[step * len(values) // _STEPS] for step in range(_STEPS)] if whole and values else []
    for value in steps:
        if value not in points and not time_is_up() and (point := trials.planned(value)) is not None:
            points[value] = point
    recommended = best if best.pods <= _MOVES * first.pods else None
    return WorthCurve(tuple(points[value] for value in sorted(points)), recommended)


def _fewest_moves(
    trials: "_Trials", first: WorthPoint, values: Sequence[float], guess: float, time_is_up: Callable[[], bool]
) -> dict[float, WorthPoint]:
    """Return plans with some of *values* by value, among them one with few moves and enough of the money of *first*.

    It is searched for by bisection from the *guess*: the rising values leave less and less money, with few exceptions.
    """
    points, low, high = {first.min_worth: first}, -1, len(values)
    middle = bisect.bisect_left(values, guess)
    for _ in range(_TRIES):
        middle = middle if low < middle < high else (low + high) // 2
        if high - low <= 1 or time_is_up() or (point := trials.planned(values[middle])) is None:
            break
        points[point.min_worth] = point
        enough = point.per_month >= first.per_month * Decimal(_MONEY)
        low, high, middle = (middle, high, -1) if enough else (low, middle, -1)
    return points


def _spared(known: Overview, worths: Mapping[str, MoveWorth]) -> float:
    """Return a value that leaves the nodes of least worth, which save a tenth in all; others may take their room."""
    money = {
        plan.node: float(worth.saved or 0) if (worth := known.worths.get(plan.node)) else 0.0
        for plan in known.planning.plans
    }
    spare, value = (1 - _MONEY) * sum(money.values()), 0.0
    for node in sorted(money, key=lambda node: _finite(worths[node])):
        spare, value = spare - money[node], _finite(worths[node])
        if spare < 0:
            break
    return value


def _finite(worth: MoveWorth) -> float:
    return math.inf if worth.per_move is None else worth.per_move


def _between(ranked: Sequence[float], dropped: int) -> float | None:
    """Return a value above the *dropped* smallest of *ranked* and not above the others, with few digits; or None."""
    if not 0 < dropped < len(ranked):
        return None
    below, above = ranked[dropped - 1], ranked[dropped]
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

    @property
    def least(self) -> float:
        return self.planner.policy.min_worth

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
        saved = summed(worths.values()).saved_per_month
        if saved is None:
            return None
        cost = self.planner.move_cost(planning.plans, self.circumstances)
        return WorthPoint(value, len(planning.plans), planning.moved_pods, cost, saved)
