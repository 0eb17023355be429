"""Who publishes the program: project.toml has the values, and :func:`render` writes them into all files.

``python -m deploy.release.project`` writes the last commit, rendered, to a folder.
"""

import argparse
import re
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

FILE: Final = Path(__file__).with_name("project.toml")

#: What stands for the values in the files of a checkout.
OWNER: Final = "YOU"
REGISTRY: Final = "REGISTRY"

_IMAGE: Final = "spot-rescheduler"
_PATTERNS: Final = {
    "owner": (re.compile(r"[A-Za-z0-9](-?[A-Za-z0-9]){0,38}"), "a name of an account or organization, such as example"),
    "registry": (
        re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]+([._-][a-z0-9]+)*)*"),
        "a host with an optional path, such as ghcr.io/example",
    ),
    "site": (
        re.compile(r"(https://[A-Za-z0-9.-]+(/[A-Za-z0-9._/-]*)?)?"),
        "an address such as https://example.org/docs/",
    ),
}

#: A line of a file that tells readers of a checkout where the values are set.
_TOLD: Final = re.compile(rf"^.*\b{OWNER}\b.*deploy/release/project\.toml.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Project:
    owner: str = OWNER
    registry: str = REGISTRY
    site: str = ""

    @property
    def unset(self) -> list[str]:
        """Return the names of the values that have not been set."""
        return [
            name for name, value in (("OWNER", self.owner), ("REGISTRY", self.registry)) if value in (OWNER, REGISTRY)
        ]

    @property
    def address(self) -> str:
        """Return the address of the documentation."""
        return self.site or f"https://{self.owner.lower()}.github.io/spot-rescheduler/"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, (_, form) in _PATTERNS.items():
        parser.add_argument(f"--{name}", default="", help=f"{form}; default: the value in project.toml")


def chosen(owner: str = "", registry: str = "", site: str = "") -> Project:
    """Return the values in project.toml, or those that are given instead. Raises ReleaseError."""
    stored = tomllib.loads(FILE.read_text(encoding="utf-8"))
    given = {"owner": owner, "registry": registry, "site": site}
    values = {name: value or stored.get(name, "") for name, value in given.items()}
    for name, (pattern, form) in _PATTERNS.items():
        if not pattern.fullmatch(values[name]):
            raise ReleaseError(f"{name} {values[name]!r}: expected {form}")
    return Project(**values)


def render(folder: Path, project: Project) -> None:
    """Write the values of *project* into all files below *folder*. Links to files stay."""
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink() and file.parent.name != "release":
            try:
                text = file.read_bytes().decode()
            except UnicodeDecodeError:
                continue
            if (changed := rendered(text, file.name, project)) != text:
                file.write_bytes(changed.encode())


def rendered(text: str, name: str, project: Project) -> str:
    """Return the *text* of a file, named *name*, with the values of *project*."""
    text = text.replace(f"https://{OWNER}.github.io/spot-rescheduler/", project.address)
    if project.owner != OWNER:
        text = _TOLD.sub("", text).replace(f"github.com/{OWNER}/", f"github.com/{project.owner}/")
        text = text.replace(f"@{OWNER}/", f"@{project.owner}/")
    if project.registry == REGISTRY:
        return text
    image = f"{project.registry}/{_IMAGE}"
    text = text.replace(f"{REGISTRY}/{_IMAGE}", image)
    if name == "kustomization.yaml":
        text = re.sub(
            rf"^( *)- name: {_IMAGE}\n *newTag:",
            rf"\1- name: {_IMAGE}\n\1  newName: {image}\n\1  newTag:",
            text,
            flags=re.MULTILINE,
        )
    elif name == "manifests.yaml":
        text = re.sub(rf"^( *)image: {_IMAGE}:", rf"\1image: {image}:", text, flags=re.MULTILINE)
    elif name == "values.yaml":
        text = re.sub(rf"^  repository: {_IMAGE} .*$", f"  repository: {image}", text, flags=re.MULTILINE)
    return text


def _complete(project: Project) -> Project:
    """Return *project*. Raises ReleaseError if a value has not been set."""
    if missing := " and ".join(f"{name}=…" for name in project.unset):
        raise ReleaseError(f"expected {missing}, or the values in {FILE.name}")
    return project


def main(arguments: Sequence[str] | None = None) -> None:
    from deploy.release.tree import export  # noqa: PLC0415 - reads the repository

    parser = argparse.ArgumentParser(prog="make rendered", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="Output folder; existing content is deleted.")
    add_arguments(parser)
    values = vars(parser.parse_args(arguments))
    output = values.pop("output")
    try:
        project = _complete(chosen(**values))
        shutil.rmtree(output, ignore_errors=True)
        render(export(FILE.parents[2], output).folder, project)
    except ReleaseError as error:
        sys.exit(f"rendered: {error}")


if __name__ == "__main__":
    main()
