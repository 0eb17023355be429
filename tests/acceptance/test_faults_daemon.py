"""Each write of the daemon fails in all known ways: the machine is terminated, or the drain is rolled back."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.acceptance import daemons
from tests.acceptance.daemons import DaemonFleet, daemon
from tests.acceptance.edge import DRY_RUN
from tests.acceptance.faults import CLOSED, SILENT, WriteFault

pytestmark = pytest.mark.cluster

BUDGET: Final = json.dumps(
    {
        "kind": "Status",
        "status": "Failure",
        "code": 429,
        "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 pods"}]},
    }
)
GATEWAY: Final = "<html>Gateway Time-out</html>"

#: The fault for the node {}, and the reason why the drain fails; "" if the drain succeeds despite the fault.
FAULTS: Final[dict[str, tuple[WriteFault, str]]] = {
    "the taint: 409": (WriteFault("draining {}", 409), ""),
    "the taint: 409 each time": (WriteFault("draining {}", 409, times=5), "api-error"),
    "the taint: 500, applied": (WriteFault("draining {}", 500, acted=True), ""),
    "the taint: closed, applied": (WriteFault("draining {}", CLOSED, acted=True), ""),
    "the debts: 500, applied": (WriteFault("owing {}", 500, acted=True), ""),
    "a dry run: 403": (WriteFault(DRY_RUN, 403), "eviction-refused"),
    "a dry run: 500": (WriteFault(DRY_RUN, 500), ""),
    "an eviction: 403": (WriteFault("evict", 403), "eviction-failed"),
    "an eviction: 404, the pod exists": (WriteFault("evict", 404), ""),
    "an eviction: 409": (WriteFault("evict", 409), ""),
    "an eviction: 429 of a budget": (WriteFault("evict", 429, times=2, body=BUDGET), ""),
    "an eviction: 429 of the server": (WriteFault("evict", 429, headers=((b"retry-after", b"1"),)), ""),
    "an eviction: 500": (WriteFault("evict", 500), ""),
    "an eviction: closed, accepted": (WriteFault("evict", CLOSED, acted=True), ""),
    "the intent to remove: 409": (WriteFault("removing {}", 409), ""),
    "the intent to remove: 500, applied": (WriteFault("removing {}", 500, acted=True), ""),
    "terminate: 204": (WriteFault("terminate", 204, acted=True), ""),
    "terminate: 400": (WriteFault("terminate", 400), "provider"),
    "terminate: 404, the machine is listed": (WriteFault("terminate", 404), "provider"),
    "terminate: 502": (WriteFault("terminate", 502), ""),
    "terminate: 502, applied": (WriteFault("terminate", 502, acted=True), ""),
    "terminate: 504 of a gateway": (WriteFault("terminate", 504, body=GATEWAY), ""),
    "terminate: silent": (WriteFault("terminate", SILENT), ""),
    "terminate: silent, applied": (WriteFault("terminate", SILENT, acted=True), ""),
    "terminate: closed, applied": (WriteFault("terminate", CLOSED, acted=True), ""),
    "delete: 404, the Node exists": (WriteFault("delete {}", 404), ""),
    "delete: 500": (WriteFault("delete {}", 500), ""),
    "delete: closed, applied": (WriteFault("delete {}", CLOSED, acted=True), ""),
}


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonFleet]:
    with daemons.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(FAULTS) + 1) as prepared:
        yield prepared
    cleaning.empty(control_plane)


@pytest.mark.parametrize("case", FAULTS)
def test_a_failed_write_does_not_lose_pods(case: str, fleet: DaemonFleet) -> None:
    fault, why = FAULTS[case]
    node = fleet.take()
    fleet.edge.inject(fault.on(node))
    with daemon(fleet.site) as running:
        if why:
            fleet.site.queries.eventually(lambda: running.logged("no new attempt before", node=node), "the cool-down")
            assert [line["reason"] for line in running.logged("drain failed after")] == [why]
        fleet.wait_for_state(gone=not why)
        assert len(fleet.edge.bodies(fault.on(node).name)) >= fault.times


def test_removing_the_taint_is_retried(fleet: DaemonFleet) -> None:
    node = fleet.take()
    fleet.edge.inject(
        WriteFault("evict", 403), WriteFault(f"release {node}", 500), WriteFault(f"release {node}", CLOSED)
    )
    with daemon(fleet.site) as running:
        fleet.site.queries.eventually(lambda: running.logged("no new attempt before", node=node), "the cool-down")
        fleet.wait_for_state(gone=False)
    assert fleet.edge.names().count(f"release {node}") >= 3
