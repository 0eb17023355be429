"""Two minutes of the soak that `make soak MINUTES=60` runs for an hour, and what its report says."""

from pathlib import Path
from typing import Any, Final

import pytest

from deploy.local.plane import ControlPlane
from tests.soak.churn import soak
from tests.soak.replicas import Usage
from tests.soak.results import Results, growth

MIB: Final = 2**20


@pytest.mark.cluster
def test_two_minutes(cluster: ControlPlane, tmp_path: Path) -> None:
    results = soak(cluster, minutes=2, seed=1, folder=tmp_path)
    assert results.troubles() == []
    assert {"report.txt", "report.json", "soak.svg", "actions.log"} <= {file.name for file in tmp_path.iterdir()}


def drains(**counts: int) -> dict[str, Any]:
    return {"drains": {name.replace("_", " "): count for name, count in counts.items()}}


@pytest.mark.parametrize(
    ("report", "enough"),
    [
        (drains(removed=8, rolled_back=2), True),
        (drains(removed=9), False),
        (drains(removed=5, removed_empty=30, nothing_evicted=30), False),
    ],
)
def test_ten_minutes_need_ten_drains(report: dict[str, Any], enough: bool) -> None:
    assert (Results(10, 1, (), report, (), ()).troubles() == []) is enough


def usages(*resident: float) -> list[Usage]:
    """One value a minute."""
    return [Usage(60.0 * minute, int(value * MIB), 0.0, 1) for minute, value in enumerate(resident)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([80.0] * 15, None),  # too short
        ([50.0] * 10 + [100.0] * 30, 0.0),  # it grows while it warms up only
        ([50.0] * 10 + [100.0] * 15 + [110.0] * 15, 0.1),
    ],
)
def test_growth_counts_from_the_end_of_the_warm_up(values: list[float], expected: float | None) -> None:
    grown = growth(usages(*values))
    assert grown is None if expected is None else grown == pytest.approx(expected)
