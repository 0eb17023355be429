"""The tables of README.md are whole, and name tests that there are."""

import fnmatch
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
README = Path(__file__).with_name("README.md")
ROW = re.compile(r"\| ([A-Z]\d+|\d+\.\d+) \| ([^|]+) \| ([^|]+) \|")
NAMED = re.compile(r"`([\w/*]+\.py(?:::\w+(?:\[[^`]+\])?)?)`")
OTHER = "Rightly different: "
#: the tests of the original, package by package: 78
OF_THE_ORIGINAL = {"C": 12, "F": 4, "T": 2, "G": 1, "K": 3, "I": 2, "N": 20, "S": 13, "P": 15, "H": 6}
#: the matrix, and into how many parts its rows are split
MATRIX = {1: 10, 2: 7, 3: 2, 4: 2, 5: 10, 6: 7, 7: 4, 8: 4, 9: 4, 10: 3, 11: 1, 12: 5}

Rows = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """Row: what shows it."""
    lines = [line for line in README.read_text().splitlines() if line.startswith("| ")]
    found = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
    heads = [line for line in lines if line.startswith("| row |")]
    assert len(found) == len(lines) - len(heads), "a line that is no row"
    assert not [row for row, times in Counter(row for row, _, _ in found).items() if times > 1]
    return {row: shown for row, _, shown in found}


@pytest.fixture(scope="module")
def collected(rows: Rows) -> set[str]:
    """The node ids, below tests/, of all tests in the files that are named, and of this folder's."""
    files = {f"tests/{name.partition('::')[0]}" for shown in rows.values() for name in NAMED.findall(shown)}
    files = {name for name in files if "*" not in name}
    files |= {f"tests/acceptance/{path.name}" for path in README.parent.glob("test_*.py")}
    arguments = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    run = subprocess.run([sys.executable, *arguments], cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.removeprefix("tests/") for line in run.stdout.splitlines() if "::" in line}


def test_every_line_has_its_row(rows: Rows) -> None:
    assert sum(OF_THE_ORIGINAL.values()) == 78
    expected = [f"{group}{number}" for group, count in OF_THE_ORIGINAL.items() for number in range(1, count + 1)]
    expected += [f"{row}.{part}" for row, parts in MATRIX.items() for part in range(1, parts + 1)]
    assert list(rows) == expected


def test_every_row_is_shown_or_says_why_not(rows: Rows) -> None:
    for row, shown in rows.items():
        names, _, why = shown.partition(OTHER)
        assert NAMED.findall(names) or why.strip(), row
        left = NAMED.sub("", names).strip().removesuffix(".").strip()
        assert left == "", f"{row}: {left!r} is neither a test nor a reason"


def levels(node_id: str) -> tuple[str, str, str]:
    """A test under the names by which a row may call it: itself, its function, its file."""
    return node_id, node_id.partition("[")[0], node_id.partition("::")[0]


def calls(name: str, node_id: str) -> bool:
    if "*" in name:
        return fnmatch.fnmatchcase(levels(node_id)[2], name)
    return name in levels(node_id)


def test_every_test_that_is_named_is_there(rows: Rows, collected: set[str]) -> None:
    names = {name for shown in rows.values() for name in NAMED.findall(shown)}
    known = {name for node_id in collected for name in levels(node_id)}
    missing = {name for name in names - known if not any(calls(name, one) for one in collected)}
    assert missing == set()


def test_every_test_of_this_folder_is_named(rows: Rows, collected: set[str]) -> None:
    names = {name for shown in rows.values() for name in NAMED.findall(shown)}
    ours = {
        one for one in collected if one.startswith("acceptance/") and not one.startswith("acceptance/test_table.py")
    }
    assert {levels(one)[1] for one in ours if not any(calls(name, one) for name in names)} == set()
