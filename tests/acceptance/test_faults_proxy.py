"""Each write of the proxy fails in all known ways: the removal is finished, or it is rolled back."""

from collections.abc import Iterator
from typing import Final

import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.acceptance import proxies
from tests.acceptance.edge import DRY_RUN
from tests.acceptance.faults import CLOSED, SILENT, Fault
from tests.acceptance.proxies import Fleet, Proxy
from tests.acceptance.test_faults_daemon import BUDGET, GATEWAY

pytestmark = pytest.mark.cluster

OK: Final = 200

#: The fault during the removal of the node {}, and the status; unless OK, the node is kept and a retry succeeds.
FAULTS: Final[dict[str, tuple[Fault, int]]] = {
    "the taint: 409": (Fault("draining {}", 409), OK),
    "the taint: 409 each time": (Fault("draining {}", 409, times=5), 503),
    "the taint: closed, applied": (Fault("draining {}", CLOSED, acted=True), OK),
    "the taint: silent": (Fault("draining {}", SILENT), OK),
    "the debts: 409 each time": (Fault("owing {}", 409, times=5), 503),
    "a dry run: 429 of a budget": (Fault(DRY_RUN, 429, body=BUDGET), 500),
    "an eviction: 403": (Fault("evict", 403), 500),
    "an eviction: 404, the pod exists": (Fault("evict", 404), OK),
    "an eviction: 429 of a budget": (Fault("evict", 429, body=BUDGET), OK),
    "an eviction: 500": (Fault("evict", 500), OK),
    "the intent to remove: 500, applied": (Fault("removing {}", 500, acted=True), OK),
    "terminate: 204": (Fault("terminate", 204, acted=True), OK),
    "terminate: 400": (Fault("terminate", 400), 502),
    "terminate: 404, the machine is listed": (Fault("terminate", 404), 502),
    "terminate: 502": (Fault("terminate", 502), OK),
    "terminate: 502, applied": (Fault("terminate", 502, acted=True), OK),
    "terminate: 504 of a gateway, applied": (Fault("terminate", 504, acted=True, body=GATEWAY), OK),
    "terminate: silent": (Fault("terminate", SILENT), OK),
    "terminate: silent, applied": (Fault("terminate", SILENT, acted=True), OK),
    "terminate: closed, applied": (Fault("terminate", CLOSED, acted=True), OK),
    "delete: 404, the Node exists": (Fault("delete {}", 404), OK),
    "delete: 500": (Fault("delete {}", 500), OK),
    "delete: closed, applied": (Fault("delete {}", CLOSED, acted=True), OK),
}


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with proxies.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(FAULTS)) as prepared:
        yield prepared
    cleaning.empty(control_plane)


@pytest.fixture(scope="module")
def proxy(fleet: Fleet) -> Iterator[Proxy]:
    """A single proxy for all cases, because none of them may block it."""
    with Proxy(fleet.site) as prepared:
        yield prepared


@pytest.mark.parametrize("case", FAULTS)
def test_a_failed_write_fails_the_request(case: str, fleet: Fleet, proxy: Proxy) -> None:
    fault, status = FAULTS[case]
    node = fleet.take()
    body = {"machineId": fleet.site.machine(node), "decrementDesiredSize": True}
    fleet.edge.inject(fault.on(node))
    assert proxy.post("/pool/terminate", body).status_code == status
    assert len(fleet.edge.bodies(fault.on(node).name)) >= fault.times
    if status != OK:
        fleet.wait_for_state(gone=False)
        assert proxy.post("/pool/terminate", body).status_code == OK
    fleet.wait_for_state(gone=True)
