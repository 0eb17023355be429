"""``make bench``: run all measurements, print the table and save it in ``tests/bench/results.md``."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import click

from devcluster.signals import exit_on_sigterm
from rescheduler.clock import SystemClock
from tests.bench import (
    buying,
    freed,
    hostile,
    idle,
    leftovers,
    pages,
    planning,
    plugins,
    proxying,
    reading,
    room,
    simulating,
    starting,
    tenants,
    topology,
    worth,
)
from tests.bench.result import MOST_LOAD, Result, conditions, keep, markdown

PARTS: Final[dict[str, Callable[[], Iterable[Result]]]] = {
    "planning": planning.run,
    "reading": lambda: reading.run(times=1),
    "hostile": hostile.run,
    "tenants": tenants.run,
    "freed": freed.run,
    "surging": freed.surging,
    "leftovers": leftovers.run,
    "room": room.run,
    "buying": buying.run,
    "worth": worth.run,
    "proxying": proxying.run,
    "starting": starting.run,
    "pages": pages.run,
    "idle": idle.run,
    "simulating": simulating.run,
}


#: Parts that measure no time, the longest first: two of them run at once.
COUNTED: Final = ("leftovers", "freed", "worth", "room", "surging")


def _rows(name: str) -> list[Result]:
    """Run a part, and print its rows when they are there."""
    rows = []
    for result in PARTS[name]():
        print(markdown([result]).splitlines()[-1], file=sys.stderr, flush=True)  # noqa: T201
        rows.append(result)
    return rows


def _measured(names: Sequence[str]) -> list[Result]:
    """Run the parts *names*. Those that measure time run alone."""
    counted = [name for name in COUNTED if name in names]
    with ProcessPoolExecutor(2) as pool:
        rows = dict(zip(counted, pool.map(_rows, counted), strict=True))
    return [row for name in names for row in (rows[name] if name in rows else _rows(name))]


@click.command()
@click.option("--only", type=click.Choice([*PARTS, "growth"]), help="Run only this part, and save nothing.")
def main(only: str | None) -> None:
    """Measure ratios within one run, because absolute times mean little on a shared machine.

    The table is saved if the machine was quiet before.
    """
    exit_on_sigterm()
    load, began = os.getloadavg()[0], SystemClock().monotonic()
    results = _measured([name for name in PARTS if only in (None, name)])
    text = markdown(results)
    if only in (None, "growth"):
        rows = [*plugins.run(), *topology.run()]
        text += f"\n\nCost of one query over 2,000 nodes by number of pods:\n\n```\n{topology.table(rows)}\n```\n"
    text = f"{conditions(load, (SystemClock().monotonic() - began) / 60)}\n\n{text}"
    print(text)  # noqa: T201
    if only is None and load > MOST_LOAD:
        raise click.ClickException(f"not saved: expected a load of at most {MOST_LOAD:g} before the start")
    if only is None:
        keep(bench=text)
    sys.exit(any(not row.held for row in results))


if __name__ == "__main__":
    main()
