"""No text says to install this program by its name from a package index, where anybody could register the name."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("rescheduler", "predicates", "docs", "deploy", "devcluster", ".github")
SUFFIXES: Final = {".py", ".md", ".yaml", ".yml", ".txt", ".json", ".toml", ".cfg", ".tpl", ".html", ""}
INSTALLERS: Final = (
    r"pip3? (?:\S+ )*?(?:install|download|wheel)\b|pipx +(?:install|run|inject)\b|uvx\b|uv +(?:tool|pip|add)\b"
)
#: The name of the program after an installer in the same line, or with an extra, which only an installer reads.
BY_NAME: Final = re.compile(
    rf"(?:{INSTALLERS})[^\n;&|#]*?[ '\"=](?:spot[-_.]rescheduler|rescheduler|predicates)(?=[\s'\"\[=<>~!`,.;)]|$)"
    r"|\b(?:spot[-_.]rescheduler|rescheduler|predicates)\[(?:grpc|aws|dev|docs)\b",
    re.MULTILINE,
)

TEXTS: Final = {
    "pip install 'spot-rescheduler[grpc]'": True,
    "expected the extra: spot-rescheduler[aws]": True,
    "python -m pip install --upgrade spot-rescheduler": True,
    "pip install spot_rescheduler==0.1.0": True,
    "pip install click predicates": True,
    "pipx run rescheduler plan": True,
    "uvx spot-rescheduler plan": True,
    "uv tool install spot-rescheduler": True,
    "pip install .": False,
    "pip install '.[grpc]'": False,
    "pip install ./spot_rescheduler-0.1.0-py3-none-any.whl": False,
    'exec uvx --quiet --from "$wheel" rescheduler-plan "$@"': False,
    "kubectl krew install --manifest=spot-rescheduler.yaml": False,
    "helm install spot-rescheduler deploy/chart/spot-rescheduler": False,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_installs_by_name_is_found(text: str) -> None:
    assert bool(BY_NAME.search(text)) == TEXTS[text]


def test_no_text_installs_the_program_by_its_name() -> None:
    files = [path for name in FOLDERS for path in (ROOT / name).rglob("*") if path.suffix in SUFFIXES]
    texts = [path for path in (*files, *ROOT.iterdir()) if path.is_file() and path.suffix in SUFFIXES | {".lock"}]
    assert len(texts) > 300
    found = {str(path.relative_to(ROOT)): BY_NAME.findall(path.read_text(errors="replace")) for path in texts}
    assert {name: commands for name, commands in found.items() if commands} == {}
