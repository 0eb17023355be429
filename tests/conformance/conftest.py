from collections.abc import Iterator

import pytest

from tests.conformance.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The real scheduler's plugins, built once and cached."""
    with Oracle() as process:
        yield process
