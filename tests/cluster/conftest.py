"""The marker `cluster` for all tests in this folder, and the fixtures `observer` and `client`."""

from pathlib import Path

import pytest

from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
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


@pytest.fixture
def client(cluster: ControlPlane) -> Client:
    """A client with all rights."""
    return Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock())
