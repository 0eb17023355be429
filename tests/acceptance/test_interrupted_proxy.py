"""The proxy is killed or stopped at each step of a scale-down, which is then finished or rolled back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx2
import pytest

from devcluster.plane import ControlPlane
from tests.acceptance.proxies import ALL, TOTAL, ProxyProgram, pool_of_four
from tests.acceptance.site import PoolSite

pytestmark = pytest.mark.cluster

#: All writes of a scale-down to two machines of a pool with four machines and desired size five.
SCALE_DOWN: Final = (
    "size 4",
    "draining od-3",
    "draining od-4",
    "draining od-3",
    "owing od-3",
    "evict",
    "removing od-3",
    "terminate",
    "draining od-4",  # the proxy waits for the first machine's termination later
    "owing od-4",
    "evict",
    "evict",
    "removing od-4",
    "terminate",
    "delete od-3",
    "delete od-4",
)
#: Positions at which the proxy is killed or stopped: what is special in a scale-down, and the second victim's steps
#: while the first machine is being terminated. `test_interrupted_termination.py` has the other steps of a victim, and
#: `make faults ARGS="--kills --program=proxy"` kills the proxy at every call.
POSITIONS: Final = (1, 10, 14)
#: The drain of the first victim is rolled back; the first machine is removed, and the second drain is rolled back; both
#: machines are removed. `tests/draining/test_exits.py` has each moment of a drain.
STOPPED: Final = (4, 7, 13)
TO_TWO: Final = {"desiredSize": 2}


@pytest.fixture
def site(cluster: ControlPlane, tmp_path: Path) -> Iterator[PoolSite]:
    with pool_of_four(cluster, tmp_path, wanted=5) as prepared:
        yield prepared


def test_the_list_of_steps_is_complete(site: PoolSite) -> None:
    with ProxyProgram(site) as proxy:
        response = proxy.post("/pool/size", TO_TWO)
        assert (response.status_code, response.text) == (200, "")
        site.wait_for_state("od-1", "od-2", pods=TOTAL)
    assert site.edge.names() == list(SCALE_DOWN)


@pytest.mark.parametrize("step", POSITIONS, ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
def test_after_a_kill_at_any_step_of_a_scale_down_a_repeated_request_finishes_it(step: int, site: PoolSite) -> None:
    """The next proxy cleans up without a request, and the repeated request finishes the scale-down."""
    site.edge.hold(step, "after")
    with ProxyProgram(site) as killed:
        call = killed.send("/pool/size", TO_TWO)
        site.queries.eventually(site.edge.reached.is_set, SCALE_DOWN[step])
        killed.kill()
        with pytest.raises(httpx2.TransportError):
            call.result()
    assert tuple(site.edge.names()) == SCALE_DOWN[: step + 1]
    site.edge.drop()
    with ProxyProgram(site) as proxy:
        site.queries.eventually(lambda: not site.queries.marks() and site.machines() == site.nodes(), "the first sweep")
        site.queries.running(TOTAL)
        response = proxy.post("/pool/size", TO_TWO)
        assert (response.status_code, response.text) == (200, "")
        site.wait_for_state("od-1", "od-2", pods=TOTAL)
    site.assert_no_repeated_eviction()


@pytest.mark.parametrize("step", STOPPED, ids=lambda step: f"{step + 1}-{SCALE_DOWN[step]}")
def test_after_sigterm_at_any_step_a_scale_down_is_finished_or_rolled_back(step: int, site: PoolSite) -> None:
    """Requested terminations are finished, everything else is rolled back, and the response reports it."""
    site.edge.hold(step, "before")
    with ProxyProgram(site) as proxy:
        call = proxy.send("/pool/size", TO_TWO)
        site.queries.eventually(site.edge.reached.is_set, SCALE_DOWN[step])
        proxy.terminate()
        site.edge.release()
        assert proxy.end() == 0
        response = call.result()
    gone = SCALE_DOWN[: step + 1].count("terminate")
    assert response.status_code == (200 if gone else 500)
    assert bool(response.text) == (gone < 2)
    site.wait_for_state(*[name for name in ALL if name not in ("od-3", "od-4")[:gone]], pods=TOTAL)
    site.assert_no_repeated_eviction()
