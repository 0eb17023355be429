"""The packed chart: reproducible bytes, and valid content."""

import os
import tarfile
from pathlib import Path

import pytest
import yaml

from deploy.release import chart, derived
from deploy.release.errors import ReleaseError
from tests.cluster.rendering import CHART

pytestmark = pytest.mark.cluster  # the chart is rendered by a program that is built once

EPOCH = 1_700_000_000


def copied(folder: Path) -> Path:
    """Return a copy of the chart with other times and modes, created in another order."""
    target = folder / CHART.name
    for file in sorted((entry for entry in CHART.rglob("*") if entry.is_file()), reverse=True):
        copy = target / file.relative_to(CHART)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o600)
        os.utime(copy, (1, 1))
    return target


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    first = chart.pack(CHART, "1.2.3", EPOCH, tmp_path)
    second = chart.pack(copied(tmp_path / "copy"), "1.2.3", EPOCH, tmp_path / "out")
    assert first.name == second.name == "spot-rescheduler-1.2.3.tgz"
    assert first.read_bytes() == second.read_bytes()


def test_the_packed_chart_has_all_files_and_the_version(tmp_path: Path) -> None:
    with tarfile.open(chart.pack(CHART, "1.10", EPOCH, tmp_path)) as archive:
        entries = archive.getmembers()
        file = archive.extractfile("spot-rescheduler/Chart.yaml")
        assert file is not None
        stamped = yaml.safe_load(file.read())
    files = {f"{CHART.name}/{path.relative_to(CHART)}" for path in CHART.rglob("*") if path.is_file()}
    assert {entry.name for entry in entries} == files
    assert entries[0].name == "spot-rescheduler/Chart.yaml"
    facts = {(entry.mtime, entry.uid, entry.gid, entry.uname, entry.mode, entry.isreg()) for entry in entries}
    assert facts == {(EPOCH, 0, 0, "", 0o644, True)}
    before = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert stamped == before | {"version": "1.10", "appVersion": "1.10"}


def test_an_invalid_chart_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="there is no Chart"):
        chart.pack(tmp_path, "1", EPOCH, tmp_path)
    with pytest.raises(ReleaseError, match="one line with the key appVersion, got 0"):
        chart.stamped("version: 1\n", "2")


def test_schema_and_presets_are_those_of_the_command_line() -> None:
    text = (CHART / derived.SCHEMA).read_text(encoding="utf-8")
    assert derived.generated(text) == text, "run: python -m deploy.release.derived"
    assert (CHART / derived.PRESET_LABELS).read_text(encoding="utf-8") == derived.preset_labels()
