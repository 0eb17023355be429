"""ARCHITECTURE.md names existing files, and names each library's importers correctly."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from predicates.nodes import NodeTable
from predicates.snapshot import Snapshot
from rescheduler.planning.node_info import NodeInfo, NodeInfos, node_infos
from rescheduler.providers.base import NodeTemplate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PRODUCT, TESTS = ("predicates", "rescheduler"), ("tests", "deploy")

#: Libraries for which the page lists modules; for the others it lists packages.
BY_MODULE = {"kubernetes", "tenacity", "freezegun"}


def rows() -> dict[str, list[str]]:
    """Return the names in the column `used in` by library."""
    section = PAGE.partition("## Libraries")[2].partition("\n## ")[0]
    names = re.compile(r"`([^`]+)`")
    cells = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {library: names.findall(used) for libraries, used in cells for library in names.findall(libraries)}


def importers(library: str, folders: tuple[str, ...]) -> set[str]:
    """Return the modules below *folders* that import *library*."""
    files = (path.relative_to(ROOT) for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {".".join(path.with_suffix("").parts) for path in files if library in imported(ROOT / path)}


@functools.cache
def imported(path: Path) -> set[str]:
    return {name.partition(".")[0] for name in _imports(ast.parse(path.read_text(encoding="utf-8")))}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


@pytest.mark.parametrize("library", sorted(BY_MODULE))
def test_the_listed_modules_import_their_library(library: str) -> None:
    used = importers(library, PRODUCT) or importers(library, TESTS)
    assert sorted(rows()[library]) == sorted(used)


@pytest.mark.parametrize("library", sorted(rows().keys() - BY_MODULE))
def test_the_listed_packages_import_their_library(library: str) -> None:
    """Each listed package imports the library, and no other module does."""
    packages = rows()[library]
    used = importers(library, PRODUCT)
    inside = {package: [module for module in used if f"{module}.".startswith(f"{package}.")] for package in packages}
    assert used == {module for modules in inside.values() for module in modules}
    if library not in {"starlette", "uvicorn"}:  # these two share a row
        assert [package for package, modules in inside.items() if not modules] == []


def test_paths_on_the_page_exist() -> None:
    paths = re.findall(r"`((?:predicates|rescheduler|tests|deploy)/[\w./]+)`", PAGE)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_documented_module_defines_node_info() -> None:
    for named in (NodeInfo, NodeInfos, node_infos, NodeTable, Snapshot, NodeTemplate):
        assert named.__name__ in PAGE
    for field in ("node", "pods", "allocatable", "requested", "free"):
        assert field in {*NodeInfo.__slots__, *vars(NodeInfo)}
