"""A pool that works in the background: no update makes it choose a machine to terminate, despite outdated responses.

Each pool would choose the oldest machines, which have pods; `PoolWorld.undrained` lists machines that ended that way.
"""

from contextlib import AbstractContextManager

import pytest

from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin.faults import Fault
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from tests.providers.cloudpools import document, settings
from tests.proxy.test_updates import PoolWorld, world

#: kind of driver: its way to launch a machine
STARTS = {
    "a start that blocks the pool": {"startBlocks": "120s"},
    "a start that does not block the pool": {"requestDelay": "60s", "launchDelay": "60s"},
}


def lagging(**keys: str) -> CloudpoolSettings:
    keys_ = document(victimSelectionPolicy="OLDEST", **keys)
    return settings(pool=keys_, refresh_interval=30, list_delay=3, pool_update=60, second_termination="ok")


def lagging_world(**keys: str) -> AbstractContextManager[PoolWorld]:
    return world(lagging(**keys), settleTime="300s", backend={"timeout": "600s"}, orderTimeout="600s")


def machine(env: PoolWorld, number: int) -> str:
    return env.server.pool.machines()[number - 1].id(env.clock.now())


def ends(env: PoolWorld) -> tuple[int, int, list[str]]:
    """Return the final desired size, the machines, and those that were terminated with pods."""
    env.wait(3600)
    return env.desired, len(env.alive()), env.undrained()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("later", [0, 10, 61, 100, 200])
def test_a_size_set_during_a_replacement_terminates_no_other_machine(later: float, start: str) -> None:
    with lagging_world(**STARTS[start]) as env:
        assert env.updates.terminate(machine(env, 1), decrement=False) == ""
        env.wait(later)
        assert env.updates.set_size(2) == ""
        assert ends(env) == (2, 2, [])


@pytest.mark.parametrize("desired", [2, 3, 4])
def test_a_size_set_while_the_pool_grows_terminates_no_other_machine(desired: int) -> None:
    with lagging_world(startBlocks="120s") as env:
        env.updates.set_size(5)
        env.wait(1)
        assert env.updates.set_size(desired) == ""
        assert ends(env) == (desired, desired, [])


def test_the_smaller_size_is_set_when_the_pool_could_not_grow_for_long() -> None:
    with world(settings(pool=document(quota=3), pool_update=60), settleTime="300s") as env:
        env.updates.set_size(9)
        began = env.clock.now()
        assert env.updates.set_size(2) == ""
        assert env.sizes() == [9, 3]
        assert (env.clock.now() - began).total_seconds() >= 300
        assert ends(env) == (2, 2, [])


def test_a_reactivation_terminates_no_other_machine_despite_an_old_view() -> None:
    """The replacement was just launched, and the pool's responses do not show it yet."""
    with lagging_world() as env:
        env.server.pool.set_membership(machine(env, 1), active=False, evictable=False)
        env.wait(19)
        assert (len(env.server.pool.machines()), len(env.server.pool.pool()["machines"])) == (4, 3)
        env.updates.reactivate(machine(env, 1), evictable=True)
        assert ends(env) == (4, 4, [])


def test_a_machine_is_inactive_immediately_after_a_change_of_status() -> None:
    with lagging_world() as env:
        env.wait(1)
        env.server.pool.set_membership(machine(env, 1), active=False, evictable=False)
        assert env.updates.is_inactive(machine(env, 1))


TERMINATION_FAILED = "502 Bad Gateway: failed to terminate i-"


@pytest.mark.parametrize("moment", range(0, 66, 8))
def test_after_a_lost_decrement_the_replacement_is_removed(moment: float) -> None:
    """At any time between two updates of the pool."""
    with lagging_world(startBlocks="40s") as env:
        env.wait(moment)
        env.server.pool.failing_terminations = 1
        assert env.updates.set_size(2) == ""
        assert ends(env) == (2, 2, [])


@pytest.mark.parametrize("operation", ["size", "machine"])
def test_a_lost_decrement_without_a_replacement_is_reported(operation: str) -> None:
    """The pool updates itself once a day; until then its desired size is one too high."""
    slow = settings(pool=document(victimSelectionPolicy="OLDEST"), pool_update=86400, second_termination="ok")
    with world(slow, settleTime="300s") as env:
        env.server.pool.failing_terminations = 1
        first = machine(env, 1)
        response = env.updates.set_size(2) if operation == "size" else env.updates.terminate(first, decrement=True)
        assert response.startswith(
            "1 of 1 machines were removed: the pool's desired size is still 3, not 2: machine i-"
        )
        assert TERMINATION_FAILED in response
        assert (env.desired, env.sizes(), env.undrained()) == (3, [], [])
        if operation == "machine":
            assert TERMINATION_FAILED in env.updates.terminate(first, decrement=True)


def test_a_rejected_termination_request_terminates_no_machine() -> None:
    """The size was not lowered, which is correct because the machine still exists."""
    with lagging_world() as env:
        env.server.faulty_app.inject(Fault(path="/pool/terminate", status=400))
        with pytest.raises(UpdateFailed) as caught:
            env.updates.terminate(machine(env, 1), decrement=True)
        assert caught.value.status == 502
        env.server.faulty_app.forget()
        assert ends(env) == (3, 3, [])


def test_a_size_set_by_another_client_terminates_no_machines() -> None:
    with lagging_world() as env:
        first = machine(env, 1)
        assert env.updates.terminate(first, decrement=True) == ""
        env.updates.set_size(5)
        env.wait(600)
        assert env.updates.terminate(first, decrement=True) == ""
        assert ends(env) == (5, 5, [])


@pytest.mark.parametrize(("desired", "drained"), [(1, ["pool-1"]), (0, ["pool-1"])])
def test_no_node_of_a_pool_at_its_minimum_is_drained(desired: int, drained: list[str]) -> None:
    with world(lagging(), minSize=2) as env:
        assert env.updates.set_size(desired) == f"1 of {3 - desired} machines were removed: the pool must keep 2"
        assert (env.drained, env.desired) == (drained, 2)
        with pytest.raises(UpdateFailed, match=r"^the pool must keep 2$") as caught:
            env.updates.set_size(desired)
        assert caught.value.status == 500
        with pytest.raises(UpdateFailed, match="the pool must keep 2") as caught:
            env.updates.terminate(machine(env, 2), decrement=True)
        assert (caught.value.status, env.drained, env.tainted) == (500, drained, drained)


def test_no_machine_is_detached_below_the_minimum_of_the_desired_size() -> None:
    with world(lagging(), minSize=3) as env:
        env.server.pool.set_membership(machine(env, 2), active=False, evictable=False)
        with pytest.raises(UpdateFailed, match="the pool must keep 3"):
            env.updates.detach(machine(env, 1), decrement=True)
