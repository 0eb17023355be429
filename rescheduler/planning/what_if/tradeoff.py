"""What each further drain of a plan saves, and which losses of spot nodes are survived after it. Pure."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from rescheduler.planning.money.worth import Worth, summed
from rescheduler.planning.outcome import Plan
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Survive
from rescheduler.planning.survival import SIMULATION, Certificate
from rescheduler.planning.what_if.overview import Overview, Point, Tradeoff

#: The number of steps in which the drains of a plan are tested.
_STEPS: Final = 8


def tradeoff(planner: Planner, circumstances: Circumstances, overview: Overview, survive: Survive) -> Tradeoff | None:
    """Return the trade-off of the plan in *overview*, which *planner* made; None without drains or spot nodes.

    Each drain leaves less room. So if the first and the last state survive all losses, the others do as well.
    """
    planning = overview.planning
    plans = planning.possible or planning.plans
    states = _States(planner, circumstances, overview, survive)
    if not plans or survive is Survive.OFF or not (first := states.certificate(())).pools:
        return None
    last = states.certificate(plans)
    numbers = sorted({round(step * len(plans) / _STEPS) for step in range(_STEPS + 1)})
    known = dict.fromkeys(numbers, first) if first.holds and last.holds else {0: first, len(plans): last}
    points = tuple(
        states.point(plans[:number], known.get(number) or states.certificate(plans[:number])) for number in numbers
    )
    chosen = points[-1] if not planning.possible else states.point(planning.plans, states.certificate(planning.plans))
    return Tradeoff(survive, len(first.pools), points, chosen)


class _States:
    """The states after plans of a planning."""

    def __init__(self, planner: Planner, circumstances: Circumstances, overview: Overview, survive: Survive) -> None:
        self._planner = planner
        self._circumstances = circumstances
        self._worths = overview.worths
        self._survive = survive

    def certificate(self, plans: Sequence[Plan]) -> Certificate:
        """Return the certificate, with a part of the usual effort."""
        return self._planner.certificate(self._circumstances, self._survive, plans, seconds=SIMULATION / _STEPS)

    def point(self, plans: Sequence[Plan], certificate: Certificate) -> Point:
        """Return the point of the state after *plans*."""
        worth: Worth = summed(self._worths[plan.node] for plan in plans if plan.node in self._worths)
        saved = worth.gross_per_month if worth.net_per_month is None else worth.net_per_month
        if not plans and self._worths:
            saved = Decimal(0)
        return Point(
            nodes=len(plans),
            per_month=saved,
            survived=sum(pool.survived for pool in certificate.pools),
            homeless=sum(pool.homeless_pods for pool in certificate.pools),
            room=self._planner.fallback_room(self._circumstances, plans).share,
        )
