"""The file with the results has two parts, and each program replaces its own."""

from pathlib import Path

import pytest

from tests.bench import result


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
