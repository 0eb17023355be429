"""The tables of README.md are complete and name existing tests."""

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
OTHER = "Deliberate difference: "
#: Number of tests in each package of the original; 78 in total.
OF_THE_ORIGINAL = {"C": 12, "F": 4, "T": 2, "G": 1, "K": 3, "I": 2, "N": 20, "S": 13, "P": 15, "H": 6}
#: Number of parts of each row of the acceptance matrix.
MATRIX = {1: 10, 2: 7, 3: 2, 4: 2, 5: 10, 6: 7, 7: 4, 8: 4, 9: 4, 10: 3, 11: 1, 12: 5}

Rows = dict[str, str]


@pytest.fixture(scope="module")
def rows() -> Rows:
    """The third column of each row."""
    lines = [line for line in README.read_text().splitlines() if line.startswith("| ")]
    matches = [match.groups() for line in lines if (match := ROW.fullmatch(line))]
    heads = [line for line in lines if line.startswith("| row |")]
    assert len(matches) == len(lines) - len(heads), "a line is not a valid row"
    assert not [row for row, times in Counter(row for row, _, _ in matches).items() if times > 1]
    return {row: shown for row, _, shown in matches}


@pytest.fixture(scope="module")
def collected(rows: Rows) -> set[str]:
    """The node ids, relative to tests/, of all tests in the named files and in this folder."""
    files = {f"tests/{name.partition('::')[0]}" for shown in rows.values() for name in NAMED.findall(shown)}
    files = {name for name in files if "*" not in name}
    files |= {f"tests/acceptance/{path.name}" for path in README.parent.glob("test_*.py")}
    arguments = ["-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *sorted(files)]
    run = subprocess.run([sys.executable, *arguments], cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return {line.removeprefix("tests/") for line in run.stdout.splitlines() if "::" in line}


def test_all_rows_exist(rows: Rows) -> None:
    assert sum(OF_THE_ORIGINAL.values()) == 78
    expected = [f"{group}{number}" for group, count in OF_THE_ORIGINAL.items() for number in range(1, count + 1)]
    expected += [f"{row}.{part}" for row, parts in MATRIX.items() for part in range(1, parts + 1)]
    assert list(rows) == expected


def test_every_row_has_a_test_or_a_reason(rows: Rows) -> None:
    for row, shown in rows.items():
        names, _, why = shown.partition(OTHER)
        assert NAMED.findall(names) or why.strip(), row
        remainder = NAMED.sub("", names).strip().removesuffix(".").strip()
        assert remainder == "", f"{row}: {remainder!r} is neither a test nor a reason"


def levels(node_id: str) -> tuple[str, str, str]:
    """Return the names by which a row may refer to a test: the node id, the function, the file."""
    return node_id, node_id.partition("[")[0], node_id.partition("::")[0]


def calls(name: str, node_id: str) -> bool:
    if "*" in name:
        return fnmatch.fnmatchcase(levels(node_id)[2], name)
    return name in levels(node_id)


def test_every_named_test_exists(rows: Rows, collected: set[str]) -> None:
    names = {name for shown in rows.values() for name in NAMED.findall(shown)}
    known = {name for node_id in collected for name in levels(node_id)}
    missing = {name for name in names - known if not any(calls(name, node_id) for node_id in collected)}
    assert missing == set()


def test_every_test_of_this_folder_is_named(rows: Rows, collected: set[str]) -> None:
    names = {name for shown in rows.values() for name in NAMED.findall(shown)}
    ours = {
        node_id
        for node_id in collected
        if node_id.startswith("acceptance/") and not node_id.startswith("acceptance/test_table.py")
    }
    assert {levels(node_id)[1] for node_id in ours if not any(calls(name, node_id) for name in names)} == set()
