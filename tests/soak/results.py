"""Results of a soak: table, failures, and the files of the report."""

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.invariants.rules import TITLES, Violation
from tests.soak.picture import picture
from tests.soak.replicas import WARM_SECONDS, Replica, Usage

#: A run needs this many drains with evictions; with fewer it tested too little.
DRAINS_PER_HOUR: Final = 60

#: Memory is judged in runs of at least this length, and in processes of at least this age after their warm-up.
JUDGED_MINUTES: Final = 20.0
JUDGED_SECONDS: Final = 300.0
GROWTH: Final = 0.05


@dataclass(frozen=True, slots=True)
class Results:
    """Results of one run. *report* is the watchdog's."""

    minutes: float
    seed: int
    violations: Sequence[Violation]
    report: dict[str, Any]
    replicas: Sequence[Replica]
    actions: Sequence[tuple[float, str]]

    @property
    def drains(self) -> int:
        """Number of drains with evictions."""
        outcomes: dict[str, int] = self.report["drains"]
        return sum(count for outcome, count in outcomes.items() if outcome not in ("nothing evicted", "removed empty"))

    def troubles(self) -> list[str]:
        """Return why the run failed; empty if it passed."""
        return [*map(str, self.violations), *self._few_drains(), *self._growth()]

    def _few_drains(self) -> Iterator[str]:
        least = DRAINS_PER_HOUR * self.minutes / 60
        if self.drains < least:
            yield f"{self.drains} drains evicted something; a run of {self.minutes:g} minutes needs {least:.0f}"

    def _growth(self) -> Iterator[str]:
        if self.minutes < JUDGED_MINUTES:
            return
        for replica in self.replicas:
            for pid, usages in lives(replica.usages).items():
                ratio = growth(usages)
                if ratio is not None and abs(ratio) > GROWTH:
                    yield f"replica {replica.name} (process {pid}): resident memory changed by {ratio:+.1%}"

    def table(self) -> str:
        table = Table(title=f"{self.minutes:g} minutes of soak, seed {self.seed}", title_justify="left")
        table.add_column("what")
        table.add_column("result")
        for label, result in self._rows():
            table.add_row(label, result)
        text = io.StringIO()
        Console(width=120, file=text).print(table)
        return text.getvalue()

    def _rows(self) -> Iterator[tuple[str, str]]:
        for number, title in TITLES.items():
            yield f"invariant {number}: {title}", f"{self.report['violations'][number]} violations"
        yield "evictions", _counted(self.report["evictions"])
        yield "drains", _counted(self.report["drains"])
        yield "leftovers moved", str(self.report["leftovers moved"])
        yield "machines terminated", str(self.report["machines terminated"])
        yield "landing of an owner's pods", _spread(self.report["landings"])
        yield "evicted pods missing at the end", str(self.report["missing at the end"])
        yield "actions on the cluster", str(len(self.actions))
        for replica in self.replicas:
            resident = [usage.resident / 2**20 for usage in replica.usages]
            if resident:
                text = f"{min(resident):.0f} to {max(resident):.0f} MiB, {len(lives(replica.usages))} processes"
                yield f"resident memory of replica {replica.name}", text


def lives(usages: Sequence[Usage]) -> dict[int, list[Usage]]:
    """Return the usages of each process of a replica."""
    split: dict[int, list[Usage]] = {}
    for usage in usages:
        split.setdefault(usage.pid, []).append(usage)
    return split


def growth(usages: Sequence[Usage]) -> float | None:
    """Return the share by which a process grew after its warm-up; None if it exited too early.

    Each new process warms up again: its first WARM_SECONDS do not count.
    """
    start = usages[0].at
    warm = [usage.resident for usage in usages if usage.at >= start + WARM_SECONDS]
    if not warm or usages[-1].at < start + WARM_SECONDS + JUDGED_SECONDS:
        return None
    tenth = max(1, len(warm) // 10)
    first, last = sum(warm[:tenth]) / tenth, sum(warm[-tenth:]) / tenth
    return last / first - 1


def write_report(results: Results, folder: Path) -> None:
    """Write `report.txt`, `report.json` and `soak.svg` to *folder*."""
    table = results.table()
    (folder / "report.txt").write_text("\n".join([table, *results.troubles(), ""]))
    violations = [str(violation) for violation in results.violations]
    report = {"minutes": results.minutes, "seed": results.seed, "found": violations, **results.report}
    (folder / "report.json").write_text(json.dumps(report, indent=1))
    (folder / "soak.svg").write_text(picture(results.report, results.replicas))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {label}" for label, count in sorted(counts.items())) or "none"


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{len(values)} landings"
    tenths = quantiles(values, n=10)
    return f"{len(values)} landings: median {tenths[4]:.1f} s, p90 {tenths[8]:.1f} s, longest {max(values):.1f} s"
