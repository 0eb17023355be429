"""The marker `cluster` for all tests in this folder, and the fixture `observer`."""

from pathlib import Path

import pytest

from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this folder as tests that need a control plane."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    """An observer of the control plane from the start of the test."""
    return Observer(cluster)
