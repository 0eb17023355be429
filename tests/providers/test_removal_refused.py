"""Machines that the cloudpool provider refuses to delete, and unavailable pools."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rescheduler.providers.base import Accepted, Deleted, Failed, NodeRef, Refusal, Refused
from tests.providers.cloudpools import GROUP, settings
from tests.providers.pools import LATER, pool

# -- refusals


def test_a_protected_machine_is_rejected_as_forecast() -> None:
    with pool(settings(refresh_interval=0)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=True, evictable=False)
        refused = Refused(Refusal.PROTECTED, "its membership status is not evictable")
        foretold = world.provider.refusals(GROUP, [world.node(0), world.node(1)], deadline=LATER)
        assert foretold == {world.node().name: refused}
        assert world.delete(world.node()) == [refused]
        assert (world.orders(), world.states()[0]) == ([], "RUNNING")


def test_an_inactive_machine_is_deleted_without_lowering_the_size() -> None:
    with pool(settings(refresh_interval=0, pool_update=99999)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=False, evictable=True)
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert ([order["decrementDesiredSize"] for order in world.orders()], world.desired) == ([False], 3)


def test_an_inactive_machine_is_not_a_member_of_the_group() -> None:
    with pool(settings(refresh_interval=0)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=False, evictable=False)
        assert world.provider.group_for(world.node(), deadline=LATER) is None
        assert len(world.provider.instances(GROUP, deadline=LATER)) == 2


def test_ambiguous_machines_are_not_deleted() -> None:
    with pool() as world:
        shared = world.machines[0].private_ip
        twins = [NodeRef("a", internal_ips=(shared,)), NodeRef("b", internal_ips=(shared,))]
        assert [outcome.reason for outcome in world.delete(*twins) if isinstance(outcome, Refused)] == [
            Refusal.AMBIGUOUS,
            Refusal.AMBIGUOUS,
        ]
        assert (world.orders(), world.desired) == ([], 3)


def test_an_ambiguous_machine_that_may_be_terminating_keeps_its_node() -> None:
    """The address of such a machine may already belong to another machine."""
    with pool() as world:
        shared = world.machines[0].private_ip
        rival = NodeRef("b", internal_ips=(shared,))
        resumed = NodeRef("a", internal_ips=(shared,), rivals=(rival,), ordered_at=world.clock.now())
        doubt = "other nodes also have the internal address of machine"
        [outcome] = world.delete(resumed)
        assert isinstance(outcome, Accepted)
        assert doubt in outcome.detail
        world.clock.advance(200)  # longer than settleTime
        [outcome] = world.delete(resumed)
        assert (isinstance(outcome, Refused), world.orders()) == (True, [])


def test_all_rejections_are_forecast() -> None:
    with pool(minSize=2) as world:
        nodes = [
            world.node(0),
            world.node(1),
            NodeRef("stranger", "aws:///z/i-00000000000000000"),
            world.node(2, labels={"node-role.kubernetes.io/control-plane": ""}),
        ]
        foretold = world.provider.refusals(GROUP, nodes, deadline=LATER)
        come = dict(zip([node.name for node in nodes], world.delete(*nodes), strict=True))
        assert {name: outcome for name, outcome in come.items() if isinstance(outcome, Refused)} == foretold
        assert [refusal.reason for refusal in foretold.values()] == [
            Refusal.BELOW_MINIMUM,
            Refusal.NOT_IN_GROUP,
            Refusal.CONTROL_PLANE,
        ]


def test_a_pending_order_counts_for_the_minimum() -> None:
    with pool(minSize=2) as world:
        world.inject("reset")
        world.delete(world.node(0), within=20)
        assert world.delete(world.node(1), within=20) == [
            Refused(Refusal.BELOW_MINIMUM, "group on-demand must keep 2, 1 would be left")
        ]


def test_an_order_that_cannot_take_effect_any_more_does_not_count_for_the_minimum() -> None:
    with pool(minSize=2) as world:
        world.inject("reset")
        world.delete(world.node(0), within=20)
        world.clock.advance(101)  # longer than settleTime
        assert world.provider.refusals(GROUP, [world.node(1)], deadline=LATER) == {}
        assert world.delete(world.node(1)) == [Deleted("TERMINATED")]
        assert (len(world.orders()), world.desired) == (2, 2)


def test_the_minimum_check_uses_the_size_after_the_previous_change() -> None:
    patient = {"timeout": "10m"}  # the clock advances for both threads when one waits
    with pool(settings(desired_size=5), minSize=4, backend=patient) as world:
        size = '{"desiredSize": 5}'
        world.inject(path="/pool/size", method="GET", status=200, body=size, delay=0.3)
        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(lambda index: world.delete(world.node(index))[0], (0, 1)))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Deleted", "Refused"]
        assert world.desired == 4


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_gateway_failure_is_not_a_response_of_the_pool(status: int) -> None:
    with pool() as world:
        world.inject(status=status, body="<html>")
        (outcome,) = world.delete(world.node(), within=90)
        assert isinstance(outcome, Accepted)
        assert len(world.orders()) == 1


# -- unavailable pools


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ({"status": 500, "body": '{"message": "no", "detail": ""}'}, "GET /pool: 500 Internal Server Error: no"),
        ({"status": 404, "body": ""}, "GET /pool: 404 Not Found"),
        ({"status": 401, "body": ""}, "GET /pool: 401 Unauthorized"),
        ({"status": 200, "body": "[]"}, "GET /pool: the response does not match the API"),
    ],
)
def test_an_unreadable_pool_fails_closed(fault: dict[str, Any], message: str) -> None:
    with pool() as world:
        world.inject(path="/pool", method="GET", times=999, **fault)
        (outcome,) = world.delete(world.node(), within=60)
        assert isinstance(outcome, Failed)
        assert message in outcome.error
        assert outcome.retryable
        (resumed,) = world.delete(world.node(ordered_at=world.clock.now()), within=60)
        assert isinstance(resumed, Accepted)
        assert (world.orders(), world.states()) == ([], ["RUNNING"] * 3)


def test_no_order_is_sent_if_the_size_cannot_be_read() -> None:
    with pool() as world:
        world.inject(path="/pool/size", method="GET", times=999)
        (outcome,) = world.delete(world.node(), within=60)
        assert isinstance(outcome, Failed)
        assert world.orders() == []


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, True), (403, True), (302, False)])
def test_a_permanently_rejected_order_fails_at_once(status: int, retryable: bool) -> None:
    with pool() as world:
        world.inject(status=status, body="")
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Failed)
        assert (outcome.retryable, len(world.orders()), world.clock.monotonic()) == (retryable, 1, 300.0)


def test_a_closed_provider_ends_its_waits() -> None:
    with pool() as world:
        world.provider.close()
        assert isinstance(world.delete(world.node())[0], Failed)
