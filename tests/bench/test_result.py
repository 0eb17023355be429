"""The table of the results, and the file with two parts, of which each program replaces its own."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.bench import __main__ as program
from tests.bench import plugins, result, topology


def test_the_table_shows_missed_limits() -> None:
    costs = [result.cost("a", figure, "s", limit=2.0, aim=1.0) for figure in (0.5, 2.0, 2.1)]
    ratios = [result.faster("a", 1.0, peer, limit=2.0, aim=3.0) for peer in (3.0, 2.0, 1.9)]
    rows = result.markdown([*costs, *ratios]).splitlines()
    assert rows[2] == "| a |  |  | 0.5 s | 2 s | 1 s | aim reached |"
    assert [row.split(" | ")[-1].strip(" |") for row in rows[2:]] == ["aim reached", "held", "**missed**"] * 2


def test_each_program_replaces_only_its_part_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.md"
    monkeypatch.setattr(result, "KEPT", path)
    path.write_text("| old |\n")
    result.keep(scale="Commit a.\n")
    assert path.read_text() == f"| old |\n\n{result.SCALE_HEADING}\n\nCommit a.\n"
    result.keep(bench="| new |\n")
    assert path.read_text() == f"| new |\n\n{result.SCALE_HEADING}\n\nCommit a.\n"
    result.keep(scale="Commit b.\n")
    assert path.read_text() == f"| new |\n\n{result.SCALE_HEADING}\n\nCommit b.\n"


@pytest.mark.parametrize(("load", "saved"), [(0.5, True), (0.51, False)])
def test_a_table_is_saved_only_if_the_machine_was_quiet(
    load: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, saved: bool
) -> None:
    path = tmp_path / "results.md"
    path.write_text("| old |\n")
    monkeypatch.setattr(result, "KEPT", path)
    monkeypatch.setattr(program, "PARTS", {"one": lambda: [result.cost("a", 1.0, "s", limit=2.0, aim=1.0)]})
    monkeypatch.setattr(plugins, "run", list)
    monkeypatch.setattr(topology, "run", list)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 9.0, 9.0))
    done = CliRunner().invoke(program.main, [])
    assert f"was {load:.2f} before the start" in done.output
    assert ("| a |  |  | 1 s |" in path.read_text(), done.exit_code) == (saved, int(not saved))
