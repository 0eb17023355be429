"""Tests of the documentation site: its navigation, its links, and the repository's URL."""

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def listed(nav: Any) -> Iterator[str]:
    """Yield the paths in a navigation of mkdocs.yml."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from listed(entry)


def test_each_page_is_in_the_navigation_once() -> None:
    assert sorted(listed(SITE["nav"])) == [page.relative_to(DOCS).as_posix() for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_to_files_of_the_site(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", FENCE.sub("", page.read_text(encoding="utf-8")))
    local = [target for target in targets if not target.startswith("https://")]
    files = [(page.parent / target).resolve() for target in local]
    assert [file for file in files if not file.is_file() or DOCS not in file.parents] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_patches_in_brackets_are_json(page: Path) -> None:
    """The kustomize of kubectl 1.32 and earlier reads a patch that begins with a bracket as JSON, not as YAML."""
    for patch in re.findall(r"^ *patch: '(\[.*)'$", page.read_text(encoding="utf-8"), re.MULTILINE):
        assert isinstance(json.loads(patch), list)


def test_a_broken_link_fails_the_build() -> None:
    assert SITE["strict"]
    checks = SITE["validation"]["links"]
    assert checks == dict.fromkeys(("not_found", "anchors", "absolute_links", "unrecognized_links"), "warn")


def test_the_repository_has_one_url() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    urls = dict(line.split(" = ") for line in setup["metadata"]["project_urls"].split("\n") if line)
    assert urls["Source"] == SITE["repo_url"]
    assert [url for url in urls.values() if not f"{url}/".startswith(f"{SITE['repo_url']}/")] == []
    owner = SITE["repo_url"].removeprefix("https://github.com/").partition("/")[0]
    owners = (ROOT / ".github" / "CODEOWNERS").read_text(encoding="utf-8")
    teams = re.findall(r"^\S+ @(\S+)/\S+$", owners, re.MULTILINE)
    assert set(teams) == {owner}


def test_the_workflow_builds_the_site() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text(encoding="utf-8"))
    assert {"run": "make docs"} in workflow["jobs"]["docs"]["steps"]
    assert re.search(r"^docs: .*\n\t.*mkdocs build --strict", (ROOT / "Makefile").read_text(), re.MULTILINE)
