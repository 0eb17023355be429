"""Class names are unique, and no variable is named `one` or `found`."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_class_names_are_unique() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for package in ("predicates", "rescheduler", "devcluster", "deploy", "tests"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    modules[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert len(modules) > 300
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the name and the line of each variable and argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def test_variables_are_named_for_what_they_hold() -> None:
    unnamed = [
        f"{path.relative_to(ROOT)}:{line}"
        for package in ("predicates", "rescheduler", "devcluster", "deploy", "tests")
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, line in named(ast.parse(path.read_text(encoding="utf-8")))
        if name in {"one", "found"}
    ]
    assert unnamed == []
