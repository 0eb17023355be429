import shutil
from pathlib import Path

import pytest

from tests.backends import pki


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers are on this machine; the environment's way out is none to them."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pki")
    pki.make(folder)
    return folder


@pytest.fixture
def pems(made: Path, tmp_path: Path) -> Path:
    """Certificates, in a copy that a test may change."""
    return Path(shutil.copytree(made, tmp_path / "pki"))
