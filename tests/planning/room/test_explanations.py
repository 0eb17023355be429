"""Tests of the reasons why no room is made, as part of verdicts."""

from datetime import UTC, datetime

import pytest

from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.room.orders import Explanations, UnmetOrder, explained

UNTIL = datetime(2026, 1, 1, 12, tzinfo=UTC)
UNMET = UnmetOrder("od", UNTIL)
BARE = Blocker(Reason.NO_CONTROLLER, "nothing recreates it", "ns/b")
FULL = Rejected("od", (Blocker(Reason.NO_ROOM, "0/1 nodes", "ns/a"), BARE))
WAITS = Blocker(
    Reason.NO_SPOT_CAPACITY, "no spot nodes were added for its pods in time; no new order before 2026-01-01T12:00:00Z"
)
EXPLAINED = Blocker(Reason.NO_ROOM, "0/1 nodes; no spot room is ordered: too dear", "ns/a")

CASES: dict[str, tuple[Verdict, UnmetOrder | None, str, Verdict]] = {
    "a plan": (Plan("od", ()), UNMET, "too dear", Plan("od", ())),
    "nothing is known": (FULL, None, "", FULL),
    "an unmet order": (FULL, UNMET, "", Rejected("od", (WAITS, *FULL.blockers))),
    "an unmet order of another node": (FULL, UnmetOrder("other", UNTIL), "", FULL),
    "no order": (FULL, None, "too dear", Rejected("od", (EXPLAINED, BARE))),
}


@pytest.mark.parametrize(("verdict", "unmet", "why", "expected"), CASES.values(), ids=CASES)
def test_the_verdict_explains_an_unmet_order(
    verdict: Verdict, unmet: UnmetOrder | None, why: str, expected: Verdict
) -> None:
    assert explained(verdict, unmet, why) == expected


def test_the_same_planning_is_returned_while_nothing_changes() -> None:
    explanations, planning, why = Explanations(), Planning((FULL,), 1, 1), {"od": "too dear"}
    assert explanations.of(planning, None, {}) is planning
    first = explanations.of(planning, None, why)
    assert first == Planning((Rejected("od", (EXPLAINED, BARE)),), 1, 1)
    assert explanations.of(planning, None, dict(why)) is first
    assert explanations.of(planning, UNMET, why) != first
    assert explanations.of(Planning((FULL,), 1, 1), None, why) is not first
