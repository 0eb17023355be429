"""Pinned requirements, and their use by the image and the workflow."""

import configparser
import re
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from deploy.release import sbom

ROOT = Path(__file__).parents[2]
LOCKS = {"requirements.lock": "requirements", "deploy/release/tools.lock": "tools"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yaml").read_text())
STEPS = WORKFLOW["jobs"]["release"]["steps"]


def required(name: str) -> list[Requirement]:
    """Return the requirements of setup.cfg or of the list of tools."""
    if name == "tools":
        lines = (ROOT / "deploy/release/tools.in").read_text().splitlines()
        return [Requirement(line) for line in lines if line and not line.startswith("#")]
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    text = setup["options"]["install_requires"] + setup["options.extras_require"]["grpc"]
    return [Requirement(line) for line in text.splitlines() if line]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_requirement_is_pinned_within_its_bounds(lock: str) -> None:
    pinned = sbom.pins((ROOT / lock).read_text())
    for requirement in required(LOCKS[lock]):
        assert all(map(requirement.specifier.contains, pinned[requirement.name.lower()])), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_the_locks_contain_no_registry(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host|@ file:", text)


def test_the_image_installs_pinned_packages_on_a_base_given_as_an_argument() -> None:
    assert re.search(r"^ARG BASE=\S+$", DOCKERFILE, re.MULTILINE)
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases == ["${BASE}", "${BASE}"]
    parts = re.split(r"&&|\n", DOCKERFILE.replace("\\\n", " "))
    commands = [part for part in parts if re.search(r"\bpip (install|wheel) ", part)]
    assert len(commands) == 4
    assert all("--require-hashes" in command or "--no-index" in command for command in commands)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{lock}" for lock in LOCKS} <= set(ignored)


def test_the_workflow_resolves_the_base_image_and_uses_it() -> None:
    scripts = "\n".join(step.get("run", "") for step in STEPS)
    assert "imagetools inspect" in scripts
    assert '--build-arg BASE="$RESOLVED"' in scripts
    resolved = next(step["env"]["RESOLVED"] for step in STEPS if "RESOLVED" in step.get("env", {}))
    assert resolved == "${{ steps.base.outputs.image }}"
    assert "make release" in scripts


def test_the_workflow_uses_only_github_actions_and_no_expressions_in_scripts() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v[0-9]+", action) for action in used)
    assert not [step for step in STEPS if "${{" in step.get("run", "")]
