"""The proxy is killed, or told to stop, at each step of a removal: it is finished, or taken back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from deploy.local.plane import ControlPlane
from tests.acceptance.proxies import PODS, Proxy, pool_of
from tests.acceptance.site import Site

pytestmark = pytest.mark.cluster

#: Every write while a pool of four, which would like to have five, shrinks to two.
SCALE_DOWN: Final = (
    "size 4",
    "draining od-3",
    "draining od-4",
    "draining od-3",
    "evict",
    "removing od-3",
    "terminate",
    "delete od-3",
    "draining od-4",
    "evict",
    "evict",
    "removing od-4",
    "terminate",
    "delete od-4",
)
TO_TWO: Final = {"desiredSize": 2}


@pytest.fixture
def site(cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with pool_of(cluster, tmp_path, 4, wanted=5) as made:
        yield made


def test_the_steps_are_all_that_is_written(site: Site) -> None:
    with Proxy(site) as proxy:
        answer = proxy.ask("/pool/size", TO_TWO)
        assert (answer.status_code, answer.text) == (200, "")
        site.comes_to("od-1", "od-2", pods=sum(PODS.values()))
    assert site.edge.names() == list(SCALE_DOWN)


@pytest.mark.parametrize("step", range(len(SCALE_DOWN)), ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
def test_killed_at_any_step_of_a_scale_down(step: int, site: Site) -> None:
    """What is left behind is taken care of without a call, and the repeated call brings it to the end."""
    site.edge.hold(step, "after")
    with Proxy(site) as killed:
        call = killed.send("/pool/size", TO_TWO)
        site.look.eventually(site.edge.reached.is_set, SCALE_DOWN[step])
        killed.kill()
        with pytest.raises(httpx.TransportError):
            call.result()
    assert tuple(site.edge.names()) == SCALE_DOWN[: step + 1]
    site.edge.drop()
    with Proxy(site) as proxy:
        site.look.eventually(lambda: not site.look.marks() and site.machines() == site.nodes(), "the first sweep")
        site.look.running(sum(PODS.values()))
        answer = proxy.ask("/pool/size", TO_TWO)
        assert (answer.status_code, answer.text) == (200, "")
        site.comes_to("od-1", "od-2", pods=sum(PODS.values()))
    site.nothing_twice()


#: Every write while one machine is terminated and replaced.
REPLACEMENT: Final = ("draining od-4", "evict", "evict", "removing od-4", "terminate", "delete od-4")


@pytest.fixture
def full(cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    """A pool that has all that it wants."""
    with pool_of(cluster, tmp_path, 4) as made:
        yield made


@pytest.mark.parametrize("step", range(len(REPLACEMENT)), ids=lambda step: f"{step + 1}-{REPLACEMENT[step]}")
def test_killed_before_any_step_of_a_termination(step: int, full: Site) -> None:
    terminate = {"machineId": full.machine("od-4"), "decrementDesiredSize": False}
    full.edge.hold(step, "before")
    with Proxy(full) as killed:
        call = killed.send("/pool/terminate", terminate)
        full.look.eventually(full.edge.reached.is_set, REPLACEMENT[step])
        killed.kill()
        with pytest.raises(httpx.TransportError):
            call.result()
    assert full.edge.names() == list(REPLACEMENT[: step + 1])
    full.edge.drop()
    with Proxy(full) as proxy:
        # An order of which nobody knows whether it came through is repeated when it cannot be at work any more.
        full.look.eventually(lambda: proxy.ask("/pool/terminate", terminate).status_code == httpx.codes.OK, "the end")
        full.comes_to("od-1", "od-2", "od-3", "od-5", pods=sum(PODS.values()))
    full.nothing_twice()


@pytest.mark.parametrize("step", range(len(SCALE_DOWN)), ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
def test_told_to_stop_at_any_step_of_a_scale_down(step: int, site: Site) -> None:
    """What was ordered away is finished, everything else is taken back, and the client hears of it."""
    site.edge.hold(step, "before")
    with Proxy(site) as proxy:
        call = proxy.send("/pool/size", TO_TWO)
        site.look.eventually(site.edge.reached.is_set, SCALE_DOWN[step])
        proxy.terminate()
        site.edge.release()
        assert proxy.end() == 0
        answer = call.result()
    gone = SCALE_DOWN[: step + 1].count("terminate")
    assert answer.status_code == (200 if gone else 500)
    assert bool(answer.text) == (gone < 2)
    site.comes_to(*[name for name in PODS if name not in ("od-3", "od-4")[:gone]], pods=sum(PODS.values()))
    site.nothing_twice()
