"""The rooms of the program: their number, their descriptions in ARCHITECTURE.md, and the imports of pure modules.

import-linter checks the directions between rooms, see `pyproject.toml`.
"""

import ast
import functools
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    path.stem
    for path in (ROOT / "rescheduler").iterdir()
    if (path / "__init__.py").is_file() or (path.suffix == ".py" and not path.stem.startswith("__"))
}
#: Libraries and modules of Python that pure modules may import; all others are forbidden.
ALLOWED = {
    "abc", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "difflib", "dis",
    "enum", "fractions", "functools", "hashlib", "heapq", "html", "itertools", "json", "math", "msgspec", "numpy",
    "operator", "re", "shlex", "statistics", "string", "types", "typing", "urllib.parse", "zlib", "zoneinfo",
}  # fmt: skip
#: `rescheduler.pages` embeds its style sheet and its script, which are files of the package.
ALLOWED_FOR = {"rescheduler.pages": {"base64", "importlib"}}
#: The module whose only impure part is the lock around the creation of decoders.
LOCKED = "decoding"
#: Functions of Python that do I/O, or that run code that imports cannot show.
FORBIDDEN_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}
#: Modules of Python that open connections, in packages that also contain modules that do not.
FORBIDDEN_MODULES = ("http.client", "http.server", "urllib.request")
#: Functions of these that only read the environment.
READS_ENVIRONMENT = {f"urllib.request.{name}" for name in ("getproxies", "getproxies_environment", "proxy_bypass")}


def contract(name: str) -> dict[str, Any]:
    """Return a contract of import-linter."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return next(each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == name)


def files_of(module: str) -> list[Path]:
    path = ROOT.joinpath(*module.split("."))
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


#: The words with which a module's docstring promises that it does no I/O.
CLAIM = re.compile(r"(^|\. )(Pure\b|No I/O( and no clock|, no clock)?\.|Pure: )")


def claiming() -> list[str]:
    """Return the modules that call themselves pure."""
    modules = []
    for package in ("predicates", "rescheduler"):
        for path in sorted((ROOT / package).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            if "Pure" not in source and "No I/O" not in source:  # most modules: parsing all takes a second
                continue
            text = ast.get_docstring(ast.parse(source)) or ""
            if CLAIM.search(" ".join(text.split())):
                modules.append(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    return modules


PURE = sorted({*contract("pure")["source_modules"], *claiming()})


@functools.cache
def imports(path: Path) -> set[str]:
    """Return the full names of the modules, and members of modules, that a file imports."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return imported


def is_allowed(name: str, module: str) -> bool:
    """Return whether a pure *module* may import *name*, which is a module or a member of one."""
    allowed = ALLOWED | ALLOWED_FOR.get(module, set()) | {"predicates", "rescheduler"}
    return any(f"{name}.".startswith(f"{prefix}.") for prefix in allowed)


def floors() -> list[set[str]]:
    """Return the rooms of each floor, from top to bottom."""
    return [{room.strip() for room in layer.split("|")} for layer in contract("floors")["layers"]]


def test_the_program_has_at_most_22_rooms() -> None:
    assert len({"predicates", *ROOMS}) <= 22


def test_every_room_is_on_one_floor() -> None:
    """A room that is on no floor could import anything."""
    rooms = [room for floor in floors() for room in floor]
    assert sorted(rooms) == sorted(ROOMS)


def test_the_page_describes_every_package() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    described = {
        name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`([^`]+)`", line)
    }
    packages = {room for room in ROOMS if (ROOT / "rescheduler" / room).is_dir()}
    assert {room for room in packages if not {room, f"rescheduler/{room}"} & described} == set()


def defined_in(name: str) -> list[Path]:
    """Return the file of a module of the program; nothing for other names."""
    path = ROOT.joinpath(*name.split("."))
    return [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]


def reached(module: str) -> dict[Path, set[str]]:
    """Return the files that *module* consists of or imports, also indirectly, and what they import."""
    files: dict[Path, set[str]] = {}
    pending = files_of(module)
    while pending:
        path = pending.pop()
        if path in files or path.stem == LOCKED:
            continue
        files[path] = imports(path)
        for name in files[path]:
            pending += next(filter(None, map(defined_in, (name, name.rpartition(".")[0]))), [])
    return files


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_import_only_the_listed_libraries(module: str) -> None:
    imported = set().union(*reached(module).values())
    assert {name for name in imported if not is_allowed(name, module)} == set()


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_call_no_function_that_does_io(module: str) -> None:
    names = {
        node.id
        for path in files_of(module)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name)
    }
    assert names & FORBIDDEN_CALLS == set()


def test_the_known_pure_packages_are_in_a_contract() -> None:
    assert {"predicates", "rescheduler.planning", "rescheduler.draining"} <= set(PURE)


def test_connections_are_opened_only_with_the_listed_libraries() -> None:
    """import-linter cannot forbid a module of Python but allow others of the same package."""
    files = [path for package in ("predicates", "rescheduler") for path in (ROOT / package).rglob("*.py")]
    imported = {name: path for path in files for name in imports(path) - READS_ENVIRONMENT}
    assert "urllib.parse.urlsplit" in imported
    assert {name: path for name, path in imported.items() if name.startswith(FORBIDDEN_MODULES)} == {}


def test_only_the_question_and_placement_open_trials() -> None:
    """Who is placed where is asked in one place: every answer is made of `rescheduler/planning/question.py`."""
    files = [path for room in ROOMS - {"simulation"} for path in files_of(f"rescheduler.{room}")]
    opening = [path for path in files if ".trial(" in path.read_text(encoding="utf-8")]
    places = {str(path.relative_to(ROOT / "rescheduler" / "planning")).partition("/")[0] for path in opening}
    assert places == {"placement", "question.py"}
