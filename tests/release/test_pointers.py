"""Docstrings, comments and pages name files, modules and names that exist."""

import ast
import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("rescheduler", "predicates", "devcluster", "deploy", "tests")
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("devcluster/*.md")])

#: What others define.
OTHERS: Final = frozenset({"msgspec", *dir(builtins)})

#: The files that the examples of CONTRIBUTING.md create.
CREATED: Final = frozenset({"predicates/plugins/node_reserved.py", "rescheduler/providers/example.py"})

#: A file of this repository: with a folder of it in front, or any file of Python.
_PATH: Final = re.compile(
    r"(?<![\w./-])((?:(?:rescheduler|predicates|tests|docs|deploy|devcluster)/)?[\w/-]+\.(?:py|md))\b"
)
#: ``:func:`~rescheduler.planning.last_look.objection```, ``:class:`.Pod```, and `see `removal.judge``.
_ROLE: Final = re.compile(r":(?:func|class|data|meth|mod|attr|const|exc):`~?([\w.]+)`|\bsee `([\w.]+)`")
#: `NAME` in `file.py`.
_IN_FILE: Final = re.compile(r"`([A-Za-z_]\w*)` in `([\w/]+\.py)`")


@cache
def files() -> dict[str, Path]:
    """Return the files of Python and the pages, by path."""
    found = [path for folder in (*SOURCES, "docs") for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    return {str(path.relative_to(ROOT)): path for path in (*found, *ROOT.glob("*.md"), *ROOT.glob("*.py"))}


@cache
def tails() -> set[str]:
    """Return the ends of all paths, from a whole part on."""
    return {"/".join(path.split("/")[start:]) for path in files() for start in range(path.count("/") + 1)}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names that the module *path* defines or imports, with those in its classes, as ``Class.name`` too."""
    return frozenset(_names(ast.parse(path.read_text()).body, ""))


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name, body=inner):
                yield from (prefix + name, name)
                yield from _names(inner, f"{name}.")
                yield from _names(inner, "")
            case ast.FunctionDef(name=name, body=inner) | ast.AsyncFunctionDef(name=name, body=inner):
                yield prefix + name
                attributes = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
                stored = (each for each in attributes if isinstance(each.ctx, ast.Store))
                yield from (prefix + each.attr for each in stored)
            case ast.Assign(targets=targets):
                yield from (prefix + each.id for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (each.asname or each.name for each in names)
            case ast.If(body=inner, orelse=other):
                yield from _names([*inner, *other], prefix)


@cache
def modules() -> dict[str, list[Path]]:
    """Return the modules by the ends of their dotted names."""
    found: dict[str, list[Path]] = {}
    for name, path in files().items():
        if name.endswith(".py"):
            parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
            for start in range(len(parts)):
                found.setdefault(".".join(parts[start:]), []).append(path)
    return found


@cache
def all_names() -> frozenset[str]:
    return frozenset().union(*(names_in(path) for name, path in files().items() if name.endswith(".py")))


def exists(target: str) -> bool:
    """Return whether *target* is a module, a name in a module that it names, or ``name`` or ``Class.name`` anywhere."""
    target = target.strip(".")
    parts = target.split(".")
    if target in modules() or target in all_names() or parts[0] in OTHERS or (ROOT / target).is_file():
        return True
    named = (
        (path, ".".join(parts[cut:]))
        for cut in range(1, len(parts))
        for path in modules().get(".".join(parts[:cut]), ())
    )
    return any(rest in names_in(path) for path, rest in named)


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the comments and docstrings of a module, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.COMMENT or (
            token.type == tokenize.STRING and token.string.startswith(('"""', 'r"""'))
        ):
            yield token.start[0], token.string


def missing(line: int, text: str, here: Path) -> Iterator[str]:
    for match in _PATH.finditer(text):
        if match[1] not in tails() | CREATED:
            yield f"{here.relative_to(ROOT)}:{line}: no file {match[1]}"
    for match in _ROLE.finditer(text) if here.suffix == ".py" else ():
        target = match[1] or match[2]
        if not exists(target):
            yield f"{here.relative_to(ROOT)}:{line}: no {target}"
    for name, file in _IN_FILE.findall(text):
        found = [path for known, path in files().items() if known == file or known.endswith(f"/{file}")]
        if found and not any(name in names_in(path) for path in found):
            yield f"{here.relative_to(ROOT)}:{line}: no {name} in {file}"


@pytest.mark.parametrize("folder", SOURCES)
def test_docstrings_and_comments_name_what_exists(folder: str) -> None:
    paths = sorted(path for path in (ROOT / folder).rglob("*.py") if path != Path(__file__))
    assert [each for path in paths for line, text in texts_of(path) for each in missing(line, text, path)] == []


def test_pages_name_what_exists() -> None:
    lines = [(path, line) for path in PAGES for line in enumerate(path.read_text().splitlines(), 1)]
    assert [each for path, (number, text) in lines for each in missing(number, text, path)] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see `deletion.judge`", True),
        ("the functions of ``machine.py``", True),
        (":func:`.first_fit.place_or_explain`", True),
        ("`POD_ANNOTATIONS` in `predicates/wire.py`", True),
        ("docs/no-such-page.md", True),
        (":func:`rescheduler.planning.last_look.objection`, docs/drain.md, `start` in `transitions.py`", False),
    ],
)
def test_a_pointer_to_nothing_is_found(text: str, found: bool) -> None:
    assert bool(list(missing(1, text, ROOT / "rescheduler/planning/planner.py"))) is found
