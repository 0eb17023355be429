"""Each public class and alias of a type has a name of its own, so that a name says which one is meant."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

#: Names that several modules define, and why.
ALLOWED: Final[dict[str, str]] = {}


def definitions(path: Path) -> Iterator[str]:
    """Yield the public classes and aliases that a module defines. Type variables belong to one module."""
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield name


def twins(folder: Path) -> dict[str, list[str]]:
    """Return the names that more than one module of this project defines, each with the modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(path for package in ("predicates", "rescheduler") for path in (folder / package).rglob("*.py")):
        for name in definitions(path):
            found[name].append(str(path.relative_to(folder)))
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_classes_or_aliases_have_the_same_name() -> None:
    """Rename one of them if they mean different things; merge them if they mean the same."""
    assert {name: modules for name, modules in twins(ROOT).items() if name not in ALLOWED} == {}
    assert len(ALLOWED) <= 3


def test_a_new_twin_is_named(tmp_path: Path) -> None:
    for package, text in (
        ("predicates", "class Rule: ..."),
        ("rescheduler", "Rule: TypeAlias = int"),
        ("rescheduler/x", ""),
    ):
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text(text)
    assert twins(tmp_path) == {"Rule": ["predicates/a.py", "rescheduler/a.py"]}


def test_what_is_left_out_of_a_list_is_said_in_one_place() -> None:
    """See :func:`rescheduler.planning.forms.and_more`."""
    files = sorted((ROOT / "rescheduler").rglob("*.py"))
    found = [path.name for path in files if re.search(r"\band \{[^}]+\} more", path.read_text())]
    assert found == ["forms.py"]
