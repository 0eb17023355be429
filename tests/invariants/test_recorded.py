"""Histories of real runs, judged again: what a daemon without a safeguard did, and what the intact one did."""

import pytest

from tests.invariants.history import Recorded
from tests.invariants.judging import judge
from tests.invariants.record import INTACT, file_of
from tests.invariants.scenes import BROKEN, SCENES
from tests.invariants.table import INVARIANTS


def numbers(program: str, scene: str) -> set[int]:
    """The invariants that were violated in the recorded run."""
    recorded = Recorded.load(file_of(program, scene))
    asked = [invariant() for invariant in INVARIANTS.values()]
    return {violation.invariant for violation in judge(recorded.history, recorded.rules, asked).violations}


@pytest.mark.parametrize("safeguard", BROKEN)
def test_a_lost_safeguard_is_noticed(safeguard: str) -> None:
    invariant, scene = BROKEN[safeguard]
    assert invariant in numbers(safeguard, scene)


@pytest.mark.parametrize("scene", SCENES)
def test_the_intact_daemon_violates_nothing(scene: str) -> None:
    assert numbers(INTACT, scene) == set()


def test_each_invariant_is_violated_by_the_loss_of_a_safeguard() -> None:
    assert {invariant for invariant, _ in BROKEN.values()} == set(INVARIANTS)
