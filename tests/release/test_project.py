"""Owner, registry and site have one place, and everything that is rendered from it names them."""

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release import chart, krew, project
from deploy.release.errors import ReleaseError
from deploy.release.project import Project

ROOT = Path(__file__).parents[2]
OURS = Project("example-org", "registry.example:5000/team", "https://docs.example.org/moves/")
#: Code and tests that render the files, or test that.
TOOLS = ("deploy/release/", "tests/", "devcluster/")
WORD = re.compile(r"\bYOU\b|\bREGISTRY/")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rendered copy of the files that git knows."""
    target = tmp_path_factory.mktemp("rendered")
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        source = ROOT / name
        if source.exists() and not name.startswith(TOOLS):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(source.read_bytes())
    project.render(target, OURS)
    return target


def texts(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        try:
            yield file.relative_to(folder).as_posix(), file.read_bytes().decode()
        except UnicodeDecodeError:
            continue


def test_no_rendered_file_has_a_name_to_fill_in(folder: Path) -> None:
    rendered = dict(texts(folder))
    assert [name for name, text in rendered.items() if WORD.search(text)] == []
    assert len(rendered) > 400


def test_links_images_and_the_site_are_those_of_the_project(folder: Path) -> None:
    def loaded(name: str) -> Any:
        return yaml.safe_load((folder / name).read_text(encoding="utf-8"))

    repository, image = "https://github.com/example-org/spot-rescheduler", "registry.example:5000/team/spot-rescheduler"
    site = loaded("mkdocs.yml")
    assert (site["repo_url"], site["site_url"]) == (repository, "https://docs.example.org/moves/")
    alerts = loaded("deploy/components/alerts/rules.yaml")["spec"]["groups"]
    links = [rule["annotations"]["runbook_url"] for group in alerts for rule in group["rules"] if "alert" in rule]
    assert len(links) > 15
    assert [link for link in links if not link.startswith(f"{repository}/blob/main/docs/alerts.md#")] == []
    assert f"Source = {repository}\n" in (folder / "setup.cfg").read_text(encoding="utf-8")
    assert loaded("deploy/chart/spot-rescheduler/values.yaml")["image"]["repository"] == image
    assert loaded("deploy/chart/spot-rescheduler/Chart.yaml")["home"] == repository
    for name in ("base", "proxy", "provider", "liqo"):
        [entry] = loaded(f"deploy/{name}/kustomization.yaml")["images"]
        assert (entry["name"], entry["newName"]) == ("spot-rescheduler", image)
    manifests = (folder / "rescheduler" / "cli" / "manifests.yaml").read_text(encoding="utf-8")
    assert re.findall(r"image: (\S+):[0-9.]+$", manifests, re.MULTILINE) == [image]
    assert (folder / ".github" / "CODEOWNERS").read_text().endswith("* @example-org/spot-rescheduler\n")


def test_the_packed_chart_names_the_project(folder: Path, tmp_path: Path) -> None:
    path = chart.pack(folder / "deploy" / "chart" / "spot-rescheduler", "1.2.3", 0, tmp_path)
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert [name for name, text in texts(tmp_path / "unpacked") if WORD.search(text)] == []


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """The folder with the unpacked archive of the plugin, and with its manifest."""
    wheel = tmp_path / "spot_rescheduler-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    for _ in range(2):  # the second time, everything exists
        krew.write(tmp_path, wheel, "1.2.3", 0, OURS)
    manifest = yaml.safe_load((tmp_path / krew.MANIFEST).read_text(encoding="utf-8"))
    [platform] = manifest["spec"]["platforms"]
    archive = tmp_path / platform["uri"].rpartition("/")[2]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].startswith("https://github.com/example-org/spot-rescheduler/releases/download/v1.2.3/")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    assert [name for name, text in texts(tmp_path) if WORD.search(text)] == []
    return tmp_path


@pytest.mark.parametrize(
    ("tools", "before"),
    [(("uvx", "pipx"), ["uvx", "--quiet", "--from"]), (("pipx",), ["pipx", "run", "--quiet", "--spec"])],
)
def test_the_plugin_runs_the_wheel_of_its_release(plugin: Path, tools: tuple[str, ...], before: list[str]) -> None:
    for tool in tools:
        program = plugin / tool
        program.write_text(f'#!/bin/sh\necho {tool}; for each in "$@"; do echo "$each"; done\n')
        program.chmod(0o755)
    done = ran(plugin, "plan", "--what-if", "a b")
    digest = hashlib.sha256(b"wheel").hexdigest()
    files = "https://github.com/example-org/spot-rescheduler/releases/download/v1.2.3"
    wheel = f"spot-rescheduler @ {files}/spot_rescheduler-1.2.3-py3-none-any.whl#sha256={digest}"
    assert done.stdout.splitlines() == [*before, wheel, krew.PLUGIN, "plan", "--what-if", "a b"]


def test_the_plugin_names_what_it_needs(plugin: Path) -> None:
    done = ran(plugin)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "kubectl spot-rescheduler: expected uv or pipx on the PATH, with which it runs\n"


def ran(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", str(folder / krew.PLUGIN), *arguments]
    return subprocess.run(command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False)


def test_each_file_of_the_checkout_says_in_a_line_where_the_owner_is_set() -> None:
    names = subprocess.run(["git", "grep", "-Ilw", "YOU"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [name for name in names.split() if not name.startswith(TOOLS)]
    assert len(files) > 8
    for name in files:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert [line for line in lines if "YOU" in line and "deploy/release/project.toml" in line], name


def test_the_file_has_all_values_and_flags_replace_them() -> None:
    assert project.chosen() == Project()
    assert project.chosen().unset == ["OWNER", "REGISTRY"]
    assert project.chosen(owner="a", registry="ghcr.io/a") == Project("a", "ghcr.io/a")
    assert Project("An-Org").address == "https://an-org.github.io/spot-rescheduler/"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"owner": "a b"}, "owner 'a b': expected a name of an account"),
        ({"owner": "-a"}, "owner '-a'"),
        ({"owner": "a|b\n"}, "owner"),
        ({"registry": "https://ghcr.io/a"}, "registry 'https://ghcr.io/a': expected a host with an optional path"),
        ({"registry": "ghcr.io/a/"}, "registry 'ghcr.io/a/'"),
        ({"site": "http://example.org"}, "site 'http://example.org': expected an address such as https://"),
    ],
)
def test_invalid_values_are_rejected(given: dict[str, str], says: str) -> None:
    with pytest.raises(ReleaseError, match=says):
        project.chosen(**given)
