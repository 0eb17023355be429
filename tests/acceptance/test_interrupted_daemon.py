"""The daemon is killed or stopped at each step of a machine's removal, which is then finished or rolled back."""

from collections.abc import Iterator
from typing import Final

import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.acceptance import daemons
from tests.acceptance.daemons import DaemonFleet, daemon
from tests.acceptance.edge import DRY_RUN, LEASE, Moment
from tests.cluster.daemon import LEASE_PATH

pytestmark = pytest.mark.cluster

#: All writes of the daemon during the removal of a machine, in order.
STEPS: Final = ("draining", "owing", "evict", "evict", "removing", "terminate", "delete")

#: The steps around which the daemon is killed: nothing is written, one of two pods has left, the order is on its way.
#: `tests/housekeeping/test_kills.py` kills it before and after each write of a cluster in memory.
KILLED: Final[tuple[tuple[int, Moment], ...]] = ((0, "before"), (2, "after"), (5, "after"))
#: A drain is rolled back, and a removal is finished. `tests/draining/test_exits.py` has each moment.
STOPPED: Final = (3, 5)


def _named(step: int) -> str:
    return f"{step + 1}-{STEPS[step]}"


@pytest.fixture(scope="module")
def fleet(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonFleet]:
    with daemons.fleet(control_plane, tmp_path_factory.mktemp("fleet"), len(KILLED) + len(STOPPED) + 4) as prepared:
        yield prepared
    cleaning.empty(control_plane)


def steps(fleet: DaemonFleet) -> list[str]:
    """Return the names of the writes without the node's name."""
    return [name.partition(" ")[0] for name in fleet.edge.names()]


def wait_until_held(fleet: DaemonFleet, step: int) -> None:
    fleet.site.queries.eventually(fleet.edge.reached.is_set, STEPS[step])
    assert steps(fleet) == list(STEPS[: step + 1])


def test_the_list_of_steps_is_complete(fleet: DaemonFleet) -> None:
    fleet.take()
    with daemon(fleet.site):
        fleet.wait_for_state(gone=True)
    assert steps(fleet) == list(STEPS)


@pytest.mark.parametrize(("step", "moment"), KILLED, ids=[f"{moment}-{_named(step)}" for step, moment in KILLED])
def test_after_a_kill_at_any_step_the_next_daemon_finishes_the_removal(
    step: int, moment: Moment, fleet: DaemonFleet
) -> None:
    fleet.take()
    fleet.edge.hold(step, moment)
    with daemon(fleet.site) as killed:
        wait_until_held(fleet, step)
        killed.kill()
    fleet.edge.drop()
    with daemon(fleet.site):
        fleet.wait_for_state(gone=True)


@pytest.mark.parametrize("step", STOPPED, ids=_named)
def test_after_sigterm_at_any_step_the_removal_is_finished_or_rolled_back(step: int, fleet: DaemonFleet) -> None:
    """A requested termination is finished; everything else is rolled back."""
    fleet.take()
    fleet.edge.hold(step, "before")
    with daemon(fleet.site) as stopped:
        wait_until_held(fleet, step)
        stopped.terminate()
        fleet.edge.release()
        assert stopped.end() == 0
    fleet.wait_for_state(gone="terminate" in STEPS[: step + 1])


def test_an_interruption_during_the_dry_runs_evicts_no_pod(fleet: DaemonFleet) -> None:
    """No pod was evicted, and the drain is rolled back."""
    fleet.take()
    fleet.edge.hold(0, "before", lambda name: name == DRY_RUN)
    with daemon(fleet.site) as interrupted:
        fleet.site.queries.eventually(fleet.edge.reached.is_set, "a dry run")
        interrupted.terminate()
        fleet.edge.release()
        assert interrupted.end() == 0
    assert "evict" not in steps(fleet)
    fleet.wait_for_state(gone=False)


def test_a_delayed_termination_of_a_killed_daemon_decrements_the_size_once(fleet: DaemonFleet) -> None:
    fleet.take()
    fleet.edge.hold(STEPS.index("terminate"), "before")
    with daemon(fleet.site) as killed:
        wait_until_held(fleet, STEPS.index("terminate"))
        killed.kill()
    fleet.edge.drop_others()
    seen = len(fleet.site.faulty_app.requests)
    with daemon(fleet.site, settle="60s"):
        fleet.site.queries.eventually(
            lambda: len(fleet.site.faulty_app.requests) > seen, "the next daemon to read the pool"
        )
        fleet.edge.release()
        fleet.wait_for_state(gone=True)
    assert steps(fleet).count("terminate") == 1


def test_after_a_kill_during_a_lease_write_another_daemon_takes_over(fleet: DaemonFleet) -> None:
    fleet.site.plane.api.delete(LEASE_PATH)
    fleet.take()
    fleet.edge.hold(1, "after", lambda name: name == LEASE)
    fleet.edge.inject("evict", "429", times=99)  # so that the drain does not end before the renewal
    with daemon(fleet.site) as killed:
        fleet.site.queries.eventually(fleet.edge.reached.is_set, "the write")
        killed.kill(keep_lease=True)
    assert fleet.site.queries.marks()
    fleet.edge.drop()
    fleet.edge.forget()
    with daemon(fleet.site):
        fleet.wait_for_state(gone=True)
