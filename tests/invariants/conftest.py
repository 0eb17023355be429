"""What the tests of the observer share."""

import pytest

from deploy.local.plane import ControlPlane
from tests.cluster.observer import Observer


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    """Sees what happens on the control plane from the start of the test on."""
    return Observer(cluster)
