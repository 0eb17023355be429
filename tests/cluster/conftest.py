"""The marker `cluster` for all tests in this folder, the backends of the bad days, and the fixtures `observer` and
`client`.

The bad days run without a cloud provider, those of :data:`_TELLING` also with NodeClaims. With BACKEND=karpenter, all
of them run with NodeClaims: `make bad-days`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from tests.cluster.daemon import Daemon
from tests.cluster.node_claims import ClaimedMachines, claiming
from tests.cluster.observer import Observer

#: Bad days that also run with NodeClaims each time.
_TELLING: Final = frozenset(
    {
        "test_rejected_replacements_cost_one_pod_per_namespace",
        "test_two_of_three_nodes_are_kept",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests in this folder as tests that need a control plane."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the backend of a bad day that creates no machines by itself."""
    is_bad_day = metafunc.module.__name__.rpartition(".")[2].startswith("test_bad_days_")
    creates_machines = hasattr(metafunc.module, "created")
    if not is_bad_day or "observer" not in metafunc.fixturenames or creates_machines:
        return
    if "BACKEND" in os.environ:
        metafunc.parametrize("observer", [os.environ["BACKEND"]], indirect=True)
    elif metafunc.definition.name in _TELLING:
        metafunc.parametrize("observer", ["none", "karpenter"], indirect=True)


@pytest.fixture
def observer(
    request: pytest.FixtureRequest, cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Observer]:
    """An observer of the control plane from the start of the test. Its nodes are those of the backend of the test."""
    backend = getattr(request, "param", "none")
    if backend == "none":
        yield Observer(cluster)
        return
    assert backend == "karpenter", f"BACKEND={backend}: expected none or karpenter"
    monkeypatch.setattr(Daemon, "backend", ClaimedMachines.flags)
    with claiming(cluster) as observer:
        yield observer


@pytest.fixture
def client(cluster: ControlPlane) -> Client:
    """A client with all rights."""
    return Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock())
