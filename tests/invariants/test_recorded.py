"""Evaluation of recorded histories of daemons without a safeguard and of the intact daemon."""

from pathlib import Path

import pytest

from tests.invariants.history import Recorded
from tests.invariants.judging import Judgement, judge
from tests.invariants.record import HISTORIES, INTACT, file_of
from tests.invariants.scenes import BROKEN, SCENES
from tests.invariants.summary import summary
from tests.invariants.table import INVARIANTS


def judged(file: Path) -> Judgement:
    recorded = Recorded.load(file)
    return judge(recorded.history, recorded.rules, [invariant() for invariant in INVARIANTS.values()])


def numbers(program: str, scene: str) -> set[int]:
    """Return the invariants that were violated in the recorded run."""
    return {violation.invariant for violation in judged(file_of(program, scene)).violations}


@pytest.mark.parametrize("safeguard", BROKEN)
def test_a_lost_safeguard_is_detected(safeguard: str) -> None:
    invariant, scene = BROKEN[safeguard]
    assert invariant in numbers(safeguard, scene)


@pytest.mark.parametrize("scene", SCENES)
def test_the_intact_daemon_violates_nothing(scene: str) -> None:
    assert numbers(INTACT, scene) == set()


def test_each_invariant_is_violated_by_the_loss_of_a_safeguard() -> None:
    assert {invariant for invariant, _ in BROKEN.values()} == set(INVARIANTS)


def test_eight_minutes_of_soak_violate_nothing() -> None:
    """Two replicas with kills and faults, seed 6: 21 machines are terminated and 67 pods are evicted."""
    judgement = judged(HISTORIES / "soak-6.json.gz")
    report = summary(judgement)
    assert judgement.violations == []
    assert (report["machines terminated"], report["evictions"]["accepted"]) == (21, 67)
    assert report["drains"] == {
        "emptied": 2,
        "nothing evicted": 6,
        "open": 1,
        "removed": 9,
        "removed empty": 12,
        "rolled back": 1,
    }
