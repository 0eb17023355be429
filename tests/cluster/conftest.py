"""Marks what is here."""

from pathlib import Path

import pytest

from deploy.local.plane import ControlPlane
from tests.cluster.observer import Observer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a control plane, and says so with its mark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    """Sees what happens on the control plane from the start of the test on."""
    return Observer(cluster)
