"""Each write of the proxy fails in all known ways: the removal is finished, or it is rolled back."""

from collections.abc import Iterator
from typing import Final

import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.acceptance import proxies
from tests.acceptance.edge import DRY_RUN
from tests.acceptance.faults import CLOSED, SILENT, WriteFault
from tests.acceptance.proxies import ProxyFleet, ProxyProgram
from tests.acceptance.test_faults_daemon import BUDGET, GATEWAY

pytestmark = pytest.mark.cluster

OK: Final = 200

#: The fault during the removal of the node {}, and the status; unless OK, the node is kept and a retry succeeds.
FAULTS: Final[dict[str, tuple[WriteFault, int]]] = {
    "the taint: 409": (WriteFault("draining {}", 409), OK),
    "the taint: 409 each time": (WriteFault("draining {}", 409, times=5), 503),
    "the taint: closed, applied": (WriteFault("draining {}", CLOSED, acted=True), OK),
    "the taint: silent": (WriteFault("draining {}", SILENT), OK),
    "the debts: 409 each time": (WriteFault("owing {}", 409, times=5), 503),
    "a dry run: 429 of a budget": (WriteFault(DRY_RUN, 429, body=BUDGET), 500),
    "an eviction: 403": (WriteFault("evict", 403), 500),
    "an eviction: 404, the pod exists": (WriteFault("evict", 404), OK),
    "an eviction: 429 of a budget": (WriteFault("evict", 429, body=BUDGET), OK),
    "an eviction: 500": (WriteFault("evict", 500), OK),
    "the intent to remove: 500, applied": (WriteFault("removing {}", 500, acted=True), OK),
    "terminate: 204": (WriteFault("terminate", 204, acted=True), OK),
    "terminate: 400": (WriteFault("terminate", 400), 502),
    "terminate: 404, the machine is listed": (WriteFault("terminate", 404), 502),
    "terminate: 502": (WriteFault("terminate", 502), OK),
    "terminate: 502, applied": (WriteFault("terminate", 502, acted=True), OK),
    "terminate: 504 of a gateway, applied": (WriteFault("terminate", 504, acted=True, body=GATEWAY), OK),
    "terminate: silent": (WriteFault("terminate", SILENT), OK),
    "terminate: silent, applied": (WriteFault("terminate", SILENT, acted=True), OK),
    "terminate: closed, applied": (WriteFault("terminate", CLOSED, acted=True), OK),
    "delete: 404, the Node exists": (WriteFault("delete {}", 404), OK),
    "delete: 500": (WriteFault("delete {}", 500), OK),
    "delete: closed, applied": (WriteFault("delete {}", CLOSED, acted=True), OK),
}


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyFleet]:
    with proxies.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(FAULTS)) as prepared:
        yield prepared
    cleaning.empty(control_plane)


@pytest.fixture(scope="module")
def proxy(fleet: ProxyFleet) -> Iterator[ProxyProgram]:
    """A single proxy for all cases, because none of them may block it."""
    with ProxyProgram(fleet.site) as prepared:
        yield prepared


@pytest.mark.parametrize("case", FAULTS)
def test_a_failed_write_fails_the_request(case: str, fleet: ProxyFleet, proxy: ProxyProgram) -> None:
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
