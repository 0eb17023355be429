"""Run random courses and judge them: ``make simulation HOURS=500 SEED=1``. A violation prints the seed of its course,
and the events that show it.
"""

import argparse
import logging
import os
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import click

from rescheduler.clock import SystemClock
from rescheduler.simulation.world import World
from tests.simulation.claims import ClaimedWorld
from tests.simulation.courses import CourseResult, RandomCourse, new_course, run, shrunk, stretched
from tests.simulation.drain_acts import ACTS_IN_DRAINS

#: Hours of one course in which something happens all the time.
HOURS: Final = 1.0
CLOCK: Final = SystemClock()


#: By the name of the daemon's provider: the cluster of a course.
WORLDS: Final[dict[str, type[World]]] = {"simulated": World, "karpenter": ClaimedWorld}


def judged(course: RandomCourse, provider: str) -> CourseResult:
    """Run *course*. An error of the daemon is a violation, too."""
    logging.getLogger("rescheduler").setLevel(logging.CRITICAL)
    try:
        return run(course, WORLDS[provider])
    except Exception as error:  # noqa: BLE001 - see above
        return CourseResult((f"{type(error).__name__}: {error}",), 0, 0, 0)


def course_of(seed: int, hours: float, acts: Collection[str] = ()) -> RandomCourse:
    """Return the course of *seed* in *hours*, of which one has events all the time. For *acts* see new_course()."""
    course = new_course(seed, HOURS, acts)
    return course if hours <= HOURS else stretched(course, hours)


def _of_seed(seed: int, hours: float, acts: Collection[str], provider: str) -> CourseResult:
    return judged(course_of(seed, hours, acts), provider)


def results(
    seeds: Sequence[int], processes: int, hours: float, acts: Collection[str], provider: str
) -> Iterator[CourseResult]:
    """Run the courses of *seeds* in *processes*. Yield the results in the order of the seeds."""
    of_seed = partial(_of_seed, hours=hours, acts=acts, provider=provider)
    if processes == 1:
        yield from map(of_seed, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        for start in range(0, len(seeds), 4 * processes):
            yield from pool.map(of_seed, seeds[start : start + 4 * processes])


def main() -> int:
    """Run the courses. Return 1 if one violates an invariant."""
    parser = argparse.ArgumentParser(prog="make simulation", description=__doc__)
    parser.add_argument("--hours", type=float, default=100.0, help="simulated hours in total")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first course")
    parser.add_argument(
        "--calm", type=float, default=0.0, help="hours of each course in which its events happen in bursts; 0: none"
    )
    parser.add_argument("--shrink", type=int, default=40, help="runs to find the shortest course of a violation")
    parser.add_argument("--until-violation", action="store_true", help="end after the first course with violations")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many courses run at a time")
    parser.add_argument("--provider", choices=WORLDS, default="simulated", help="what ends the machines")
    parser.add_argument(
        "--act",
        choices=ACTS_IN_DRAINS,
        action="append",
        default=[],
        help="what happens in drains, and nothing else",
    )
    options = parser.parse_args()
    length = max(options.calm, HOURS)
    began, count = CLOCK.monotonic(), max(round(options.hours / length), 1)
    seeds, done, failed = range(options.seed, options.seed + count), list[CourseResult](), 0
    found = results(seeds, options.processes, length, options.act, options.provider)
    for seed, result in zip(seeds, found, strict=True):
        done.append(result)
        if result.violations:
            failed += 1
            _explain(course_of(seed, length, options.act), result.violations, options.shrink, options.provider)
            if options.until_violation:
                break
    drains, evictions = sum(each.drains for each in done), sum(each.evictions for each in done)
    click.echo(
        f"{len(done) * length:g} simulated hours ({len(done) * HOURS:g} with events all the time) in "
        f"{CLOCK.monotonic() - began:.0f} s: {drains} drains, "
        f"{evictions} evictions, {sum(each.removals for each in done)} machines ended, "
        f"{sum(each.faults for each in done)} faults, {failed} courses with violations"
    )
    return int(failed > 0)


def _shows(kind: str, provider: str, course: RandomCourse) -> bool:
    return any(kind in text for text in judged(course, provider).violations)


def _explain(course: RandomCourse, violations: tuple[str, ...], tries: int, provider: str) -> None:
    click.echo(f"seed {course.seed}: {len(violations)} violations")
    for violation in violations[:3]:
        click.echo(f"  {violation}")
    kind = violations[0].partition("(")[0][16:]
    shortest = shrunk(course, partial(_shows, kind, provider), tries) if tries else course
    click.echo(f"  with {len(shortest.events)} of {len(course.events)} events:")
    for event in shortest.events:
        click.echo(f"    {event}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
