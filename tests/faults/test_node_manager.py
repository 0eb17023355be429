"""The Liqo node manager is killed before and after each of its writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.plane import ControlPlane
from tests.cluster.virtual import VirtualSite, site
from tests.faults.node_manager import Visit
from tests.faults.trials import KILLS

pytestmark = pytest.mark.cluster


@pytest.fixture
def proxy(cluster: ControlPlane) -> Iterator[FaultProxy]:
    with before_api_server(cluster) as fault_proxy:
        yield fault_proxy


@pytest.fixture
def here(cluster: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[VirtualSite]:
    own = redirected(cluster.kubeconfig, proxy, tmp_path / "kubeconfig")
    with site(cluster, tmp_path, {"rome": 1}, own=own) as scene_site:
        yield scene_site


def test_killed_before_and_after_each_write(here: VirtualSite, proxy: FaultProxy) -> None:
    """Kills around reads are tested by ``python -m tests.faults.node_manager``.

    How often a kind of write is repeated depends on the moment: only the first one occurs in each visit.
    """
    visit = Visit(here, proxy)
    writes = [call for call in visit.calls() if call.writes]
    assert {call.name for call in writes} == {"create resourceslices", "patch nodes", "delete resourceslices"}
    missed = [(call, kind) for call in writes for kind in KILLS if not visit.hit(call, kind)]
    assert [(str(call), kind) for call, kind in missed if call.occurrence == 1] == []
