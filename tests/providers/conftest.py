from collections.abc import Iterator

import pytest

from rescheduler.clock import SystemClock
from tests.providers.externalgrpcs import offered
from tests.providers.shelf import Caller, Shelf


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def call(shelf: Shelf) -> Iterator[Caller]:
    with offered(shelf, SystemClock()) as address:
        caller = Caller(address)
        yield caller
        caller.channel.close()
