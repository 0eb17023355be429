"""Tests of orders of spot nodes from the provider: limits, progress, nodes that are given back, and the stored form."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rescheduler.planning.room.increase import (
    GroupSize,
    SpotOrder,
    SpotOrders,
    increase_progress,
    surplus,
    why_not_ordered,
)
from rescheduler.planning.room.placeholders import OrderState
from tests.planning.builders import NOW

TIMEOUT = timedelta(minutes=15)
ORDER = SpotOrder("od-1", "uid-od-1", "spot", 2, before=5, at=NOW)


def ended(count: int, minutes: float) -> SpotOrder:
    """Return an order that was placed *minutes* ago and has ended."""
    return SpotOrder("od-0", "uid-od-0", "spot", count, before=0, at=NOW - timedelta(minutes=minutes), ended=True)


LIMITS: dict[str, tuple[int, GroupSize, tuple[SpotOrder, ...], str]] = {
    "up to the maximum": (3, GroupSize("spot", 7, 10), (), ""),
    "above the maximum": (
        4,
        GroupSize("spot", 7, 10),
        (),
        "group spot has 7 of at most 10 nodes; 4 more would be needed",
    ),
    "as many as an hour allows": (10, GroupSize("spot", 0, 99), (), ""),
    "more than an hour allows": (
        11,
        GroupSize("spot", 0, 99),
        (),
        "an order needs 11 spot nodes, but only 10 more may be ordered now (--max-spot-nodes-per-hour=10)",
    ),
    "after orders within the hour": (
        3,
        GroupSize("spot", 0, 99),
        (ended(4, 59), ended(4, 1)),
        "an order needs 3 spot nodes, but only 2 more may be ordered now (--max-spot-nodes-per-hour=10)",
    ),
    "after orders of an hour ago": (3, GroupSize("spot", 0, 99), (ended(9, 60), ended(4, 1)), ""),
}


@pytest.mark.parametrize(("count", "size", "orders", "expected"), LIMITS.values(), ids=LIMITS)
def test_an_order_is_rejected_above_its_limits(
    count: int, size: GroupSize, orders: tuple[SpotOrder, ...], expected: str
) -> None:
    assert why_not_ordered(count, size, SpotOrders(orders), NOW, 10) == expected


#: Seconds since the order, nodes that are Ready, the on-demand node.
STATES: dict[str, tuple[float, int, dict[str, Any], OrderState]] = {
    "no node is Ready": (0, 0, {}, OrderState.WAITING),
    "some nodes are Ready": (899, 1, {}, OrderState.WAITING),
    "all nodes are Ready": (0, 2, {}, OrderState.READY),
    "more nodes are Ready": (0, 3, {}, OrderState.READY),
    "some nodes are late": (900, 1, {}, OrderState.TIMED_OUT),
    "all nodes are kept for another timeout": (1799, 2, {}, OrderState.READY),
    "all nodes are unused": (1800, 2, {}, OrderState.UNUSED),
    "the on-demand node is gone": (0, 0, {"node_uid": None}, OrderState.ENDED),
    "the on-demand node is another one": (0, 2, {"node_uid": "uid-2"}, OrderState.ENDED),
    "the on-demand node is empty": (0, 2, {"has_pods": False}, OrderState.ENDED),
}


@pytest.mark.parametrize(("seconds", "running", "node", "expected"), STATES.values(), ids=STATES)
def test_progress_is_derived_from_the_ready_nodes(
    seconds: float, running: int, node: dict[str, Any], expected: OrderState
) -> None:
    now, arrived = NOW + timedelta(seconds=seconds), [f"spot-{number}" for number in range(running)]
    fields: dict[str, Any] = {"node_uid": "uid-od-1", "has_pods": True} | node
    progress = increase_progress(ORDER, arrived, fields["node_uid"], now, TIMEOUT, has_pods=fields["has_pods"])
    assert (progress.state, progress.until, progress.open) == (
        expected,
        NOW + TIMEOUT,
        expected in (OrderState.WAITING, OrderState.READY),
    )
    assert str(progress) == f"{running} of 2 spot nodes for the pods of node od-1 are Ready"


#: The target size now, nodes that joined, and by how much the size is lowered.
SURPLUS = {
    "nothing arrived": (7, 0, 2),
    "one node arrived": (7, 1, 1),
    "all nodes arrived": (7, 2, 0),
    "more nodes arrived": (7, 3, 0),
    "the order was not accepted": (5, 0, 0),
    "someone lowered the size": (6, 0, 1),
    "someone lowered the size below that before": (3, 0, 0),
    "someone raised the size": (9, 0, 2),
}


@pytest.mark.parametrize(("target", "nodes", "expected"), SURPLUS.values(), ids=SURPLUS)
def test_nodes_that_have_not_arrived_are_cancelled(target: int, nodes: int, expected: int) -> None:
    arrived = tuple(f"uid-{number}" for number in range(nodes))
    assert surplus(msgspec.structs.replace(ORDER, arrived=arrived), target) == expected


def test_an_order_is_opened_closed_and_counted_for_an_hour() -> None:
    orders = SpotOrders().begun(ORDER)
    assert (orders.open, orders.closing(NOW).open) == (ORDER, msgspec.structs.replace(ORDER, closing_since=NOW))
    after = orders.closing(NOW).ended()
    assert (after.open, after.allowed(NOW, 10)) == (None, 8)
    assert after.current(NOW + timedelta(minutes=59)) == after
    assert after.current(NOW + timedelta(minutes=60)) == SpotOrders()
    assert orders.current(NOW + timedelta(days=9)) == orders


def test_orders_that_another_replica_added_are_kept() -> None:
    other = SpotOrder("od-2", "uid-od-2", "spot", 1, before=5, at=NOW)
    base = SpotOrders((ended(1, 10),))
    assert base.begun(ORDER).merged(base.begun(other), base) == base.begun(ORDER).begun(other)
    assert base.begun(ORDER).closing(NOW).merged(base.begun(ORDER), base) == base.begun(ORDER).closing(NOW)
    assert SpotOrders().merged(base, base) == SpotOrders()


def test_only_the_first_of_two_open_orders_is_closed() -> None:
    other = SpotOrder("od-2", "uid-od-2", "spot", 1, before=5, at=NOW)
    two = SpotOrders((ORDER, other))
    assert two.ended().open == other
    assert two.ended().ended().open is None


def test_an_order_with_a_future_time_counts_from_now() -> None:
    """The clock of another replica can be wrong: its order must time out."""
    late = msgspec.structs.replace(ORDER, at=NOW + timedelta(days=300))
    assert SpotOrders((late,)).bounded(NOW) == SpotOrders((ORDER,))


def test_nodes_that_have_arrived_are_recorded() -> None:
    orders = SpotOrders().begun(ORDER).arrived(["a", "b"]).arrived(["b", "c"])
    assert orders.open is not None
    assert orders.open.arrived == ("a", "b", "c")
    assert SpotOrders().arrived(["a"]) == SpotOrders()
