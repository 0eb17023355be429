"""The fixture `backend`, a cloudpool that answers every request."""

from collections.abc import Iterator

import pytest

from tests.proxy.backend import Backend, running


@pytest.fixture
def backend() -> Iterator[Backend]:
    with running(Backend()) as started:
        yield started
