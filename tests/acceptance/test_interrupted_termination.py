"""The proxy is killed at each step of a termination whose machine is to be replaced: the repeated call finishes it.

And where no proxy comes that knows the marks of the dead one, another program takes them off in the end.
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Final

import httpx
import pytest

from deploy.local import cleaning
from deploy.local.plane import ControlPlane
from rescheduler.draining.intent import ANNOTATION
from tests.acceptance import proxies
from tests.acceptance.daemons import without_pool
from tests.acceptance.program import Program
from tests.acceptance.proxies import Fleet, Proxy
from tests.acceptance.site import Site

pytestmark = pytest.mark.cluster

#: Every write while one machine is terminated and replaced.
REPLACEMENT: Final = ("draining", "owing", "evict", "evict", "removing", "terminate", "delete")

#: Every write while a machine that the pool protects is made disposable; and where the proxy is killed after one.
DISPOSAL: Final = ("draining", "owing", "evict", "evict", "removing", "membershipStatus", "terminate", "delete")
DOOMED: Final = (4, 5, 6)

#: Who comes when the proxy does not: a daemon that knows nothing of the pool, a proxy of another name.
HEIRS: Final[dict[str, Callable[[Site], Program]]] = {
    "a daemon": without_pool,
    "a proxy before another URL": lambda site: Proxy(site, backend={"url": f"{site.edge.url}/pool/.."}),
}


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with proxies.fleet(
        control_plane, tmp_path_factory.mktemp("fleet"), len(REPLACEMENT) + len(DOOMED) + len(HEIRS)
    ) as made:
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


@pytest.mark.parametrize("step", DOOMED, ids=lambda step: f"{step + 1}-{DISPOSAL[step]}")
def test_killed_while_a_protected_machine_is_made_disposable(step: int, fleet: Fleet) -> None:
    """What is written on the Node tells the next one that the protection is to be taken off."""
    site, node = fleet.site, fleet.take()
    machine = site.machine(node)
    site.pool.set_membership(machine, active=True, evictable=False)
    disposable = {"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}
    fleet.edge.hold(step, "after")
    with Proxy(site) as killed:
        call = killed.send("/pool/membershipStatus", disposable)
        site.look.eventually(fleet.edge.reached.is_set, DISPOSAL[step])
        killed.kill()
        with pytest.raises(httpx.TransportError):
            call.result()
    assert [name.partition(" ")[0] for name in fleet.edge.names()] == list(DISPOSAL[: step + 1])
    fleet.edge.drop()
    with Proxy(site):
        fleet.comes_to(gone=True, replaced=True)


@pytest.mark.parametrize("heir", HEIRS)
def test_where_no_proxy_comes_back_its_marks_go_when_its_word_is_over(heir: str, fleet: Fleet) -> None:
    look, node = fleet.site.look, fleet.take()
    fleet.edge.hold(0, "after")
    with Proxy(fleet.site) as killed:
        call = killed.send("/pool/terminate", {"machineId": fleet.site.machine(node)})
        look.eventually(fleet.edge.reached.is_set, "the taint")
        killed.kill()
        with pytest.raises(httpx.TransportError):
            call.result()
    fleet.edge.drop()
    written = json.loads(look.marks()[node])
    promised = datetime.fromisoformat(written["until"]) - datetime.fromisoformat(written["since"])
    assert timedelta(hours=1) < promised < timedelta(hours=2)
    with HEIRS[heir](fleet.site) as program:
        look.eventually(lambda: program.told("serving on ") or program.told("forwarding port "), "the heir")
        fleet.site.plane.api.patch(
            f"/api/v1/nodes/{node}",
            {"metadata": {"annotations": {ANNOTATION: json.dumps(written | {"until": written["since"]})}}},
        )
        look.eventually(lambda: program.told("found marks", node=node, reason="rolled-back"), "the marks found")
        fleet.comes_to(gone=False)
