"""Tests of the breaks of safeguards: the table is up to date, and a break that no test notices is reported."""

from pathlib import Path

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant, is_noticed


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.safeguard)
def test_each_break_stands_in_the_code_once(mutant: Mutant) -> None:
    assert mutant.uses(ROOT) == 1
    assert all((ROOT / each).is_file() for each in mutant.tests)


def test_no_safeguard_is_listed_twice() -> None:
    assert len({mutant.safeguard for mutant in MUTANTS}) == len(MUTANTS) >= 20


@pytest.mark.parametrize(("after", "noticed"), [("LIMIT = 2", True), ("LIMIT = 1 + 0", False)])
def test_a_break_is_noticed_if_a_test_fails(after: str, noticed: bool, tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("LIMIT = 1\n")
    (tmp_path / "test_code.py").write_text("def test_limit():\n    assert 'LIMIT = 1' in open('code.py').read()\n")
    mutant = Mutant("a limit", "code.py", "LIMIT = 1", after, ("test_code.py",))
    assert is_noticed(mutant, tmp_path) is noticed
    assert (tmp_path / "code.py").read_text() == "LIMIT = 1\n"


def test_tests_that_do_not_run_notice_nothing(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("LIMIT = 1\n")
    with pytest.raises(RuntimeError, match="a limit: pytest ended with status 4"):
        is_noticed(Mutant("a limit", "code.py", "1", "2", ("test_missing.py",)), tmp_path)
