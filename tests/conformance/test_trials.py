"""A snapshot stays correct through trial placements, their undoing, and events."""

from random import Random

import pytest

from tests.conformance.generate import FAMILIES, cluster
from tests.conformance.oracle import Oracle
from tests.conformance.trials import through_changes


@pytest.mark.parametrize("family", ["all", "plannable", *FAMILIES])
def test_verdicts_match_the_scheduler_through_changes(oracle: Oracle, family: str) -> None:
    for seed in range(1000, 1006):
        problem = next(through_changes(oracle, oracle.comparable(cluster(seed, family)), Random(seed)), None)
        assert problem is None, f"{family} seed {seed}: {problem}"
