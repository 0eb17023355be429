"""The proxy is killed, or told to stop, at each step of a scale-down: it is finished, or taken back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from deploy.local.plane import ControlPlane
from tests.acceptance.proxies import ALL, TOTAL, Proxy, pool_of_four
from tests.acceptance.site import Site

pytestmark = pytest.mark.cluster

#: Every write while a pool of four, which would like to have five, shrinks to two.
SCALE_DOWN: Final = (
    "size 4",
    "draining od-3",
    "draining od-4",
    "draining od-3",
    "owing od-3",
    "evict",
    "removing od-3",
    "terminate",
    "draining od-4",  # the end of the first machine is awaited later
    "owing od-4",
    "evict",
    "evict",
    "removing od-4",
    "terminate",
    "delete od-3",
    "delete od-4",
)
#: Positions at which it is killed, or told to stop: with the second victim it is as with the first one, but the machine
#: of that one was ordered away already.
INTERRUPTED: Final = (*range(9), 10, 12, 13, 14, 15)
TO_TWO: Final = {"desiredSize": 2}


@pytest.fixture
def site(cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with pool_of_four(cluster, tmp_path, wanted=5) as made:
        yield made


def test_the_steps_are_all_that_is_written(site: Site) -> None:
    with Proxy(site) as proxy:
        answer = proxy.ask("/pool/size", TO_TWO)
        assert (answer.status_code, answer.text) == (200, "")
        site.comes_to("od-1", "od-2", pods=TOTAL)
    assert site.edge.names() == list(SCALE_DOWN)


@pytest.mark.parametrize("step", INTERRUPTED, ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
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
        site.look.running(TOTAL)
        answer = proxy.ask("/pool/size", TO_TWO)
        assert (answer.status_code, answer.text) == (200, "")
        site.comes_to("od-1", "od-2", pods=TOTAL)
    site.nothing_twice()


@pytest.mark.parametrize("step", INTERRUPTED, ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
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
    site.comes_to(*[name for name in ALL if name not in ("od-3", "od-4")[:gone]], pods=TOTAL)
    site.nothing_twice()
