"""A soak of two minutes, and the evaluation of its report."""

import json
from pathlib import Path
from typing import Any, Final
from xml.dom import minidom

import pytest

from devcluster.plane import ControlPlane
from tests.invariants.history import Recorded
from tests.invariants.judging import judge
from tests.invariants.record import HISTORIES
from tests.invariants.summary import summary
from tests.invariants.table import INVARIANTS
from tests.soak.churn import soak
from tests.soak.replicas import Usage
from tests.soak.results import Results, growth, write_report

MIB: Final = 2**20


@pytest.mark.cluster
def test_a_soak_of_two_minutes_passes(cluster: ControlPlane, tmp_path: Path) -> None:
    """How many drains fit into two minutes depends on the machine; the programs for longer runs demand a number."""
    results = soak(cluster, minutes=2, seed=1, folder=tmp_path)
    assert [*results.violations] == []
    assert results.drains > 0
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


def test_a_report_is_written_for_a_recorded_run(tmp_path: Path) -> None:
    recorded = Recorded.load(HISTORIES / "soak-6.json.gz")
    judgement = judge(recorded.history, recorded.rules, [invariant() for invariant in INVARIANTS.values()])
    write_report(Results(8, 6, judgement.violations, summary(judgement), (), ()), tmp_path)
    assert "67 accepted" in (tmp_path / "report.txt").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["evictions"]["accepted"] == 67
    drawn = minidom.parse(str(tmp_path / "soak.svg"))
    assert len(drawn.getElementsByTagName("title")) == 31  # one bar per drain


def usages(*resident: float) -> list[Usage]:
    """Return one usage per minute."""
    return [Usage(60.0 * minute, int(value * MIB), 0.0, 1) for minute, value in enumerate(resident)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([80.0] * 15, None),  # too short
        ([50.0] * 10 + [100.0] * 30, 0.0),  # grows only during the warm-up
        ([50.0] * 10 + [100.0] * 15 + [110.0] * 15, 0.1),
    ],
)
def test_growth_counts_from_the_end_of_the_warm_up(values: list[float], expected: float | None) -> None:
    grown = growth(usages(*values))
    assert grown is None if expected is None else grown == pytest.approx(expected)
