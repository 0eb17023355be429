"""Tests of text for people: line breaks, colors, encodings, short names of nodes."""

import io
import subprocess
import sys

import pytest

from rescheduler.cli.blockers import NodeNames
from rescheduler.cli.console import page_width, rendered, show, wrapped
from rescheduler.pages.tree import BAD, Line, styled

LONG_WORD = "n" * 60


@pytest.mark.parametrize(
    ("line", "width", "pieces"),
    [
        (Line(""), 40, [""]),
        (Line("short"), 40, ["short"]),
        (Line("two  columns", 1), 40, ["  two  columns"]),
        (Line("wraps at blanks"), 12, ["wraps at", "  blanks"]),
        (Line("wraps at blanks", 1), 12, ["  wraps at", "    blanks"]),
        (Line("requests 12.3 GiB"), 14, ["requests", "  12.3 GiB"]),
        (Line("a-name-with-dashes stays whole"), 26, ["a-name-with-dashes stays", "  whole"]),
        (Line(f"node {LONG_WORD}"), 40, ["node " + LONG_WORD[:35], "  " + LONG_WORD[35:]]),
        (Line(f"Pod {'a' * 20}/{'b' * 24}: x", 1), 40, [f"  Pod {'a' * 20}/", f"    {'b' * 24}: x"]),
        (Line(f"{'a' * 20}/{'b' * 5}/{'c' * 24} x"), 40, [f"{'a' * 20}/{'b' * 5}/", f"  {'c' * 24} x"]),
        (Line(f"{'a' * 24}={'b' * 20}"), 40, [f"{'a' * 24}=", f"  {'b' * 20}"]),
        (Line(f"Pod in/one-word-that-fits {'b' * 20}"), 40, ["Pod in/one-word-that-fits", f"  {'b' * 20}"]),
        (Line("escape \x1b[31m and line\nbreak"), 40, ["escape ?[31m and line?break"]),
    ],
)
def test_lines_are_wrapped(line: Line, width: int, pieces: list[str]) -> None:
    assert wrapped(line, width) == pieces


@pytest.mark.parametrize(("columns", "width"), [("120", 120), ("20", 40), ("0", 80), ("wide", 80), (None, 80)])
def test_the_page_width_in_a_pipe_depends_on_columns(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, width: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "__stdout__", io.StringIO())
    assert page_width() == width


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "colored"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_colors_depend_on_the_terminal_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], colored: bool
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    raw = io.BytesIO()
    terminal = Terminal(raw, encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", terminal)
    lines = [styled("a node", BAD)]
    show(lines)
    assert raw.getvalue().decode() == rendered(lines, 80, colors=colored) + "\n"
    assert (rendered(lines, 80, colors=colored) == "a node") is not colored


def test_arrows_are_ascii_if_the_encoding_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    output = io.TextIOWrapper(raw, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    show([Line("pod → node")])
    assert raw.getvalue() == b"pod -> node\n"


@pytest.mark.parametrize(
    ("names", "suffix"),
    [
        (["ip-1.eu-west-1.compute.internal", "ip-2.eu-west-1.compute.internal"], ".eu-west-1.compute.internal"),
        (["ip-1.eu-west-1.compute.internal", "ip-1.eu-west-2.compute.internal"], ".compute.internal"),
        (["a.internal", "b.internal"], ".internal"),
        (["a.b.internal", "b.internal"], ".internal"),
        (["internal.internal", "b.internal"], ".internal"),
        (["a.local", "b.local"], ""),
        (["ip-1.eu-west-1.compute.internal", "node"], ""),
        (["ip-1.eu-west-1.compute.internal"], ""),
        (["node-1", "node-2"], ""),
        ([], ""),
    ],
)
def test_the_common_suffix_of_node_names_is_found(names: list[str], suffix: str) -> None:
    shortened = NodeNames.of(names)
    assert shortened == NodeNames(suffix)
    assert [shortened.short(name) + suffix for name in names] == names
    assert bool(shortened.note) is bool(suffix)


def test_characters_that_the_encoding_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    show([Line("280 €/month for é → node")])
    assert raw.getvalue() == b"280 ?/month for \xe9 -> node\n"


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [
        (">/dev/full", 1, "rescheduler: cannot write the output: No space left on device\n"),
        (">&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_an_error_of_one_line(redirection: str, code: int, message: str) -> None:
    command = f"{sys.executable} -m rescheduler version {redirection}"
    done = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (code, message)
