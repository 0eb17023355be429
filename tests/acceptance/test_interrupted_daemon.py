"""The daemon is killed, or told to stop, at each step of giving a machine away: it is finished, or taken back."""

from collections.abc import Iterator
from typing import Final

import pytest

from deploy.local import cleaning
from deploy.local.plane import ControlPlane
from tests.acceptance import daemons
from tests.acceptance.daemons import Fleet, daemon
from tests.acceptance.edge import DRY_RUN, LEASE, Moment
from tests.acceptance.faults import Fault
from tests.cluster.daemon import LEASE_PATH

pytestmark = pytest.mark.cluster

#: Every write of the daemon while it gives a machine away, in order.
STEPS: Final = ("draining", "owing", "evict", "evict", "removing", "terminate", "delete")

#: Before a write everything is as after the one before it.
KILLED: Final[tuple[tuple[int, Moment], ...]] = ((0, "before"), *((step, "after") for step in range(len(STEPS))))


def _named(step: int) -> str:
    return f"{step + 1}-{STEPS[step]}"


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with daemons.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(KILLED) + len(STEPS) + 6) as made:
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


@pytest.mark.parametrize(("step", "moment"), KILLED, ids=[f"{moment}-{_named(step)}" for step, moment in KILLED])
def test_killed_at_any_step_the_next_one_finishes(step: int, moment: Moment, fleet: Fleet) -> None:
    fleet.take()
    fleet.edge.hold(step, moment)
    with daemon(fleet.site) as killed:
        held_up(fleet, step)
        killed.kill()
    fleet.edge.drop()
    with daemon(fleet.site):
        fleet.comes_to(gone=True)


@pytest.mark.parametrize("step", range(len(STEPS)), ids=_named)
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


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "told to stop"])
def test_interrupted_while_evictions_are_tried(fleet: Fleet, *, killed: bool) -> None:
    """No pod was evicted: a node that is opened again keeps them, the next daemon begins with the first one."""
    fleet.take()
    fleet.edge.hold(0, "before", lambda name: name == DRY_RUN)
    with daemon(fleet.site) as interrupted:
        fleet.site.look.eventually(fleet.edge.reached.is_set, "a dry run")
        if killed:
            interrupted.kill()
            fleet.edge.drop()
        else:
            interrupted.terminate()
            fleet.edge.release()
            assert interrupted.end() == 0
    assert "evict" not in steps(fleet)
    if killed:
        with daemon(fleet.site):
            fleet.comes_to(gone=True)
    else:
        fleet.comes_to(gone=False)


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
    fleet.site.plane.api.delete(LEASE_PATH)
    fleet.take()
    fleet.edge.hold(position, moment, lambda name: name == LEASE)
    fleet.edge.inject(Fault("evict", 429, times=99))  # so that the drain is not over before the renewal
    with daemon(fleet.site) as killed:
        fleet.site.look.eventually(fleet.edge.reached.is_set, "the write")
        killed.kill(keep_lease=True)
    assert bool(fleet.site.look.marks()) == bool(position)
    fleet.edge.drop()
    fleet.edge.forget()
    with daemon(fleet.site):
        fleet.comes_to(gone=True)
