"""The cloudpool provider's description of a pool: ids of every cloud, instances, sizes, templates."""

import pytest

from rescheduler.cloudpool.client import CloudPoolClient, PoolObservation
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.http_errors import NoResponse, ServerFault
from rescheduler.providers.base import (
    AlreadyGone,
    BelowMinimum,
    Deleted,
    InstanceState,
    NodeRef,
    NotSupported,
    UnknownGroup,
)
from tests.providers.cloudpools import GROUP, document, settings
from tests.providers.pools import LATER, pool

# -- every form of id, end to end


@pytest.mark.parametrize(
    "cloud", ["AWS-EC2", "AWS-SPOT", "AWS-AUTO-SCALING-GROUP", "GCE", "Azure", "OpenStack", "CityCloud"]
)
def test_the_ids_of_instances_are_those_of_each_cloud(cloud: str) -> None:
    with pool(settings(pool=document(cloudProvider=cloud))) as world:
        node = NodeRef(world.machines[1].name, world.machines[1].provider_id)
        instances = world.provider.instances(GROUP, deadline=LATER)
        assert {instance.id for instance in instances} == {machine.provider_id for machine in world.machines}
        assert {instance.spot for instance in instances} == {{"AWS-SPOT": True, "AWS-EC2": False}.get(cloud)}
        assert world.provider.group_for(node, deadline=LATER) is not None
        assert world.provider.has_instance(node, deadline=LATER) is True
        assert world.delete(node) == [Deleted("TERMINATED")]
        assert world.states() == ["RUNNING", "TERMINATED", "RUNNING"]
        assert world.provider.has_instance(node, deadline=LATER) is False


def test_the_paths_of_a_multipool_are_used() -> None:
    with pool(settings(api="multipool"), api="multipool") as world:
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert world.server.faulty_app.requests[-1].path == "/cloudpools/pool/pool"


# -- sizes, instances, templates


def test_instances_have_the_states_of_their_machines() -> None:
    slow = document(requestDelay="1h", terminationDelay="1h")
    with pool(settings(pool=slow, desired_size=2, refresh_interval=0)) as world:
        world.clock.advance(3600)
        world.provider.increase_size(GROUP, 1, deadline=LATER)
        world.delete(world.node(0))
        assert [instance.state for instance in world.provider.instances(GROUP, deadline=LATER)] == [
            InstanceState.DELETING,
            InstanceState.RUNNING,
            InstanceState.CREATING,
        ]


def test_a_rejected_request_is_an_error_of_its_instance() -> None:
    with pool(settings(pool=document(quota=2), refresh_interval=0)) as world:
        failed = [instance for instance in world.provider.instances(GROUP, deadline=LATER) if instance.error]
        assert {(item.state, item.error.code) for item in failed if item.error} == {
            (InstanceState.CREATING, "REJECTED")
        }
        placeholder = NodeRef(failed[0].id, failed[0].id)
        assert world.delete(placeholder) == [AlreadyGone("REJECTED")]


@pytest.mark.parametrize("cloud", ["AWS-EC2", "AWS-AUTO-SCALING-GROUP", "GCE"])
def test_requests_are_canceled_one_by_one_and_running_machines_are_kept(cloud: str) -> None:
    keys = document(cloudProvider=cloud, requestDelay="1h")
    with pool(settings(pool=keys, desired_size=2)) as world:
        world.clock.advance(3600)
        world.provider.increase_size(GROUP, 3, deadline=LATER)
        assert world.states() == ["RUNNING"] * 2 + ["REQUESTED"] * 3
        world.provider.decrease_target_size(GROUP, -2, deadline=LATER)
        assert sorted(world.states()) == ["REQUESTED", "RUNNING", "RUNNING", "TERMINATED", "TERMINATED"]
        assert world.desired == 3
        with pytest.raises(BelowMinimum, match="1 is less than the 2 machines that are running or required"):
            world.provider.decrease_target_size(GROUP, -2, deadline=LATER)


def test_machines_not_yet_requested_are_canceled_by_lowering_the_size() -> None:
    with pool(settings(pool=document(quota=3), pool_update=99999)) as world:
        world.provider.increase_size(GROUP, 4, deadline=LATER)
        assert (world.desired, world.states().count("RUNNING")) == (7, 3)
        world.provider.decrease_target_size(GROUP, -4, deadline=LATER)
        assert (world.desired, world.states().count("RUNNING"), world.orders()) == (3, 3, [])


