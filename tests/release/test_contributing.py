"""Tests of CONTRIBUTING.md: the named files exist, and the examples work."""

import ast
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.builders import node, pod
from tests.predicates.asking import load, reasons

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = re.findall(r"^### (.+?)\n(.*?)(?=^###? )", PAGE, re.DOTALL | re.MULTILINE)
STEP = re.compile(r"^\d\. (New file )?`([^`]+)`", re.MULTILINE)
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def test_the_page_has_four_changes() -> None:
    assert len(CHANGES) == 4


@pytest.mark.parametrize(("title", "text"), CHANGES, ids=[title for title, _ in CHANGES])
def test_a_change_needs_at_most_three_files(title: str, text: str) -> None:
    files = STEP.findall(text)
    assert 1 <= len(files) <= 3
    for new, name in files:
        assert new or (ROOT / name).is_file(), name
        assert (ROOT / name).parent.is_dir()
    for code in PYTHON.findall(text):
        ast.parse(f"def change():\n{textwrap.indent(textwrap.dedent(code), '  ')}")


def test_named_paths_exist() -> None:
    new = {name for new, name in STEP.findall(PAGE) if new}
    paths = set(re.findall(r"`((?:predicates|rescheduler|tests|deploy|devcluster)/[\w./-]+)`", PAGE))
    assert len(paths) > 20
    assert {path for path in paths if not (ROOT / path).exists()} <= new


def test_the_example_of_a_plugin_works() -> None:
    scope: dict[str, Any] = {}
    exec(textwrap.dedent(PYTHON.findall(PAGE)[0]), scope)
    table = load(node("a"), node("b", labels={"example.com/reserved": ""}), pod("p"))
    actual = reasons(scope["PLUGIN"], table.pods["default/p"].cls, table)
    assert actual == {"a": "", "b": "node(s) were reserved"}


def test_the_example_of_a_provider_works() -> None:
    [command] = re.findall(r"^ *```bash\n( *sed .*?) > ", PAGE, re.DOTALL | re.MULTILINE)
    source = subprocess.run(["bash", "-c", command], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    scope: dict[str, Any] = {"__name__": "example"}
    exec(source, scope)
    assert scope["load"](None, None).name == "example"
