"""Each reason has the severity that docs/reasons.md says, and a node has the worst one of its reasons."""

import re
from pathlib import Path

import pytest

from rescheduler.planning.outcome import Blocker, Plan, Reason, Rejected, Severity
from rescheduler.planning.severity import blocker_object, rank, severity_of_verdict

PAGE = Path(__file__).parents[2] / "docs" / "reasons.md"


def test_the_documented_severities_are_those_of_the_reasons() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning|info) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == [(reason.value, reason.severity.value) for reason in Reason]


def test_every_severity_is_explained() -> None:
    assert re.findall(r"^- \*\*(\w+)\*\*: ", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(Severity)


#: The reasons of a node → its severity.
NODES = {
    (Reason.PINNED,): Severity.WARNING,
    (Reason.COOLING_DOWN,): Severity.INFO,
    (Reason.NOT_SAFE_TO_EVICT, Reason.PINNED): Severity.WARNING,
    (Reason.PINNED, Reason.NOT_SAFE_TO_EVICT): Severity.WARNING,
    (Reason.NOT_SAFE_TO_EVICT, Reason.LOCAL_STORAGE, Reason.QUOTA_EXCEEDED): Severity.ERROR,
    (Reason.NODE_NOT_READY, Reason.COOLING_DOWN): Severity.ERROR,
}


@pytest.mark.parametrize(("reasons", "expected"), NODES.items())
def test_a_node_has_the_worst_severity_of_its_reasons(reasons: tuple[Reason, ...], expected: Severity) -> None:
    assert severity_of_verdict(Rejected("od", tuple(Blocker(reason, "") for reason in reasons))) is expected


def test_a_node_that_can_be_drained_has_none_and_comes_last() -> None:
    assert severity_of_verdict(Plan("od", ())) is None
    assert sorted([None, Severity.INFO, Severity.WARNING, Severity.ERROR], key=rank) == [*Severity, None]


def test_the_object_of_a_blocker_has_its_severity() -> None:
    blocker = Blocker(Reason.NO_CONTROLLER, "it has none", "ci/build")
    assert blocker_object(blocker) == {
        "pod": "ci/build", "reason": "no-controller", "severity": "error", "detail": "it has none",
    }  # fmt: skip
