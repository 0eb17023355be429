"""The proxy is killed at each step of a termination with replacement; the repeated request finishes it.

If the proxy is not restarted, another program finally removes its marks.
"""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Final

import httpx2
import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.acceptance import proxies
from tests.acceptance.daemons import without_pool
from tests.acceptance.proxies import ProxyFleet, ProxyProgram, patient

pytestmark = pytest.mark.cluster

#: All writes while a machine is terminated and replaced.
REPLACEMENT: Final = ("draining", "owing", "evict", "evict", "removing", "terminate", "delete")

#: The steps before which the proxy is killed; `tests/housekeeping/test_kills.py` has each write of a drain.
KILLED: Final = (1, 3, 5)
#: All writes while a protected machine is made disposable, and the position at which the proxy is killed.
DISPOSAL: Final = ("draining", "owing", "evict", "evict", "removing", "membershipStatus", "terminate", "delete")
DOOMED: Final = (5,)


def wait_for_write(name: str, fleet: ProxyFleet, proxy: ProxyProgram, call: "Future[httpx2.Response]") -> None:
    """Wait until the write to be held has arrived. If the request ends before, fail with the log of the *proxy*."""
    fleet.site.queries.eventually(lambda: fleet.edge.reached.is_set() or call.done(), name)
    assert not call.done(), proxy.lines


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyFleet]:
    with proxies.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(KILLED) + len(DOOMED) + 1) as prepared:
        yield prepared
    cleaning.empty(control_plane)


@pytest.mark.parametrize("step", KILLED, ids=lambda step: f"{step + 1}-{REPLACEMENT[step]}")
def test_after_a_kill_before_any_step_of_a_termination_a_repeated_request_finishes_it(
    step: int, fleet: ProxyFleet
) -> None:
    queries, node = fleet.site.queries, fleet.take()
    terminate = {"machineId": fleet.site.machine(node), "decrementDesiredSize": False}
    fleet.edge.hold(step, "before")
    with patient(fleet.site) as killed:
        call = killed.send("/pool/terminate", terminate)
        wait_for_write(REPLACEMENT[step], fleet, killed, call)
        killed.kill()
        with pytest.raises(httpx2.TransportError):
            call.result()
    assert [name.partition(" ")[0] for name in fleet.edge.names()] == list(REPLACEMENT[: step + 1]), killed.lines
    fleet.edge.drop()
    with ProxyProgram(fleet.site) as proxy:
        # A termination request with an unknown result is repeated when it can no longer take effect.
        queries.eventually(lambda: proxy.post("/pool/terminate", terminate).status_code == httpx2.codes.OK, "the end")
        fleet.wait_for_state(gone=True, replaced=True)


@pytest.mark.parametrize("step", DOOMED, ids=lambda step: f"{step + 1}-{DISPOSAL[step]}")
def test_after_a_kill_while_a_protected_machine_is_made_disposable_the_next_proxy_finishes(
    step: int, fleet: ProxyFleet
) -> None:
    """The annotation on the Node records that the next proxy has to remove the protection."""
    site, node = fleet.site, fleet.take()
    machine = site.machine(node)
    site.pool.set_membership(machine, active=True, evictable=False)
    disposable = {"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}
    fleet.edge.hold(step, "after")
    with patient(site) as killed:
        call = killed.send("/pool/membershipStatus", disposable)
        wait_for_write(DISPOSAL[step], fleet, killed, call)
        killed.kill()
        with pytest.raises(httpx2.TransportError):
            call.result()
    assert [name.partition(" ")[0] for name in fleet.edge.names()] == list(DISPOSAL[: step + 1]), killed.lines
    fleet.edge.drop()
    with ProxyProgram(site):
        fleet.wait_for_state(gone=True, replaced=True)


def test_marks_of_a_proxy_that_never_restarts_are_removed_after_they_expire(fleet: ProxyFleet) -> None:
    """By a daemon without a pool."""
    queries, node = fleet.site.queries, fleet.take()
    fleet.edge.hold(0, "after")
    with ProxyProgram(fleet.site) as killed:
        call = killed.send("/pool/terminate", {"machineId": fleet.site.machine(node)})
        queries.eventually(fleet.edge.reached.is_set, "the taint")
        killed.kill()
        with pytest.raises(httpx2.TransportError):
            call.result()
    fleet.edge.drop()
    written = json.loads(queries.marks()[node])
    promised = datetime.fromisoformat(written["until"]) - datetime.fromisoformat(written["since"])
    assert timedelta(hours=1) < promised < timedelta(hours=2)
    with without_pool(fleet.site) as program:
        queries.eventually(lambda: program.logged("serving on "), "the successor")
        fleet.site.plane.api.patch(
            f"/api/v1/nodes/{node}",
            {"metadata": {"annotations": {ANNOTATION: json.dumps(written | {"until": written["since"]})}}},
        )
        queries.eventually(lambda: program.logged("found marks", node=node, reason="rolled-back"), "the rollback")
        fleet.wait_for_state(gone=False)
