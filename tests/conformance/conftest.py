from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from devcluster import build
from tests.conformance.oracle import Oracle


@pytest.fixture(scope="session")
def oracle(shown: Callable[[], AbstractContextManager[None]]) -> Iterator[Oracle]:
    """The real scheduler's plugins. They are built on first use, which takes minutes."""
    with shown():
        binary = build.oracle()
    with Oracle(binary) as process:
        yield process
