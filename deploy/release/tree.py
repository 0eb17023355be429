"""The source files of a release: those of the last commit, without uncommitted files."""

import configparser
import re
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

_TAG: Final = re.compile(r"^\s*newTag: *(\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Tree:
    """The files of a commit, in a separate folder."""

    folder: Path
    commit: str
    epoch: int  #: time of the commit, in Unix seconds
    version: str


def export(repository: Path, target: Path) -> Tree:
    """Unpack the last commit of *repository* into *target*. Raises ReleaseError."""
    commit = _git(repository, "rev-parse", "HEAD").decode().strip()
    epoch = int(_git(repository, "log", "-1", "--format=%ct", commit))
    with tarfile.open(fileobj=BytesIO(_git(repository, "archive", commit))) as archive:
        archive.extractall(target, filter="data")
    setup = configparser.ConfigParser()
    setup.read(target / "setup.cfg")
    version = setup["metadata"]["version"]
    for file in sorted((target / "deploy").rglob("kustomization.yaml")):
        for tag in _TAG.findall(file.read_text()):
            if tag != version:
                raise ReleaseError(f"{file.relative_to(target)}: newTag {tag}, expected {version} as in setup.cfg")
    return Tree(target, commit, epoch, version)


def _git(repository: Path, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True)
    except FileNotFoundError:
        raise ReleaseError("git is not installed") from None
    except subprocess.CalledProcessError as error:
        message = " ".join(error.stderr.decode(errors="replace").split())
        raise ReleaseError(f"git {arguments[0]}: {message}") from None
    return done.stdout
