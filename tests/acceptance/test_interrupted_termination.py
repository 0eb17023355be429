"""The proxy is killed at each step of a termination whose machine is to be replaced: the repeated call finishes it."""

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from deploy.local import cleaning
from deploy.local.plane import ControlPlane
from tests.acceptance import proxies
from tests.acceptance.proxies import Fleet, Proxy

pytestmark = pytest.mark.cluster

#: Every write while one machine is terminated and replaced.
REPLACEMENT: Final = ("draining", "evict", "evict", "removing", "terminate", "delete")


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with proxies.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(REPLACEMENT)) as made:
        yield made
    control_plane.wait_for(lambda: cleaning.wipe(control_plane.api), "an empty cluster")


@pytest.mark.parametrize("step", range(len(REPLACEMENT)), ids=lambda step: f"{step + 1}-{REPLACEMENT[step]}")
def test_killed_before_any_step_of_a_termination(step: int, fleet: Fleet) -> None:
    look, node = fleet.site.look, fleet.take()
    terminate = {"machineId": fleet.site.machine(node), "decrementDesiredSize": False}
    fleet.edge.hold(step, "before")
    with Proxy(fleet.site) as killed:
        call = killed.send("/pool/terminate", terminate)
        look.eventually(fleet.edge.reached.is_set, REPLACEMENT[step])
        killed.kill()
        with pytest.raises(httpx.TransportError):
            call.result()
    assert [name.partition(" ")[0] for name in fleet.edge.names()] == list(REPLACEMENT[: step + 1])
    fleet.edge.drop()
    with Proxy(fleet.site) as proxy:
        # An order of which nobody knows whether it came through is repeated when it cannot be at work any more.
        look.eventually(lambda: proxy.ask("/pool/terminate", terminate).status_code == httpx.codes.OK, "the end")
        fleet.comes_to(gone=True, replaced=True)
