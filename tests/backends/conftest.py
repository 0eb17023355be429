from collections.abc import Iterator

import pytest

from rescheduler.clock import SystemClock
from tests.backends.externalgrpcs import offered
from tests.backends.shelf import Caller, Shelf


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers are on this machine; the environment's way out is none to them."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def call(shelf: Shelf) -> Iterator[Caller]:
    with offered(shelf, SystemClock()) as address:
        caller = Caller(address)
        yield caller
        caller.channel.close()
