"""``make test`` fails if a test fails that is not listed, and runs those that are listed once more."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import second_try

ROOT = Path(__file__).parents[2]

#: Fails at the first call in a folder.
ONCE = """from pathlib import Path

def test_once():
    seen = Path("seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
ALWAYS = "def test_always():\n    assert False\n"
REASON = "issue 44: the clock of the machine may be slow"


def test_the_list_is_short_and_names_tests() -> None:
    for test in second_try.listed((ROOT / second_try.LIST).read_text()):
        file, _, name = test.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text()


@pytest.mark.parametrize(
    "text",
    [
        "tests/a.py::test_a",
        "tests/a.py::test_a: it is slow at times, on some machines",
        "tests/a.py::test_a: issue 1: slow",
        "".join(f"tests/a.py::test_{number}: {REASON}\n" for number in range(second_try.MOST + 1)),
    ],
    ids=["no reason", "no issue", "a short reason", "too many"],
)
def test_another_list_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        second_try.listed(text)


@pytest.mark.parametrize(
    ("content", "known", "strict", "code", "said"),
    [
        (ONCE, ["test_once"], "1", 0, "running 1 failed tests"),
        (ONCE, [], "1", 1, "1 of 1 failed tests are not in"),
        (ONCE, [], "", 0, "needed a second try, and are not in tests/second_try.txt:\n  tests/test_it.py::test_once"),
        (ALWAYS, ["test_always"], "1", 1, "running 1 failed tests"),
        (ALWAYS, [], "", 1, "running 1 failed tests"),
        (ONCE + ALWAYS, ["test_once"], "1", 1, "1 of 2 failed tests are not in"),
        ("def test_passes():\n    pass\n", [], "1", 0, "1 passed"),
    ],
    ids=["listed", "not listed", "told", "fails again", "fails twice", "one of two is not listed", "passes"],
)
@pytest.mark.parametrize("workers", ["0", "1"])
def test_no_test_gets_a_second_try_in_silence(
    tmp_path: Path, content: str, known: list[str], strict: str, code: int, said: str, workers: str
) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(content)
    (tmp_path / second_try.LIST).write_text("".join(f"tests/test_it.py::{name}: {REASON}\n" for name in known))
    command = [sys.executable, "-m", "pytest", "-p", "second_try", "-p", "no:cacheprovider", "-n", workers]
    ended = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", "/dev/null", "tests"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin", "STRICT": strict},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, said in ended.stdout) == (code, True), ended.stdout + ended.stderr


def test_make_test_uses_it() -> None:
    [command] = [line for line in (ROOT / "Makefile").read_text().splitlines() if "-m pytest -n $(WORKERS)" in line]
    assert "-p tests.second_try" in command
    assert "--last-failed" not in (ROOT / "Makefile").read_text()
