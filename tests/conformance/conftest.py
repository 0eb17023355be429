from collections.abc import Iterator

import pytest

from devcluster import build
from tests.conformance.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(pytestconfig: pytest.Config) -> Iterator[Oracle]:
    """The real scheduler's plugins. They are built on first use, which takes minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        binary = build.oracle()
    with Oracle(binary) as process:
        yield process
