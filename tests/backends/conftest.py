from collections.abc import Iterator

import pytest

from rescheduler.clock import SystemClock
from tests.backends.externalgrpcs import offered
from tests.backends.shelf import Caller, Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def call(shelf: Shelf) -> Iterator[Caller]:
    with offered(shelf, SystemClock()) as address:
        caller = Caller(address)
        yield caller
        caller.channel.close()
