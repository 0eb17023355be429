"""The daemon is killed, or told to stop, at each step of giving a machine away: it is finished, or taken back."""

from collections.abc import Iterator
from typing import Final

import pytest

from deploy.local import cleaning
from deploy.local.plane import ControlPlane
from tests.acceptance import daemons
from tests.acceptance.daemons import Fleet, daemon
from tests.acceptance.edge import LEASE, Moment
from tests.acceptance.faults import Fault

pytestmark = pytest.mark.cluster

#: Every write of the daemon while it gives a machine away, in order.
STEPS: Final = ("draining", "evict", "evict", "removing", "terminate", "delete")

at_each_step = pytest.mark.parametrize("step", range(len(STEPS)), ids=lambda step: f"{step + 1}-{STEPS[step]}")


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with daemons.fleet(control_plane, tmp_path_factory.mktemp("fleet"), 3 * len(STEPS) + 4) as made:
        yield made
    control_plane.wait_for(lambda: cleaning.wipe(control_plane.api), "an empty cluster")


def steps(fleet: Fleet) -> list[str]:
    """What was written, without the node's name."""
    return [name.partition(" ")[0] for name in fleet.edge.names()]


def held_up(fleet: Fleet, step: int) -> None:
    fleet.site.look.eventually(fleet.edge.reached.is_set, STEPS[step])
    assert steps(fleet) == list(STEPS[: step + 1])


def test_the_steps_are_all_that_is_written(fleet: Fleet) -> None:
    fleet.take()
    with daemon(fleet.site):
        fleet.comes_to(gone=True)
    assert steps(fleet) == list(STEPS)


@pytest.mark.parametrize("moment", ["before", "after"])
@at_each_step
def test_killed_at_any_step_the_next_one_finishes(step: int, moment: Moment, fleet: Fleet) -> None:
    fleet.take()
    fleet.edge.hold(step, moment)
    with daemon(fleet.site) as killed:
        held_up(fleet, step)
        killed.kill()
    fleet.edge.drop()
    with daemon(fleet.site):
        fleet.comes_to(gone=True)


@at_each_step
def test_told_to_stop_at_any_step(step: int, fleet: Fleet) -> None:
    """What was ordered away is finished, everything else is taken back."""
    fleet.take()
    fleet.edge.hold(step, "before")
    with daemon(fleet.site) as told:
        held_up(fleet, step)
        told.terminate()
        fleet.edge.release()
        assert told.end() == 0
    fleet.comes_to(gone="terminate" in STEPS[: step + 1])


def test_an_order_that_comes_through_after_its_sender_died_lowers_the_size_once(fleet: Fleet) -> None:
    fleet.take()
    fleet.edge.hold(STEPS.index("terminate"), "before")
    with daemon(fleet.site) as killed:
        held_up(fleet, STEPS.index("terminate"))
        killed.kill()
    fleet.edge.drop_others()
    seen = len(fleet.site.face.requests)
    with daemon(fleet.site, settle="60s"):
        fleet.site.look.eventually(lambda: len(fleet.site.face.requests) > seen, "the next one to look at the pool")
        fleet.edge.release()
        fleet.comes_to(gone=True)
    assert steps(fleet).count("terminate") == 1


@pytest.mark.parametrize(("position", "moment"), [(0, "before"), (1, "after")], ids=["made", "renewed"])
def test_killed_when_the_lease_is_written_another_one_takes_over(position: int, moment: Moment, fleet: Fleet) -> None:
    elected = ("--leader-elect", "--namespace=default")
    fleet.site.plane.api.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/k8s-spot-rescheduler")
    fleet.take()
    fleet.edge.hold(position, moment, lambda name: name == LEASE)
    fleet.edge.inject(Fault("evict", 429, times=99))  # so that the drain is not over before the renewal
    with daemon(fleet.site, *elected) as killed:
        fleet.site.look.eventually(fleet.edge.reached.is_set, "the write")
        killed.kill()
    assert bool(fleet.site.look.marks()) == bool(position)
    fleet.edge.drop()
    fleet.edge.forget()
    with daemon(fleet.site, *elected):
        fleet.comes_to(gone=True)
