"""The configurations of the pages in docs/ are taken as they stand."""

import re
from pathlib import Path

from rescheduler.backends.base import GroupFlags
from rescheduler.backends.cherryservers import config as cherry
from rescheduler.backends.stackpoint import config as stackpoint
from rescheduler.backends.stackpoint.config import File
from tests.backends.cherry import ENVIRONMENT
from tests.backends.stackpoints import environment

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_cherry_servers(tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text(block("cherryservers.md", "ini"))
    pool1, spot = cherry.settings(file, GroupFlags(("1:10:pool1", "0:5:spot"), "cluster1"), ENVIRONMENT).pools
    assert "{{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}" in pool1.definition.cloudinit
    assert (pool1.definition.spot_market, spot.definition.spot_market) == (False, True)


def test_every_key_of_cherry_servers_is_on_its_page() -> None:
    table = (DOCS / "cherryservers.md").read_text(encoding="utf-8")
    assert [key for key in cherry.READERS if f"`{key}`" not in table] == []


def test_stackpoint(tmp_path: Path) -> None:
    """What the page calls defaults are the defaults."""
    file = tmp_path / "spc.yaml"
    file.write_text(block("stackpoint.md", "yaml"))
    found = stackpoint.settings(file, GroupFlags(), environment("https://api.stackpoint.io")).file
    assert found == File(node_pools_file="pools/nodepools")
