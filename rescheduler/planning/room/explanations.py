"""Explanations of why no spot room is ordered for a node, as part of its verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from rescheduler.planning.outcome import Blocker, Planning, Reason, Rejected, Verdict


@dataclass(frozen=True, slots=True)
class UnmetOrder:
    """An order for which no spot nodes were added in time."""

    node: str
    until: datetime  #: no other order begins before


class Explanations:
    """Adds explanations to plannings. Returns the same object again while nothing has changed."""

    def __init__(self) -> None:
        self._given: tuple[Planning, UnmetOrder | None, Mapping[str, str]] | None = None
        self._last: Planning | None = None

    def of(self, planning: Planning, unmet: UnmetOrder | None, reasons: Mapping[str, str]) -> Planning:
        """Return *planning* with a blocker for an *unmet* order and *reasons* (by node) why no order was found."""
        if unmet is None and not reasons:
            return planning
        given, last = self._given, self._last
        if last is None or given is None or given[0] is not planning or given[1:] != (unmet, reasons):
            self._given = planning, unmet, dict(reasons)
            verdicts = (explained(verdict, unmet, reasons.get(verdict.node, "")) for verdict in planning.verdicts)
            last = self._last = replace(planning, verdicts=tuple(verdicts))
        return last


def explained(verdict: Verdict, unmet: UnmetOrder | None, why: str) -> Verdict:
    """Return *verdict* with a blocker for an *unmet* order of its node.

    *why* is the reason why the last search found no order for the node, or "" if it is not known. It is added to the
    blocker of the pod that does not fit.
    """
    if not isinstance(verdict, Rejected):
        return verdict
    blockers = tuple(_with_reason(blocker, why) for blocker in verdict.blockers) if why else verdict.blockers
    if unmet is not None and unmet.node == verdict.node:
        detail = f"no spot nodes were added for its pods in time; no new order before {unmet.until:%Y-%m-%dT%H:%M:%SZ}"
        blockers = (Blocker(Reason.NO_SPOT_CAPACITY, detail), *blockers)
    return replace(verdict, blockers=blockers)


def _with_reason(blocker: Blocker, why: str) -> Blocker:
    if blocker.reason is not Reason.NO_ROOM:
        return blocker
    return replace(blocker, detail=f"{blocker.detail}; no spot room is ordered: {why}")
