"""The rooms of the program: their number, their descriptions in ARCHITECTURE.md, and the imports of pure rooms.

import-linter checks the directions between rooms, see `setup.cfg`.
"""

import ast
import configparser
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {
    path.stem
    for path in (ROOT / "rescheduler").iterdir()
    if (path / "__init__.py").is_file() or (path.suffix == ".py" and not path.stem.startswith("__"))
}
PURE = ("predicates", "rescheduler/planning", "rescheduler/draining")
#: Libraries and modules of Python that pure packages may import; all others are forbidden.
ALLOWED = {
    "abc", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "itertools", "json", "math", "msgspec", "numpy", "operator", "re", "shlex",
    "statistics", "string", "types", "typing", "urllib", "zlib", "zoneinfo",
}  # fmt: skip


def floors() -> list[set[str]]:
    """Return the rooms of each floor, from top to bottom."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    layers = setup["importlinter:contract:floors"]["layers"]
    return [{room.strip() for room in line.split("|")} for line in layers.splitlines() if line.strip()]


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


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_import_only_the_listed_libraries(package: str) -> None:
    imported = set()
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert "typing" in imported
    assert imported - ALLOWED - {"predicates", "rescheduler"} == set()
