"""``make`` does not let the virtual environment of one checkout run the code of another."""

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def made(checkout: Path, target: str = ".venv/ready") -> subprocess.CompletedProcess[str]:
    """Run *target*, by default the recipe of the virtual environment, with a Python that does nothing."""
    command = ["make", target, "PYTHON=true"]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def checkouts(tmp_path: Path) -> tuple[Path, Path]:
    """Return two checkouts; the first has a virtual environment in which pip would do nothing."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        for file in ("Makefile", "setup.cfg", "pyproject.toml"):
            (tmp_path / name / file).write_bytes((ROOT / file).read_bytes())
    first = tmp_path / "first"
    info = first / ".venv/lib/python3.11/site-packages/spot_rescheduler-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "direct_url.json").write_text(json.dumps({"url": f"file://{first}", "dir_info": {"editable": True}}))
    (first / ".venv/bin").mkdir()
    python = first / ".venv/bin/python"
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    return first, tmp_path / "second"


def test_a_linked_environment_of_another_checkout_is_refused(checkouts: tuple[Path, Path]) -> None:
    first, second = checkouts
    (second / ".venv").symlink_to(first / ".venv")
    done = made(second)
    assert done.returncode != 0
    assert f".venv belongs to the checkout {first}, which would run the code of {second}" in done.stderr
    assert not (first / ".venv/ready").exists()


@pytest.mark.parametrize("target", [".venv/ready", "lint", "demo"])
def test_a_linked_environment_that_is_ready_is_refused_as_well(checkouts: tuple[Path, Path], target: str) -> None:
    first, second = checkouts
    (first / ".venv/ready").touch()
    (second / ".venv").symlink_to(first / ".venv")
    done = made(second, target)
    assert done.returncode != 0
    assert f".venv belongs to the checkout {first}" in done.stderr
    assert made(first).returncode == 0


def test_its_own_environment_is_used(checkouts: tuple[Path, Path]) -> None:
    first, _ = checkouts
    assert (made(first).returncode, (first / ".venv/ready").exists()) == (0, True)


def test_a_checkout_that_was_moved_keeps_its_environment(checkouts: tuple[Path, Path]) -> None:
    first, _ = checkouts
    moved = first.rename(first.with_name("moved"))
    assert (made(moved).returncode, (moved / ".venv/ready").exists()) == (0, True)


def test_a_checkout_without_an_environment_creates_one(checkouts: tuple[Path, Path]) -> None:
    _, second = checkouts
    done = made(second)
    assert "setting up .venv with true" in done.stderr
