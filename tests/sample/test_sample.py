"""The committed sample is up to date, and the first line of each page states the result."""

import gzip
import os
import re
import subprocess
import sys
from typing import Final

import pytest

from tests.sample import files

_ROOT: Final = files.DUMP.parents[1]
_KIB: Final = 1024

#: The flag that reads the sample from the folder of the checkout.
SNAPSHOT: Final = f"--snapshot={files.DUMP.relative_to(_ROOT)}"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return files.pages()


def test_the_committed_dump_is_the_generated_one() -> None:
    assert gzip.decompress(files.DUMP.read_bytes()) == files.dump()


def test_the_dump_is_reproducible_and_small() -> None:
    assert files.packed() == files.packed()
    assert files.DUMP.read_bytes()[4:8] == bytes(4)  # the time of a gzip file
    assert files.DUMP.stat().st_size < 200 * _KIB


@pytest.mark.parametrize("name", sorted(path.name for path in files.PAGES.iterdir()))
def test_each_page_equals_the_committed_page(pages: dict[str, str], name: str) -> None:
    """If a change of the pages is intended, ``python -m tests.sample`` writes them again."""
    assert pages[name] == (files.PAGES / name).read_text(encoding="utf-8")


def test_every_page_is_committed(pages: dict[str, str]) -> None:
    assert sorted(pages) == sorted(path.name for path in files.PAGES.iterdir())


def test_the_first_line_summarizes_the_plan(pages: dict[str, str]) -> None:
    first, _, step = " ".join(pages["plan-80.txt"].partition("\n\n")[0].split()).partition(" First: ")
    assert re.fullmatch(r"rescheduler plan --what-if '[^']+' frees \d+ more, [\d,]+ \$/month(; .*)?", step)
    money = r"saves [\d,]+ \$/month: nodes [\d,]+, their share of spot [\d,]+"
    assert re.fullmatch(rf"\d+ of 30 on-demand nodes drainable; {money}; [a-z]+/[a-z-]+ blocks \d\.", first)


def printed(*arguments: str, columns: str | None = None) -> str:
    """Return the output of the program into a pipe."""
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    environment = kept | ({"COLUMNS": columns} if columns else {}) | {"PYTHONPATH": str(_ROOT)}
    snapshot = [] if "--snapshot" in arguments else [SNAPSHOT]
    command = [sys.executable, "-m", "rescheduler", *arguments, *snapshot]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120, env=environment, cwd=_ROOT)
    return done.stdout.decode()


@pytest.mark.parametrize("command", [("plan",), ("plan", "-o", "wide"), ("explain",)], ids=" ".join)
@pytest.mark.parametrize("columns", [None, "80", "120", "200"])
def test_a_pipe_gets_lines_that_fit(command: tuple[str, ...], columns: str | None) -> None:
    text = printed(*command, columns=columns)
    width = int(columns or 80)
    assert [line for line in text.splitlines() if len(line) > width] == []
    assert max(map(len, text.splitlines())) > min(width, 120) - 20  # the width is used
    assert "…" not in text
    assert "\x1b" not in text


def test_the_first_line_summarizes_the_plan_without_prices() -> None:
    first = printed("plan", columns="120").partition("\n")[0]
    response = r"\d+ of 30 on-demand nodes drainable \(\d+ vCPU, \d+ GiB\); [a-z]+/[a-z-]+ blocks \d+\."
    assert re.fullmatch(response, first)


def test_the_readme_shows_what_the_program_prints() -> None:
    readme = (_ROOT / "README.md").read_text(encoding="utf-8")
    shown = readme.partition("--currency '$'\n")[2].partition("\n…\n")[0]
    assert shown
    command = ("--snapshot", "docs/sample.json.gz", "--prices", "docs/sample-prices.csv", "--currency", "$")
    page = printed("plan", *command, "--levers-timeout=100s")  # the default would be too short on a busy machine
    assert page.replace(" --levers-timeout=100s", "").startswith(shown + "\n")
