"""Prometheus's own tools."""

import pytest

from deploy.local.debian import Prometheus, prometheus_binaries
from deploy.local.errors import SetupError


@pytest.fixture(scope="session")
def prometheus() -> Prometheus:
    try:
        return prometheus_binaries()
    except SetupError as error:
        pytest.skip(f"no Prometheus: {error}")
