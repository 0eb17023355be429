"""Machines given away by the cloudpool provider: what only a pool with a cache and a mind of its own brings about."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.cloudpool.errors import PoolError
from deploy.local.cloudpool.faults import Fault, Kind
from deploy.local.cloudpool.machines import Machine
from deploy.local.cloudpool.server import Server
from deploy.local.cloudpool.settings import Settings
from rescheduler.backends.base import (
    Accepted,
    AlreadyGone,
    BelowMinimum,
    CloudProvider,
    DeadlineExceeded,
    Deleted,
    DeleteOutcome,
    Failed,
    InstanceState,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.backends.http import ServerFault
from tests.backends.clocks import StepClock
from tests.backends.cloudpools import GROUP, document, node_of, providing, serving, settings

TERMINATE = "/pool/terminate"
LATER = 10_000.0


class Pool:
    """A reference cloudpool whose provider has been there for five minutes."""

    def __init__(self, server: Server, clock: StepClock, provider: CloudProvider) -> None:
        self.server, self.clock, self.provider = server, clock, provider

    @property
    def machines(self) -> list[Machine]:
        return self.server.pool.machines()

    @property
    def desired(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def states(self) -> list[str]:
        return [machine.state(self.clock.now()) for machine in self.machines]

    def orders(self) -> list[Any]:
        return [json.loads(one.body) for one in self.server.face.requests if one.path == TERMINATE]

    def delete(self, *nodes: NodeRef, within: float = 600.0) -> list[DeleteOutcome]:
        deadline = self.clock.monotonic() + within
        return list(self.provider.delete_nodes(GROUP, nodes, deadline=deadline).values())

    def node(self, index: int = 0, **changes: Any) -> NodeRef:
        return node_of(self.machines[index], **changes)

    def inject(self, kind: Kind = "answer", *, path: str = TERMINATE, method: str = "POST", **fault: Any) -> None:
        self.server.face.inject(Fault(path=path, method=method, kind=kind, **fault))


@contextlib.contextmanager
def pool(served: Settings | None = None, **section: Any) -> Iterator[Pool]:
    clock = StepClock()
    keys = {"settleTime": "100s", "orderTimeout": "300ms"} | section
    with serving(served or settings(), clock) as server, providing(server, clock, **keys) as provider:
        clock.advance(300)
        yield Pool(server, clock, provider)


# -- what counts as gone


def test_a_view_from_before_the_order_is_not_believed_the_next_one_is() -> None:
    with pool() as world:
        world.provider.refresh(deadline=LATER)
        world.clock.advance(20)
        began = world.clock.monotonic()
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert 10 <= world.clock.monotonic() - began <= 13
        assert world.desired == 2


def test_a_slow_end_is_as_good_as_an_end() -> None:
    with pool(settings(pool=document(terminationDelay="1h"))) as world:
        assert world.delete(world.node()) == [Deleted("TERMINATING")]


def test_no_time_to_see_the_end_is_no_end() -> None:
    with pool() as world:
        assert world.delete(world.node(), within=10) == [
            Accepted("the pool took the order; the pool lists it as RUNNING")
        ]
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert (len(world.orders()), world.desired) == (1, 2)


def test_one_that_ended_by_itself_is_gone_without_an_order() -> None:
    with pool() as world:
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        world.clock.advance(31)
        assert world.delete(world.node()) == [AlreadyGone("TERMINATED")]
        assert (world.orders(), world.desired) == ([], 2)


def test_one_that_was_forgotten_is_remembered_by_its_node() -> None:
    with pool() as world:
        node = world.node()
        world.delete(node)
        world.clock.advance(3600)
        assert world.delete(node) == [Deleted("no longer in the pool")]
        assert (len(world.orders()), world.desired) == (1, 2)


def test_a_404_for_one_that_left_meanwhile_is_a_success() -> None:
    with pool() as world:
        node = world.node()
        world.inject(status=404, acted=True)
        assert world.delete(node) == [AlreadyGone("TERMINATED")]


def test_a_404_for_one_that_is_there_is_the_wrong_path() -> None:
    with pool() as world:
        world.inject(status=404, body="<html>", times=99)
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Failed)
        assert "is this the right API (v5 or multipool)" in outcome.error
        assert world.states() == ["RUNNING"] * 3


# -- never a second decrement

#: fact: faults of the orders, one after the other; what the cloud says to a second termination
LOST: dict[str, tuple[list[dict[str, Any]], str]] = {
    "the connection breaks after the deed": ([{"kind": "reset", "acted": True}], "ok"),
    "the answer is cut": ([{"kind": "cut"}], "ok"),
    "the pool acts and answers too late": ([{"kind": "hang", "acted": True}], "ok"),
    "a gateway gives up after the deed": ([{"status": 504, "acted": True, "body": "<html>"}], "ok"),
    "a gateway fails after the deed": ([{"status": 502, "acted": True, "body": "<html>"}], "ok"),
    "the pool reports a failure after the deed": ([{"status": 500, "acted": True}], "ok"),
    "a failure, then a lost answer": ([{"status": 500}, {"kind": "reset", "acted": True}], "ok"),
    "lost before the deed": ([{"kind": "reset"}], "error"),
    "lost twice before the deed": ([{"kind": "hang"}, {"kind": "reset"}], "error"),
    "failures of the pool": ([{"status": 500}, {"status": 502}, {"status": 503}], "error"),
    "too many requests": ([{"status": 429, "headers": {"retry-after": "3"}}], "error"),
}


@pytest.mark.parametrize("fact", LOST)
def test_whatever_happens_to_the_answer_one_machine_goes_and_the_size_falls_by_one(fact: str) -> None:
    faults, second = LOST[fact]
    with pool(settings(second_termination=second)) as world:
        for fault in faults:
            world.inject(**fault)
        assert world.delete(world.node(), within=3600) == [Deleted("TERMINATED")]
        assert (world.states(), world.desired) == (["TERMINATED", "RUNNING", "RUNNING"], 2)


def test_an_answer_that_is_lost_is_not_followed_by_an_order_while_it_may_be_at_work() -> None:
    with pool() as world:
        world.inject("reset")
        node = world.node()
        said = "the order got no answer; the pool lists it as RUNNING: cloudpool on-demand: POST /pool/terminate: "
        (outcome,) = world.delete(node, within=90)
        assert isinstance(outcome, Accepted)
        assert outcome.detail.startswith(said)
        assert len(world.orders()) == 1
        assert world.delete(node, within=60) == [Deleted("TERMINATED")]
        assert len(world.orders()) == 2


def test_one_that_ended_before_the_size_was_lowered_is_not_ordered_again() -> None:
    with pool() as world:
        machine = world.machines[0]
        with pytest.raises(PoolError, match="failed to terminate machine"):
            world.server.pool.terminate(machine.id(world.clock.now()), decrement=True, fail_before_decrement=True)
        assert world.delete(world.node()) in ([AlreadyGone("TERMINATED")], [Deleted("TERMINATED")])
        assert world.states()[0] == "TERMINATED"


def test_a_machine_that_survives_its_termination_is_ordered_again_without_lowering_twice() -> None:
    with pool() as world:
        world.inject(status=200, body="")
        (first,) = world.delete(world.node(), within=60)
        assert first == Accepted("the pool took the order; the pool lists it as RUNNING")
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert [order["decrementDesiredSize"] for order in world.orders()] == [True, False]


def test_an_order_of_an_earlier_process_is_waited_for_then_given() -> None:
    with pool() as world:
        resumed = world.node(ordered_at=world.clock.now())
        (outcome,) = world.delete(resumed, within=90)
        assert isinstance(outcome, Accepted)
        assert (world.orders(), world.states()[0]) == ([], "RUNNING")
        assert world.delete(resumed) == [Deleted("TERMINATED")]
        assert world.desired == 2


def test_an_order_of_an_earlier_process_that_was_carried_out_is_found() -> None:
    with pool(settings(second_termination="ok")) as world:
        resumed = world.node(ordered_at=world.clock.now())
        world.provider.refresh(deadline=LATER)
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        assert world.delete(resumed) == [AlreadyGone("TERMINATED")]
        assert (world.orders(), world.desired) == ([], 2)


def test_an_order_of_an_earlier_process_whose_machine_is_forgotten_is_done() -> None:
    with pool() as world:
        resumed = world.node(ordered_at=world.clock.now())
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        world.clock.advance(600)
        assert world.delete(resumed) == [AlreadyGone("no longer in the pool")]


def test_a_young_process_mistrusts_what_the_pool_saw_before_its_time() -> None:
    clock = StepClock()
    with serving(settings(second_termination="ok"), clock) as server:
        server.pool.pool()
        server.pool.terminate(server.pool.machines()[0].id(clock.now()), decrement=True)
        with providing(server, clock) as provider:
            node = node_of(server.pool.machines()[0])
            outcome = provider.delete_nodes(GROUP, [node], deadline=600.0)[node.name]
            assert outcome == AlreadyGone("TERMINATED")
            assert server.pool.size()["desiredSize"] == 2


# -- what is refused


def test_a_protected_machine_is_refused_and_foretold() -> None:
    with pool(settings(refresh_interval=0)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=True, evictable=False)
        refused = Refused(Refusal.PROTECTED, "its membership status says that it is not evictable")
        foretold = world.provider.refusals(GROUP, [world.node(0), world.node(1)], deadline=LATER)
        assert foretold == {world.node().name: refused}
        assert world.delete(world.node()) == [refused]
        assert (world.orders(), world.states()[0]) == ([], "RUNNING")


def test_an_inactive_machine_goes_without_lowering_the_size() -> None:
    with pool(settings(refresh_interval=0, pool_update=99999)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=False, evictable=True)
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert ([order["decrementDesiredSize"] for order in world.orders()], world.desired) == ([False], 3)


def test_an_inactive_machine_is_no_member_of_the_group() -> None:
    with pool(settings(refresh_interval=0)) as world:
        world.server.pool.set_membership(world.machines[0].id(world.clock.now()), active=False, evictable=False)
        assert world.provider.group_for(world.node(), deadline=LATER) is None
        assert len(world.provider.instances(GROUP, deadline=LATER)) == 2


def test_doubt_touches_nothing() -> None:
    with pool() as world:
        shared = world.machines[0].private_ip
        twins = [NodeRef("a", internal_ips=(shared,)), NodeRef("b", internal_ips=(shared,))]
        assert [outcome.reason for outcome in world.delete(*twins) if isinstance(outcome, Refused)] == [
            Refusal.AMBIGUOUS,
            Refusal.AMBIGUOUS,
        ]
        assert (world.orders(), world.desired) == ([], 3)


def test_refusals_of_all_kinds_are_foretold() -> None:
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


def test_an_order_that_may_be_at_work_counts_against_the_minimum() -> None:
    with pool(minSize=2) as world:
        world.inject("reset")
        world.delete(world.node(0), within=20)
        assert world.delete(world.node(1), within=20) == [
            Refused(Refusal.BELOW_MINIMUM, "group on-demand must keep 2, 1 would be left")
        ]


def test_the_minimum_is_judged_on_the_size_that_the_change_before_left() -> None:
    patient = {"timeout": "10m"}  # one thread's waiting is time that passes for the other
    with pool(settings(desired_size=5), minSize=4, backend=patient) as world:
        size = '{"desiredSize": 5}'
        world.inject(path="/pool/size", method="GET", status=200, body=size, delay=0.3)
        with ThreadPoolExecutor(2) as threads:
            outcomes = list(threads.map(lambda index: world.delete(world.node(index))[0], (0, 1)))
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Deleted", "Refused"]
        assert world.desired == 4


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_the_failure_of_a_gateway_is_not_the_pools(status: int) -> None:
    with pool() as world:
        world.inject(status=status, body="<html>")
        (outcome,) = world.delete(world.node(), within=90)
        assert isinstance(outcome, Accepted)
        assert len(world.orders()) == 1


# -- when the pool cannot be asked


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"status": 500, "body": '{"message": "no", "detail": ""}'}, "GET /pool: 500 Internal Server Error: no"),
        ({"status": 404, "body": ""}, "GET /pool: 404 Not Found"),
        ({"status": 401, "body": ""}, "GET /pool: 401 Unauthorized"),
        ({"status": 200, "body": "[]"}, "GET /pool: the answer is not what the API promises"),
    ],
)
def test_a_pool_that_cannot_be_seen_fails_closed(fault: dict[str, Any], said: str) -> None:
    with pool() as world:
        world.inject(path="/pool", method="GET", times=999, **fault)
        (outcome,) = world.delete(world.node(), within=60)
        assert isinstance(outcome, Failed)
        assert said in outcome.error
        assert outcome.retryable
        (resumed,) = world.delete(world.node(ordered_at=world.clock.now()), within=60)
        assert isinstance(resumed, Accepted)
        assert (world.orders(), world.states()) == ([], ["RUNNING"] * 3)


def test_a_size_that_cannot_be_read_orders_nothing() -> None:
    with pool() as world:
        world.inject(path="/pool/size", method="GET", times=999)
        (outcome,) = world.delete(world.node(), within=60)
        assert isinstance(outcome, Failed)
        assert world.orders() == []


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, True), (403, True), (302, False)])
def test_an_order_that_is_turned_away_for_good_ends_at_once(status: int, retryable: bool) -> None:
    with pool() as world:
        world.inject(status=status, body="")
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Failed)
        assert (outcome.retryable, len(world.orders()), world.clock.monotonic()) == (retryable, 1, 300.0)


def test_a_closed_provider_ends_its_waits() -> None:
    with pool() as world:
        world.provider.close()
        assert isinstance(world.delete(world.node())[0], Failed)


# -- every form of id, from end to end


@pytest.mark.parametrize(
    "cloud", ["AWS-EC2", "AWS-SPOT", "AWS-AUTO-SCALING-GROUP", "GCE", "Azure", "OpenStack", "CityCloud"]
)
def test_every_cloud(cloud: str) -> None:
    with pool(settings(pool=document(cloudProvider=cloud))) as world:
        node = NodeRef(world.machines[1].name, world.machines[1].provider_id)
        instances = world.provider.instances(GROUP, deadline=LATER)
        assert {one.id for one in instances} == {machine.provider_id for machine in world.machines}
        assert {one.spot for one in instances} == {{"AWS-SPOT": True, "AWS-EC2": False}.get(cloud)}
        assert world.provider.group_for(node, deadline=LATER) is not None
        assert world.provider.has_instance(node, deadline=LATER) is True
        assert world.delete(node) == [Deleted("TERMINATED")]
        assert world.states() == ["RUNNING", "TERMINATED", "RUNNING"]
        assert world.provider.has_instance(node, deadline=LATER) is False


def test_a_multipool() -> None:
    with pool(settings(api="multipool"), api="multipool") as world:
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert world.server.face.requests[-1].path == "/cloudpools/pool/pool"


# -- sizes, instances, templates


def test_instances_tell_their_states() -> None:
    slow = document(requestDelay="1h", terminationDelay="1h")
    with pool(settings(pool=slow, desired_size=2, refresh_interval=0)) as world:
        world.clock.advance(3600)
        world.provider.increase_size(GROUP, 1, deadline=LATER)
        world.delete(world.node(0))
        assert [one.state for one in world.provider.instances(GROUP, deadline=LATER)] == [
            InstanceState.DELETING,
            InstanceState.RUNNING,
            InstanceState.CREATING,
        ]


def test_a_rejected_request_is_an_error_of_its_instance() -> None:
    with pool(settings(pool=document(quota=2), refresh_interval=0)) as world:
        failed = [one for one in world.provider.instances(GROUP, deadline=LATER) if one.error]
        assert {(one.state, one.error.code) for one in failed if one.error} == {(InstanceState.CREATING, "REJECTED")}
        placeholder = NodeRef(failed[0].id, failed[0].id)
        assert world.delete(placeholder) == [AlreadyGone("REJECTED")]


@pytest.mark.parametrize("cloud", ["AWS-EC2", "AWS-AUTO-SCALING-GROUP", "GCE"])
def test_requests_are_given_up_one_by_one_and_nothing_that_runs(cloud: str) -> None:
    made = document(cloudProvider=cloud, requestDelay="1h")
    with pool(settings(pool=made, desired_size=2)) as world:
        world.clock.advance(3600)
        world.provider.increase_size(GROUP, 3, deadline=LATER)
        assert world.states() == ["RUNNING"] * 2 + ["REQUESTED"] * 3
        world.provider.decrease_target_size(GROUP, -2, deadline=LATER)
        assert sorted(world.states()) == ["REQUESTED", "RUNNING", "RUNNING", "TERMINATED", "TERMINATED"]
        assert world.desired == 3
        with pytest.raises(BelowMinimum, match="1 is below 2, which run or must be"):
            world.provider.decrease_target_size(GROUP, -2, deadline=LATER)


def test_what_was_never_requested_is_given_up_by_the_number() -> None:
    with pool(settings(pool_update=99999)) as world:
        world.server.pool.cloud_down = True
        world.provider.increase_size(GROUP, 4, deadline=LATER)
        assert (world.desired, len(world.states())) == (7, 3)
        world.provider.decrease_target_size(GROUP, -4, deadline=LATER)
        assert (world.desired, world.states(), world.orders()) == (3, ["RUNNING"] * 3, [])


def test_a_view_from_before_the_call_gives_up_no_request() -> None:
    with pool(settings(pool=document(requestDelay="1h"), desired_size=1, refresh_interval=3600)) as world:
        with pytest.raises(DeadlineExceeded, match="the pool's answers are older than"):
            world.provider.decrease_target_size(GROUP, -1, deadline=world.clock.monotonic() + 60)
        assert world.orders() == []


def test_no_template_is_not_supported() -> None:
    with pool() as world, pytest.raises(NotSupported, match="no template is configured"):
        world.provider.template(GROUP, deadline=LATER)


def test_a_template_is_told_as_configured() -> None:
    template = {
        "labels": {"a": "b"},
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "capacity": {"cpu": "4"},
    }
    with pool(template=template) as world:
        told = world.provider.template(GROUP, deadline=LATER)
        assert (told.labels, told.capacity, told.allocatable) == ({"a": "b"}, {"cpu": "4"}, {"cpu": "4"})
        assert [(taint.key, taint.value, taint.effect) for taint in told.taints] == [("k", "", "NoSchedule")]


def test_a_group_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pool() as world, pytest.raises(UnknownGroup, match="no group 'x'; the groups are on-demand"):
        world.provider.target_size("x", deadline=LATER)


def test_one_look_serves_for_the_refresh_interval() -> None:
    with pool(refreshInterval="10s") as world:
        for _ in range(3):
            world.provider.refresh(deadline=LATER)
            world.provider.group_for(world.node(), deadline=LATER)
        assert len(world.server.face.requests) == 1
        world.clock.advance(10)
        world.provider.refresh(deadline=LATER)
        assert len(world.server.face.requests) == 2


def test_a_look_that_failed_is_not_waited_for() -> None:
    with pool(backend={"attempts": 1}) as world:
        world.inject(path="/pool", method="GET")
        with pytest.raises(ServerFault):
            world.provider.refresh(deadline=LATER)
        world.provider.refresh(deadline=LATER)
        assert world.provider.group_for(world.node(), deadline=LATER) is not None


faults = st.sampled_from(
    [
        {"kind": "reset"},
        {"kind": "reset", "acted": True},
        {"kind": "cut"},
        {"status": 500},
        {"status": 500, "acted": True},
        {"status": 502, "body": "<html>"},
        {"status": 502, "body": "<html>", "acted": True},
        {"status": 404, "acted": True},
        {"status": 429},
    ]
)


@hypothesis.settings(max_examples=20, deadline=None)
@given(orders=st.lists(faults, max_size=4), looks=st.lists(faults, max_size=4), second=st.sampled_from(["ok", "error"]))
def test_no_mixture_of_faults_takes_two_or_lowers_twice(
    orders: list[dict[str, Any]], looks: list[dict[str, Any]], second: str
) -> None:
    with pool(settings(second_termination=second)) as world:
        for fault in orders:
            world.inject(**fault)
        for fault in looks:
            world.inject(path="/pool", method="GET", **fault)
        (outcome,) = world.delete(world.node(), within=7200)
        gone = isinstance(outcome, Deleted | AlreadyGone)
        assert gone or isinstance(outcome, Failed | Accepted)
        assert world.states() == ["TERMINATED" if gone else "RUNNING", "RUNNING", "RUNNING"]
        assert world.desired == (2 if gone else 3)
