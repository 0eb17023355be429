"""The steps that setup.cfg cannot describe: which names a wheel installs, and archives that do not depend on the time.

A checkout has two packages, `predicates` and `rescheduler`. Names of installed packages are shared with everybody, and
`predicates` is also the name of another project. So a wheel contains it as `rescheduler._predicates`. The build moves
the package and rewrites the imports: the source has one copy, and the installed program needs no hook to import it.
An editable installation imports the checkout as it is.
"""

import ast
import gzip
import io
import os
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info
from setuptools.command.sdist import sdist

INNER = "predicates"
OUTER = "rescheduler"
MOVED = f"_{INNER}"


class BuildPackages(build_py):
    """Builds the packages, and moves the inner one."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            move(Path(self.build_lib))


class EggInfo(egg_info):
    """Writes the metadata, with the names of packages as they are installed."""

    def run(self) -> None:
        super().run()
        (Path(self.egg_info) / "top_level.txt").write_text(f"{OUTER}\n")


class SourceArchive(sdist):
    """Writes a source archive that is the same for the same files and the same SOURCE_DATE_EPOCH."""

    def make_archive(self, *arguments: object, **options: object) -> str:
        path = super().make_archive(*arguments, **options)
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is not None and path.endswith(".tar.gz"):
            Path(path).write_bytes(normalized(Path(path).read_bytes(), int(epoch)))
        return str(path)


def move(folder: Path) -> None:
    """Move the inner package in *folder* into the outer one, and rewrite all imports of it."""
    target = folder / OUTER / MOVED
    for file in sorted((folder / INNER).rglob("*")):
        if file.is_file():
            moved = target / file.relative_to(folder / INNER)
            moved.parent.mkdir(parents=True, exist_ok=True)
            file.replace(moved)
    for directory in sorted((folder / INNER).rglob("*"), reverse=True):
        directory.rmdir()
    (folder / INNER).rmdir()
    for module in sorted((folder / OUTER).rglob("*.py")):
        text = module.read_text(encoding="utf-8")
        if (changed := rewritten(text)) != text:
            module.write_text(changed, encoding="utf-8")


def rewritten(text: str) -> str:
    """Return the source *text* with imports of the moved package. Raises SyntaxError for `import` without a name.

    `import predicates.x` binds the name `predicates`, so it cannot be rewritten without changing the code after it.
    """
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == INNER:
                    if alias.asname is None:
                        raise SyntaxError(f"line {node.lineno}: expected `from {alias.name} import …`")
                    _replace(lines, alias.lineno, alias.col_offset)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == INNER:
            _replace(lines, node.lineno, node.col_offset + len("from "))
    return "\n".join(lines)


def _replace(lines: list[str], number: int, offset: int) -> None:
    """Replace the name of the package, which is in line *number* at *offset*, counted in bytes."""
    line = lines[number - 1].encode()
    if not line[offset:].startswith(INNER.encode()):
        raise SyntaxError(f"line {number}: expected the name of the package after one space")
    lines[number - 1] = (line[:offset] + f"{OUTER}.{MOVED}".encode() + line[offset + len(INNER) :]).decode()


def normalized(packed: bytes, epoch: int) -> bytes:
    """Return the .tar.gz *packed* with sorted entries, the time *epoch*, and no owners."""
    written = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as source,
        tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for entry in sorted(source.getmembers(), key=lambda member: member.name):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = epoch, 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            entry.pax_headers = {}
            target.addfile(entry, source.extractfile(entry) if entry.isfile() else None)
    return gzip.compress(written.getvalue(), mtime=0)


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildPackages, "egg_info": EggInfo, "sdist": SourceArchive})
