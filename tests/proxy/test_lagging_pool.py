"""A pool that works in the background: no update makes it end a machine of its own choice, however old its answers.

Each pool here would choose the oldest machines, which have pods; `World.undrained` names those that were ended so.
"""

from contextlib import AbstractContextManager

import pytest

from deploy.local.cloudpool.faults import Fault
from deploy.local.cloudpool.settings import Settings
from rescheduler.proxy.answers import UpdateFailed
from tests.backends.cloudpools import document, settings
from tests.proxy.test_updates import World, world

#: kind of driver: how it launches a machine
STARTS = {
    "a start that blocks the pool": {"startBlocks": "120s"},
    "a start that does not": {"requestDelay": "60s", "launchDelay": "60s"},
}


def lagging(**keys: str) -> Settings:
    made = document(victimSelectionPolicy="OLDEST", **keys)
    return settings(pool=made, refresh_interval=30, list_delay=3, pool_update=60, second_termination="ok")


def lagging_world(**keys: str) -> AbstractContextManager[World]:
    return world(lagging(**keys), settleTime="300s", backend={"timeout": "600s"}, orderTimeout="600s")


def machine(made: World, number: int) -> str:
    return made.server.pool.machines()[number - 1].id(made.clock.now())


def ends(made: World) -> tuple[int, int, list[str]]:
    """Long after: the desired size, the machines that there are, and those that were ended with pods."""
    made.wait(3600)
    return made.desired, len(made.alive()), made.undrained()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("later", [0, 10, 61, 100, 200])
def test_a_size_that_is_set_while_a_machine_is_replaced(later: float, start: str) -> None:
    with lagging_world(**STARTS[start]) as made:
        assert made.updates.terminate(machine(made, 1), decrement=False) == ""
        made.wait(later)
        assert made.updates.set_size(2) == ""
        assert ends(made) == (2, 2, [])


@pytest.mark.parametrize("desired", [2, 3, 4])
def test_a_size_that_is_set_while_the_pool_grows(desired: int) -> None:
    with lagging_world(startBlocks="120s") as made:
        made.updates.set_size(5)
        made.wait(1)
        assert made.updates.set_size(desired) == ""
        assert ends(made) == (desired, desired, [])


def test_a_pool_that_cannot_grow_is_told_the_smaller_size_when_it_has_lacked_machines_for_long() -> None:
    with world(settings(pool=document(quota=3), pool_update=60), settleTime="300s") as made:
        made.updates.set_size(9)
        began = made.clock.now()
        assert made.updates.set_size(2) == ""
        assert made.sizes() == [9, 3]
        assert (made.clock.now() - began).total_seconds() >= 300
        assert ends(made) == (2, 2, [])


def test_a_machine_that_counts_again_costs_no_other_one_whatever_the_cached_view_shows() -> None:
    """Its replacement was launched a moment ago, and the pool's answers do not show it yet."""
    with lagging_world() as made:
        made.server.pool.set_membership(machine(made, 1), active=False, evictable=False)
        made.wait(19)
        assert (len(made.server.pool.machines()), len(made.server.pool.pool()["machines"])) == (4, 3)
        made.updates.take_back(machine(made, 1), evictable=True)
        assert ends(made) == (4, 4, [])


def test_a_machine_whose_status_changed_a_moment_ago_comes_back() -> None:
    with lagging_world() as made:
        made.wait(1)
        made.server.pool.set_membership(machine(made, 1), active=False, evictable=False)
        assert made.updates.comes_back(machine(made, 1))


WORDS = "502 Bad Gateway: failed to terminate i-"


@pytest.mark.parametrize("moment", range(0, 66, 8))
def test_a_decrement_that_is_lost_is_made_up_for_by_taking_the_replacement_away(moment: float) -> None:
    """At whatever moment between two updates of the pool."""
    with lagging_world(startBlocks="40s") as made:
        made.wait(moment)
        made.server.pool.failing_terminations = 1
        assert made.updates.set_size(2) == ""
        assert ends(made) == (2, 2, [])


@pytest.mark.parametrize("by", ["size", "machine"])
def test_a_decrement_that_is_lost_is_told_where_no_replacement_shows(by: str) -> None:
    """The pool updates itself once in a day: until then it wants one more than there are."""
    slow = settings(pool=document(victimSelectionPolicy="OLDEST"), pool_update=86400, second_termination="ok")
    with world(slow, settleTime="300s") as made:
        made.server.pool.failing_terminations = 1
        first = machine(made, 1)
        told = made.updates.set_size(2) if by == "size" else made.updates.terminate(first, decrement=True)
        assert told.startswith("1 of 1 machines were removed: the pool's desired size is 3 still, not 2: machine i-")
        assert WORDS in told
        assert (made.desired, made.sizes(), made.undrained()) == (3, [], [])
        if by == "machine":
            assert WORDS in made.updates.terminate(first, decrement=True)


def test_a_termination_that_the_pool_refuses_costs_no_machine() -> None:
    """The size was not lowered, and need not be: the machine is still there."""
    with lagging_world() as made:
        made.server.face.inject(Fault(path="/pool/terminate", status=400))
        with pytest.raises(UpdateFailed) as caught:
            made.updates.terminate(machine(made, 1), decrement=True)
        assert caught.value.status == 502
        made.server.face.forget()
        assert ends(made) == (3, 3, [])


def test_a_size_that_another_client_sets_meanwhile_is_no_reason_to_end_machines() -> None:
    with lagging_world() as made:
        first = machine(made, 1)
        assert made.updates.terminate(first, decrement=True) == ""
        made.updates.set_size(5)
        made.wait(600)
        assert made.updates.terminate(first, decrement=True) == ""
        assert ends(made) == (5, 5, [])


@pytest.mark.parametrize(("desired", "drained"), [(1, ["pool-1"]), (0, ["pool-1"])])
def test_a_pool_at_its_minimum_begins_no_drain(desired: int, drained: list[str]) -> None:
    with world(lagging(), minSize=2) as made:
        assert made.updates.set_size(desired) == f"1 of {3 - desired} machines were removed: the pool must keep 2"
        assert (made.drained, made.desired) == (drained, 2)
        with pytest.raises(UpdateFailed, match=r"^the pool must keep 2$") as caught:
            made.updates.set_size(desired)
        assert caught.value.status == 500
        with pytest.raises(UpdateFailed, match="the pool must keep 2") as caught:
            made.updates.terminate(machine(made, 2), decrement=True)
        assert (caught.value.status, made.drained, made.tainted) == (500, drained, drained)


def test_no_machine_is_detached_below_the_minimum_of_the_desired_size() -> None:
    with world(lagging(), minSize=3) as made:
        made.server.pool.set_membership(machine(made, 2), active=False, evictable=False)
        with pytest.raises(UpdateFailed, match="the pool must keep 3"):
            made.updates.detach(machine(made, 1), decrement=True)
