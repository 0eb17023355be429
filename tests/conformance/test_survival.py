"""Certified pools have no pod without a place by brute force with the real scheduler's plugins."""

from tests.conformance.oracle import Oracle
from tests.conformance.survival import Tally, compare

CLUSTERS = 12  #: ``make survival N=1000`` compares more


def test_certified_pools_have_no_homeless_pod(oracle: Oracle) -> None:
    tally = Tally()
    problems = [problem for seed in range(CLUSTERS) for problem in compare(oracle, seed, tally)]
    assert problems == []
    assert tally.certified > CLUSTERS // 2
    assert tally.refused > CLUSTERS // 2
    assert tally.allowed <= tally.refused // 50
