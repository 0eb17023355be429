"""The wheel installs one package, and a second build of wheel and sdist is identical."""

import ast
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Final

import pytest

from deploy.release.installed import SAMPLE
from setup import normalized, rewritten

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("LICENSE", "NOTICE", "README.md", "pyproject.toml", "setup.cfg", "setup.py")
EPOCH: Final = "1700000000"


def built(folder: Path) -> Path:
    """Build the sdist and the wheel of the checkout in *folder*, and return the folder with both."""
    source, target = folder / "source", folder / "dist"
    target.mkdir(parents=True)
    for package in ("predicates", "rescheduler"):
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SOURCES:
        shutil.copy(ROOT / name, source / name)
    script = "import sys, setuptools.build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH}
    command = [sys.executable, "-c", script, str(target)]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    [path] = dist.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.slow
def test_a_second_build_is_identical(dist: Path, tmp_path: Path) -> None:
    first = {file.name: file.read_bytes() for file in dist.iterdir()}
    second = {file.name: file.read_bytes() for file in built(tmp_path / "elsewhere").iterdir()}
    assert len(first) == 2
    assert first == second


def test_the_wheel_installs_one_package(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rescheduler"}
    [names] = [name for name in wheel.namelist() if name.endswith("top_level.txt")]
    assert wheel.read(names) == b"rescheduler\n"


def test_the_wheel_contains_each_file_once(wheel: zipfile.ZipFile) -> None:
    packages = [name for name in wheel.namelist() if name.startswith("rescheduler/")]
    moved = {name for name in packages if name.startswith("rescheduler/_predicates/")}
    sources = {f"rescheduler/_{file.relative_to(ROOT)}" for file in (ROOT / "predicates").rglob("*.py")}
    assert moved == {*sources, "rescheduler/_predicates/py.typed"}
    assert len(set(packages)) == len(packages)


def imported(text: bytes) -> set[str]:
    nodes = list(ast.walk(ast.parse(text)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_no_module_of_the_wheel_imports_the_name_of_the_other_project(wheel: zipfile.ZipFile) -> None:
    modules = {name: imported(wheel.read(name)) for name in wheel.namelist() if name.endswith(".py")}
    assert not [name for name, names in modules.items() if any(part.split(".")[0] == "predicates" for part in names)]
    assert any("rescheduler._predicates.snapshot" in names for names in modules.values())


@pytest.mark.slow
def test_the_installed_program_plans_beside_a_package_of_that_name(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path / "installed")
    (tmp_path / "other" / "predicates").mkdir(parents=True)
    (tmp_path / "other" / "predicates" / "__init__.py").write_text("raise SystemExit('another project')")
    path = os.pathsep.join(map(str, (tmp_path / "installed", tmp_path / "other")))
    command = [sys.executable, "-P", "-m", "rescheduler", "plan", f"--snapshot={SAMPLE}"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("Error")) == (0, 0), done.stderr


def test_the_sdist_has_the_layout_of_a_checkout(dist: Path) -> None:
    [path] = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    tops = {member.name.split("/")[1] for member in members if "/" in member.name}
    assert {"predicates", "rescheduler", "setup.py", "setup.cfg", "pyproject.toml"} <= tops
    assert {(member.uid, member.gid, member.uname, member.mtime) for member in members} == {(0, 0, "", int(EPOCH))}
    assert normalized(path.read_bytes(), int(EPOCH)) == path.read_bytes()


IMPORTS: Final = {
    "from predicates import filters": "from rescheduler._predicates import filters",
    "from predicates.a.b import (\n    c,\n)": "from rescheduler._predicates.a.b import (\n    c,\n)",
    "import predicates.a as b": "import rescheduler._predicates.a as b",
    "import os, predicates.a as b": "import os, rescheduler._predicates.a as b",
    "def é(): from predicates import a": "def é(): from rescheduler._predicates import a",
    "if x:\n    from predicates import a": "if x:\n    from rescheduler._predicates import a",
    "from .predicates import a": "from .predicates import a",
    "from predicates_of import a": "from predicates_of import a",
    "from a import predicates": "from a import predicates",
    "'''\nfrom predicates import a\n'''": "'''\nfrom predicates import a\n'''",
    "predicates = 1  # import predicates": "predicates = 1  # import predicates",
}


@pytest.mark.parametrize("source", IMPORTS)
def test_only_imports_of_the_package_are_rewritten(source: str) -> None:
    assert rewritten(source) == IMPORTS[source]


@pytest.mark.parametrize("source", ["import predicates", "import predicates.a", "from   predicates import a"])
def test_imports_that_cannot_be_rewritten_end_the_build(source: str) -> None:
    with pytest.raises(SyntaxError, match="line 1: expected"):
        rewritten(source)
