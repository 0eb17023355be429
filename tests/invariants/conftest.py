"""The fixtures of the watchdog's tests."""

import pytest

from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    """An observer of the control plane from the start of the test."""
    return Observer(cluster)
