"""Class names are unique."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_class_names_are_unique() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for package in ("predicates", "rescheduler", "devcluster", "deploy"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    modules[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert len(modules) > 300
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}
