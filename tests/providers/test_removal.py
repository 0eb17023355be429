"""Machine deletions by the cloudpool provider: cases caused by the pool's cache and its own decisions."""

from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.cloudpool.errors import PoolError
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, Failed
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import GROUP, document, node_of, providing, serving, settings
from tests.providers.pools import LATER, pool

# -- conditions for a completed deletion


def test_a_view_from_before_the_order_is_ignored() -> None:
    with pool() as world:
        world.provider.refresh(deadline=LATER)
        world.clock.advance(20)
        began = world.clock.monotonic()
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert 10 <= world.clock.monotonic() - began <= 13
        assert world.desired == 2


def test_a_slow_termination_is_awaited() -> None:
    with pool(settings(pool=document(terminationDelay="1h"))) as world:
        assert world.delete(world.node()) == [Deleted("TERMINATING")]


def test_without_time_to_confirm_the_termination_the_order_is_only_accepted() -> None:
    with pool() as world:
        assert world.delete(world.node(), within=10) == [
            Accepted("the pool accepted the order; the pool lists it as RUNNING")
        ]
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert (len(world.orders()), world.desired) == (1, 2)


def test_a_view_that_fails_is_requested_once_in_each_poll_interval() -> None:
    with pool(pollInterval="2s") as world:
        world.inject(path="/pool", method="GET", times=99)
        before = len(world.server.faulty_app.requests)
        (outcome,) = world.delete(world.node(), within=10)
        assert isinstance(outcome, Failed)
        assert (outcome.retryable, world.orders()) == (True, [])
        assert len(world.server.faulty_app.requests) - before == 5


def test_a_machine_that_terminated_without_an_order_is_gone() -> None:
    with pool() as world:
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        world.clock.advance(31)
        assert world.delete(world.node()) == [AlreadyGone("TERMINATED")]
        assert (world.orders(), world.desired) == ([], 2)


def test_a_machine_that_is_no_longer_listed_is_resolved_by_its_node() -> None:
    with pool() as world:
        node = world.node()
        world.delete(node)
        world.clock.advance(3600)
        assert world.delete(node) == [Deleted("no longer in the pool")]
        assert (len(world.orders()), world.desired) == (1, 2)


def test_a_404_for_a_machine_that_has_terminated_is_a_success() -> None:
    with pool() as world:
        node = world.node()
        world.inject(status=404, acted=True)
        assert world.delete(node) == [AlreadyGone("TERMINATED")]


def test_a_404_for_a_listed_machine_means_a_wrong_path() -> None:
    with pool() as world:
        world.inject(status=404, body="<html>", times=99)
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Failed)
        assert "check the URL and the API (v5 or multipool)" in outcome.error
        assert world.states() == ["RUNNING"] * 3


def test_after_a_404_for_a_listed_machine_a_new_call_sends_a_new_order() -> None:
    with pool() as world:
        world.inject(status=404)
        node = world.node()
        assert isinstance(world.delete(node)[0], Failed)
        assert world.delete(node) == [Deleted("TERMINATED")]
        assert (len(world.orders()), world.desired) == (2, 2)


def test_a_new_call_after_failures_skips_the_back_off() -> None:
    with pool(settings(refresh_interval=1)) as world:
        world.inject(status=502, times=99)
        node = world.node()
        assert isinstance(world.delete(node, within=120)[0], Failed)
        tries = len(world.orders())
        assert isinstance(world.delete(node, within=20)[0], Failed)
        assert len(world.orders()) > tries + 1
        assert (world.states(), world.desired) == (["RUNNING"] * 3, 3)


# -- never two decrements

#: fact: faults of consecutive orders; the cloud's response to a second termination
LOST: dict[str, tuple[list[dict[str, Any]], str]] = {
    "the connection breaks after the termination": ([{"kind": "reset", "acted": True}], "ok"),
    "the answer is cut": ([{"kind": "cut"}], "ok"),
    "the pool acts and answers too late": ([{"kind": "hang", "acted": True}], "ok"),
    "a gateway times out after the termination": ([{"status": 504, "acted": True, "body": "<html>"}], "ok"),
    "a gateway fails after the termination": ([{"status": 502, "acted": True, "body": "<html>"}], "ok"),
    "the pool reports a failure after the termination": ([{"status": 500, "acted": True}], "ok"),
    "a failure, then a lost answer": ([{"status": 500}, {"kind": "reset", "acted": True}], "ok"),
    "lost before the termination": ([{"kind": "reset"}], "error"),
    "lost twice before the termination": ([{"kind": "hang"}, {"kind": "reset"}], "error"),
    "failures of the pool": ([{"status": 500}, {"status": 502}, {"status": 503}], "error"),
    "too many requests": ([{"status": 429, "headers": {"retry-after": "3"}}], "error"),
}


