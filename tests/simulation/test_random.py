"""Random courses, judged by the observer of the invariants: ``make simulation`` runs more of them."""

import pytest

from tests.simulation.__main__ import HOURS, course_of
from tests.simulation.claims import ClaimedWorld
from tests.simulation.courses import new_course, run, shrunk

#: Courses of an hour in which something happens about every minute: each takes seconds.
SEEDS = range(1, 13)
#: Courses of two days, with the events of one such hour, in which the daemon mostly waits.
CALM_SEEDS = range(101, 104)
CALM_HOURS = 50.0
#: The same with --cloud-provider=karpenter.
CLAIMED_SEEDS = range(1, 4)


def test_random_courses_violate_nothing() -> None:
    results = {seed: run(new_course(seed, HOURS)) for seed in SEEDS}
    assert {seed: result.violations for seed, result in results.items() if result.violations} == {}
    assert sum(result.drains for result in results.values()) > 5 * len(SEEDS)
    assert sum(result.removals for result in results.values()) > 3 * len(SEEDS)
    assert sum(result.evictions for result in results.values()) > 10 * len(SEEDS)


@pytest.mark.parametrize("seed", CALM_SEEDS)
def test_random_days_violate_nothing(seed: int) -> None:
    result = run(course_of(seed, CALM_HOURS))
    assert result.violations == ()
    assert result.drains > 5


def test_random_courses_with_node_claims_violate_nothing() -> None:
    results = {seed: run(new_course(seed, HOURS), ClaimedWorld) for seed in CLAIMED_SEEDS}
    assert {seed: result.violations for seed, result in results.items() if result.violations} == {}
    assert sum(result.removals for result in results.values()) > 3 * len(CLAIMED_SEEDS)
    assert sum(result.faults for result in results.values()) > 100 * len(CLAIMED_SEEDS)


def test_a_random_course_is_the_same_each_time() -> None:
    first, second = (run(new_course(3, 1.0)) for _ in range(2))
    assert first == second


def test_a_violation_is_shown_with_few_events() -> None:
    course = new_course(3, HOURS)
    wanted = course.events[len(course.events) // 3]
    shortest = shrunk(course, lambda each: wanted in each.events)
    assert shortest.events == (wanted,)
