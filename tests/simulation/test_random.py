"""Random courses, judged by the observer of the invariants: ``make simulation`` runs more of them."""

import pytest

from tests.simulation.courses import new_course, run, shrunk


@pytest.mark.parametrize("seed", range(1, 11))
def test_a_random_course_violates_nothing(seed: int) -> None:
    result = run(new_course(seed, 2.0))
    assert result.violations == ()
    assert result.drains > 0


def test_a_random_course_is_the_same_each_time() -> None:
    first, second = (run(new_course(3, 1.0)) for _ in range(2))
    assert first == second


def test_a_violation_is_shown_with_few_events() -> None:
    course = new_course(3, 2.0)
    wanted = course.events[len(course.events) // 3]
    shortest = shrunk(course, lambda each: wanted in each.events)
    assert shortest.events == (wanted,)