def test_the_size_is_not_lowered_while_machines_may_be_launching() -> None:
    """Calls with short deadlines fail until the machines were missing for the settle time, which spans the calls."""
    with pool(settings(pool=document(quota=3), pool_update=99999), settleTime="100s") as world:
        world.provider.increase_size(GROUP, 4, deadline=LATER)
        began, failures = world.clock.monotonic(), []
        while world.desired == 7:
            try:
                world.provider.decrease_target_size(GROUP, -4, deadline=world.clock.monotonic() + 45)
            except DeadlineExceeded as error:
                failures.append(str(error))
        assert (world.desired, world.orders(), world.clock.monotonic() - began >= 100) == (3, [], True)
        assert failures[-1] == ("cloudpool on-demand: it lists 3 of 7 desired machines; it may be launching more")


@pytest.mark.parametrize("later", [0, 31])
def test_machines_missing_in_an_old_view_do_not_cost_other_machines(later: float) -> None:
    """The machines already run when the call arrives, so nothing is given up and the pool's size is not changed."""
    keys = document(victimSelectionPolicy="OLDEST", startBlocks="60s")
    with pool(settings(pool=keys, list_delay=2)) as world:
        world.provider.refresh(deadline=LATER)
        world.provider.increase_size(GROUP, 2, deadline=LATER)
        world.clock.advance(later)
        with pytest.raises(BelowMinimum, match="4 is less than the 5 machines that are running or required"):
            world.provider.decrease_target_size(GROUP, -1, deadline=LATER)
        world.clock.advance(600)
        assert (world.desired, world.states()) == (5, ["RUNNING"] * 5)


def test_the_size_is_not_lowered_based_on_a_view_from_before_the_call() -> None:
    with pool(settings(pool=document(requestDelay="1h"), desired_size=1, refresh_interval=3600)) as world:
        with pytest.raises(DeadlineExceeded, match="the pool's responses are older than"):
            world.provider.decrease_target_size(GROUP, -1, deadline=world.clock.monotonic() + 60)
        assert world.orders() == []


@pytest.mark.parametrize(("passes", "error"), [(20, DeadlineExceeded), (1, NoResponse)])
def test_a_timed_out_last_read_is_not_a_failure_of_the_pool(
    passes: float, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    really = CloudPoolClient.pool
    with pool(settings(pool=document(requestDelay="1h"), desired_size=1, refresh_interval=3600)) as world:
        end = world.clock.monotonic() + 60

        def late(client: CloudPoolClient, *, deadline: float) -> PoolObservation:
            if world.clock.monotonic() > end - 20:
                world.clock.advance(passes)
                raise NoResponse("no answer: timed out")
            return really(client, deadline=deadline)

        monkeypatch.setattr(CloudPoolClient, "pool", late)
        with pytest.raises(error, match="no answer" if error is NoResponse else "the pool's responses are older than"):
            world.provider.decrease_target_size(GROUP, -1, deadline=end)


def test_a_missing_template_is_not_supported() -> None:
    with pool() as world, pytest.raises(NotSupported, match="no template is configured"):
        world.provider.template(GROUP, deadline=LATER)


def test_the_configured_template_is_returned() -> None:
    template = {
        "labels": {"a": "b"},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "capacity": {"cpu": "4"},
    }
    with pool(template=template) as world:
        response = world.provider.template(GROUP, deadline=LATER)
        assert (response.labels, response.capacity, response.allocatable) == ({"a": "b"}, {"cpu": "4"}, {"cpu": "4"})
        assert [(taint.key, taint.value, taint.effect) for taint in response.taints] == [("k", "", "NoSchedule")]


def test_the_error_for_an_unknown_group_lists_the_known_groups() -> None:
    with pool() as world, pytest.raises(UnknownGroup, match="no group 'x'; the groups are on-demand"):
        world.provider.target_size("x", deadline=LATER)


def test_one_read_serves_for_the_refresh_interval() -> None:
    with pool(refreshInterval="10s") as world:
        for _ in range(3):
            world.provider.refresh(deadline=LATER)
            world.provider.group_for(world.node(), deadline=LATER)
        assert len(world.server.faulty_app.requests) == 1
        world.clock.advance(10)
        world.provider.refresh(deadline=LATER)
        assert len(world.server.faulty_app.requests) == 2


def test_a_failed_read_does_not_block() -> None:
    with pool(backend={"attempts": 1}) as world:
        world.inject(path="/pool", method="GET")
        with pytest.raises(ServerFault):
            world.provider.refresh(deadline=LATER)
        world.provider.refresh(deadline=LATER)
        assert world.provider.group_for(world.node(), deadline=LATER) is not None
