"""The daemon is killed, or told to stop, at each step of giving a machine away: it is finished, or taken back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from deploy.local.plane import ControlPlane
from tests.acceptance.daemons import PODS, daemon, shrinking
from tests.acceptance.edge import Moment
from tests.acceptance.site import Site

pytestmark = pytest.mark.cluster

#: Every write of the daemon while it gives od-1 away, in order.
STEPS: Final = ("draining od-1", "evict", "evict", "removing od-1", "terminate", "delete od-1")


@pytest.fixture
def site(cluster: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with shrinking(cluster, tmp_path) as made:
        yield made


def test_the_steps_are_all_that_is_written(site: Site) -> None:
    with daemon(site):
        site.comes_to("od-2", pods=PODS)
    assert tuple(site.edge.names()) == STEPS


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: f"{step + 1}-{STEPS[step]}")
def test_killed_at_any_step_the_next_one_finishes(step: int, moment: Moment, site: Site) -> None:
    site.edge.hold(step, moment)
    with daemon(site) as killed:
        site.look.eventually(site.edge.reached.is_set, STEPS[step])
        killed.kill()
    assert tuple(site.edge.names()[: step + 1]) == STEPS[: step + 1]
    site.edge.drop()
    with daemon(site):
        site.comes_to("od-2", pods=PODS)
    site.nothing_twice()


@pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: f"{step + 1}-{STEPS[step]}")
def test_told_to_stop_at_any_step(step: int, site: Site) -> None:
    """What was ordered away is finished, everything else is taken back."""
    site.edge.hold(step, "before")
    with daemon(site) as told:
        site.look.eventually(site.edge.reached.is_set, STEPS[step])
        told.terminate()
        site.edge.release()
        assert told.end() == 0
    left = ("od-2",) if "terminate" in STEPS[: step + 1] else ("od-1", "od-2")
    site.comes_to(*left, pods=PODS)
    site.nothing_twice()


def test_an_order_that_comes_through_after_its_sender_died_lowers_the_size_once(site: Site) -> None:
    site.edge.hold(STEPS.index("terminate"), "before")
    with daemon(site) as killed:
        site.look.eventually(site.edge.reached.is_set, "the order")
        killed.kill()
    site.edge.drop_others()
    seen = len(site.face.requests)
    with daemon(site, settle="60s"):
        site.look.eventually(lambda: len(site.face.requests) > seen, "the next one to look at the pool")
        site.edge.release()
        site.comes_to("od-2", pods=PODS)
    assert site.edge.names().count("terminate") == 1
