"""Each imported package is declared in setup.cfg, and each declared package is imported."""

import ast
import configparser
import functools
import re
import sys
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
OURS = {"predicates", "rescheduler", "devcluster", "deploy", "tests", "setup"}
PROGRAM = ("predicates", "rescheduler")
REST = ("devcluster", "deploy", "tests")

#: Packages that are used without an import in Python code.
NOT_IMPORTED = {
    "tzdata": "zoneinfo reads its files",
    "flask": "the server of moto needs it",
    "flask-cors": "the server of moto needs it",
    "grpcio-tools": "make proto runs it",
    "import-linter": "make lint runs it",
    "mypy": "make lint runs it",
    "pre-commit": "a hook of git",
    "pytest-cov": "make coverage uses its option --cov",
    "pytest-xdist": "make test uses its option -n",
    "ruff": "make lint runs it",
    "setuptools": "setup.py builds with it",
    "types-protobuf": "types for mypy",
    "types-pyyaml": "types for mypy",
    "uv": "make lock runs it",
    "vulture": "make lint runs it",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*lists: str) -> set[str]:
    """Return the packages in these lists of setup.cfg: ``install_requires`` or an extra."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    texts = [setup["options"].get(name) or setup["options.extras_require"][name] for name in lists]
    lines = [line for text in texts for line in text.splitlines() if line and not line.startswith("#")]
    return {normal(Requirement(line).name) for line in lines}


def imported(folders: Iterable[str]) -> dict[str, set[str]]:
    """Return the distributions that provide each module that the files in *folders* import."""
    provided = packages_distributions()
    foreign = set[str]().union(*map(modules_in, folders)) - OURS - sys.stdlib_module_names
    return {module: {normal(name) for name in provided.get(module, ())} for module in foreign}


@functools.cache
def modules_in(folder: str) -> frozenset[str]:
    paths = (ROOT / folder).rglob("*.py")
    return frozenset(module for path in paths for module in modules(ast.parse(path.read_text(encoding="utf-8"))))


def modules(tree: ast.Module) -> Iterable[str]:
    """Yield the first part of the name of each module that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@pytest.mark.parametrize(
    ("folders", "lists"),
    [(PROGRAM, ("install_requires", "grpc", "aws")), (PROGRAM + REST, ("install_requires", "grpc", "dev"))],
    ids=["the program", "the project"],
)
def test_each_imported_package_is_declared(folders: tuple[str, ...], lists: tuple[str, ...]) -> None:
    known = declared(*lists)
    undeclared = {module for module, names in imported(folders).items() if known.isdisjoint(names)}
    assert undeclared == set()


@pytest.mark.parametrize(
    ("folders", "lists"),
    [(PROGRAM, ("install_requires", "grpc", "aws")), (PROGRAM + REST, ("dev",))],
    ids=["the program", "the project"],
)
def test_each_declared_package_is_imported(folders: tuple[str, ...], lists: tuple[str, ...]) -> None:
    names = set[str]().union(*imported(folders).values())
    assert declared(*lists) - names - NOT_IMPORTED.keys() == set()