@pytest.mark.parametrize("fact", LOST)
def test_one_machine_terminates_and_the_size_falls_by_one_despite_faults(fact: str) -> None:
    faults, second = LOST[fact]
    patience = "1s" if any(fault.get("kind") == "hang" for fault in faults) else "60s"
    with pool(settings(second_termination=second), orderTimeout=patience) as world:
        for fault in faults:
            world.inject(**fault)
        assert world.delete(world.node(), within=3600) == [Deleted("TERMINATED")]
        assert (world.states(), world.desired) == (["TERMINATED", "RUNNING", "RUNNING"], 2)


def test_no_second_order_while_one_with_a_lost_response_may_take_effect() -> None:
    with pool() as world:
        world.inject("reset")
        node = world.node()
        message = "the order got no response; the pool lists it as RUNNING: cloudpool on-demand: POST /pool/terminate: "
        (outcome,) = world.delete(node, within=90)
        assert isinstance(outcome, Accepted)
        assert outcome.detail.startswith(message)
        assert len(world.orders()) == 1
        assert world.delete(node, within=60) == [Deleted("TERMINATED")]
        assert len(world.orders()) == 2


def test_a_machine_that_terminated_before_the_decrement_is_not_ordered_again() -> None:
    with pool() as world:
        machine = world.machines[0]
        world.server.pool.failing_terminations = 1
        with pytest.raises(PoolError, match="failed to terminate i-"):
            world.server.pool.terminate(machine.id(world.clock.now()), decrement=True)
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Deleted)
        assert outcome.unshrunk.endswith("its desired size is still 3, so it launches a replacement")
        assert world.states()[0] == "TERMINATED"


def test_a_lost_decrement_is_reported_with_the_pools_message() -> None:
    with pool(settings(second_termination="ok")) as world:
        world.server.pool.failing_terminations = 1
        (outcome,) = world.delete(world.node())
        assert isinstance(outcome, Deleted)
        assert "502 Bad Gateway: failed to terminate i-" in outcome.unshrunk
        assert (world.desired, world.states()[0]) == (3, "TERMINATED")


def test_a_decrement_overridden_by_another_client_is_reported() -> None:
    """The pool returns 200, and keeps the size that was set while the machine was being terminated."""
    with pool() as world:
        world.inject(path="/pool/size", method="GET", status=200, body='{"desiredSize": 2}')
        assert world.delete(world.node()) == [
            Deleted(
                "TERMINATED", "the pool accepted the order; its desired size is still 2, so it launches a replacement"
            )
        ]


def test_a_machine_that_survives_its_termination_is_ordered_again_without_lowering_twice() -> None:
    with pool() as world:
        world.inject(status=200, body="")
        (first,) = world.delete(world.node(), within=60)
        assert first == Accepted("the pool accepted the order; the pool lists it as RUNNING")
        assert world.delete(world.node()) == [Deleted("TERMINATED")]
        assert [order["decrementDesiredSize"] for order in world.orders()] == [True, True]
        assert world.desired == 2


def test_an_unsent_order_of_an_earlier_process_is_sent_after_a_wait() -> None:
    with pool() as world:
        resumed = world.node(ordered_at=world.clock.now())
        (outcome,) = world.delete(resumed, within=90)
        assert isinstance(outcome, Accepted)
        assert (world.orders(), world.states()[0]) == ([], "RUNNING")
        assert world.delete(resumed) == [Deleted("TERMINATED")]
        assert world.desired == 2


def test_a_completed_order_of_an_earlier_process_is_detected() -> None:
    with pool(settings(second_termination="ok")) as world:
        resumed = world.node(ordered_at=world.clock.now())
        world.provider.refresh(deadline=LATER)
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        assert world.delete(resumed) == [AlreadyGone("TERMINATED")]
        assert (world.orders(), world.desired) == ([], 2)


def test_an_order_of_an_earlier_process_for_an_unlisted_machine_is_complete() -> None:
    with pool() as world:
        resumed = world.node(ordered_at=world.clock.now())
        world.server.pool.terminate(world.machines[0].id(world.clock.now()), decrement=True)
        world.clock.advance(600)
        assert world.delete(resumed) == [AlreadyGone("no longer in the pool")]


def test_a_new_process_ignores_views_from_before_its_start() -> None:
    clock = StepClock()
    with serving(settings(second_termination="ok"), clock) as server:
        server.pool.pool()
        server.pool.terminate(server.pool.machines()[0].id(clock.now()), decrement=True)
        with providing(server, clock) as provider:
            node = node_of(server.pool.machines()[0])
            outcome = provider.delete_nodes(GROUP, [node], deadline=600.0)[node.name]
            assert outcome == AlreadyGone("TERMINATED")
            assert server.pool.size()["desiredSize"] == 2


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
def test_no_combination_of_faults_terminates_two_machines_or_lowers_twice(
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
