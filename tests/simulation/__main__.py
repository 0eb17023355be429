"""Run random courses and judge them: ``make simulation HOURS=500 SEED=1``. A violation prints the seed of its course,
and the events that show it.
"""

import argparse
import logging
import sys
from typing import Final

import click

from rescheduler.clock import SystemClock
from tests.simulation.courses import RandomCourse, new_course, run, shrunk

#: Hours of one course.
HOURS: Final = 2.0
CLOCK: Final = SystemClock()


def _violations(course: RandomCourse) -> tuple[str, ...]:
    try:
        return run(course).violations
    except Exception as error:  # noqa: BLE001 - an error of the daemon is a violation, too
        return (f"{type(error).__name__}: {error}",)


def main() -> int:
    """Run the courses. Return 1 if one violates an invariant."""
    parser = argparse.ArgumentParser(prog="make simulation", description=__doc__)
    parser.add_argument("--hours", type=float, default=100.0, help="simulated hours in total")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first course")
    parser.add_argument("--shrink", type=int, default=40, help="runs to find the shortest course of a violation")
    parser.add_argument("--until-violation", action="store_true", help="end after the first course with violations")
    parser.add_argument("--one", action="store_true", help="run the course of --seed only, and print its events")
    options = parser.parse_args()
    logging.getLogger("rescheduler").setLevel(logging.CRITICAL)
    began, hours, seed, failed = CLOCK.monotonic(), 0.0, options.seed, 0
    drains = removals = evictions = 0
    while hours < (HOURS if options.one else options.hours):
        course = new_course(seed, HOURS)
        try:
            result = run(course)
            violations = result.violations
            drains, removals, evictions = (
                drains + result.drains,
                removals + result.removals,
                evictions + result.evictions,
            )
        except Exception as error:  # noqa: BLE001 - an error of the daemon is a violation, too
            violations = (f"{type(error).__name__}: {error}",)
        if violations:
            failed += 1
            _explain(course, violations, options.shrink)
            if options.until_violation:
                break
        hours, seed = hours + HOURS, seed + 1
    click.echo(
        f"{hours:g} simulated hours in {CLOCK.monotonic() - began:.0f} s: {drains} drains, {evictions} evictions, "
        f"{removals} machines ended, {failed} courses with violations"
    )
    return int(failed > 0)


def _explain(course: RandomCourse, violations: tuple[str, ...], tries: int) -> None:
    click.echo(f"seed {course.seed}: {len(violations)} violations")
    for violation in violations[:3]:
        click.echo(f"  {violation}")
    kind = violations[0].partition("(")[0][16:]
    shortest = shrunk(course, lambda each: any(kind in text for text in _violations(each)), tries) if tries else course
    click.echo(f"  with {len(shortest.events)} of {len(course.events)} events:")
    for event in shortest.events:
        click.echo(f"    {event}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
