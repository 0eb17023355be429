"""Orders of spot nodes from the cloud provider: from the order to the drain, or until the nodes are given back."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.errors import Permanent, ReschedulerError, Retryable, Withheld
from rescheduler.execution.cluster_view import ClusterView, ViewSources
from rescheduler.execution.context import DrainContext
from rescheduler.execution.room import GIVING_BACK, REREAD_SECONDS, GroupSizes
from rescheduler.facts.round_facts import Known
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.housekeeping.provider_room import LATEST
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import Held, RoomEnded, RoomEnding, RoomOrdered, Trouble, Waiting
from rescheduler.planning.policy import Policy
from rescheduler.planning.room.increase import SpotOrder
from rescheduler.providers.base import (
    AboveMaximum,
    BelowMinimum,
    Deleted,
    DeleteOutcome,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    Refusal,
    Refused,
    any_may_end,
)
from rescheduler.providers.none import NoProvider
from rescheduler.settings import MakeRoom, RoomSettings, Timing
from tests.housekeeping.world import IDENTITY, LoopWorld, world
from tests.planning.builders import ON_DEMAND, SPOT, Manifest, node, pod

ROOM = RoomSettings(MakeRoom.PROVIDER)
TIMING = Timing(node_drain_delay=timedelta())
#: Two pods that need a new spot node, because spot-1 is full.
CLUSTER: tuple[Manifest, ...] = (
    node("od-1", ON_DEMAND),
    node("spot-1"),
    pod("full", "spot-1", cpu="3500m"),
    pod("web-1", "od-1", cpu="2"),
    pod("web-2", "od-1", cpu="2"),
)


class SpotGroup(NoProvider):
    """A provider with one group, of spot nodes."""

    name = "pool"

    def __init__(self, target: int = 1, most: int = 5) -> None:
        self.target, self.most = target, most
        self.running = target  # running machines, including those that have not joined yet
        self.trouble: ReschedulerError | None = None  # error raised by an increase
        self.outcome: DeleteOutcome | None = None  # outcome of deletions; by default, they succeed
        self.before_request: Callable[[], object] = lambda: None  # what happens before a request is sent
        self.calls: list[tuple[str, Any]] = []
        self.withheld = 0  # requests that were not sent

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:  # noqa: ARG002
        return [NodeGroup("spot", 0, self.most)]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        return self.groups(deadline=deadline)[0] if node.name.startswith(("spot", "new")) else None

    def template(self, group: str, *, deadline: float) -> NodeTemplate:  # noqa: ARG002
        return NodeTemplate({SPOT: ""}, (), {}, {})

    def target_size(self, group: str, *, deadline: float) -> int:  # noqa: ARG002
        return self.target

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:  # noqa: ARG002
        self.calls.append(("increase", delta))
        if self.trouble is not None:
            raise self.trouble
        if self.target + delta > self.most:
            raise AboveMaximum("too many")
        self.target += delta

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:  # noqa: ARG002
        self.calls.append(("decrease", -delta))
        lowest = max(self.target + delta, self.running)
        missed, self.target = lowest > self.target + delta, lowest
        if missed:
            raise BelowMinimum("they run")

    def delete_nodes(
        self,
        group: str,  # noqa: ARG002
        nodes: Sequence[NodeRef],
        *,
        deadline: float,  # noqa: ARG002
        may_end: MayEnd = any_may_end,
    ) -> Mapping[str, DeleteOutcome]:
        self.before_request()
        try:
            for each in nodes:
                may_end(each)
        except Withheld as error:
            self.withheld += 1
            return {each.name: Refused(Refusal.WITHHELD, str(error)) for each in nodes}
        self.calls.append(("delete", [each.name for each in nodes]))
        if self.outcome is None:
            self.target, self.running = self.target - len(nodes), self.running - len(nodes)
        return {each.name: self.outcome or Deleted() for each in nodes}


def join(here: LoopWorld, pool: SpotGroup, *names: str, **fields: Any) -> None:
    pool.running += len(names)
    here.add(*(node(name, created=here.time(), **fields) for name in names))


def orders(here: LoopWorld) -> tuple[SpotOrder, ...]:
    return here.memory.spot_orders.orders


def endings(here: LoopWorld) -> list[RoomEnding]:
    return [event.ending for event in here.of(RoomEnded)]


def started(here: LoopWorld, pool: SpotGroup, **fields: Any) -> Loop:
    """Return a loop after the round that ordered a node."""
    loop = here.loop(TIMING, provider=pool, room=ROOM, **fields)
    assert loop.round() is RoundOutcome.HELD
    assert pool.calls == [("increase", 1)]
    return loop


def test_the_node_is_drained_when_the_new_node_is_ready() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        [ordered] = here.of(RoomOrdered)
        assert (ordered.node.name, ordered.pods, ordered.nodes, ordered.template, ordered.group) == (
            "od-1",
            2,
            1,
            "spot-1",
            "spot",
        )
        assert [(held.waiting, held.detail) for held in here.of(Held)] == [
            (Waiting.MAKING_ROOM, "1 spot node ordered for the pods of node od-1")
        ]
        here.pass_time(60)
        join(here, pool, "new-1", ready="False")
        assert loop.round() is RoundOutcome.HELD
        assert here.of(Held)[-1].detail.startswith("0 of 1 spot nodes for the pods of node od-1 are Ready; ")
        here.cluster.delete("Node", "new-1")
        here.add(node("new-1", created=here.time()))
        assert loop.round() is RoundOutcome.DRAINED
        assert (endings(here), pool.calls) == ([RoomEnding.FILLED], [("increase", 1)])


def test_an_order_that_is_filled_has_ended_and_counts_for_an_hour() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1")
        loop.round()
        here.add(pod("moved", "new-1"))
        loop.round()
        assert [order.ended for order in orders(here)] == [True]
        assert (pool.target, here.memory.room.times) == (2, 0)


def test_the_wait_for_the_next_order_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rescheduler.housekeeping.order_finder")
    with world(*CLUSTER) as here:
        loop = here.loop(TIMING, provider=SpotGroup(most=1), room=ROOM)
        for _ in range(4):
            here.pass_time(10)
            loop.round()
        assert [line for line in caplog.messages if "spot room" in line] == [
            "the next search for an order of spot room is in 50 s: at most one a minute"
        ]


def test_nothing_is_ordered_without_the_flag() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        assert here.loop(TIMING, provider=pool).round() is RoundOutcome.IDLE
        assert (pool.calls, here.of(Held)) == ([], [])


def test_a_dry_run_orders_nothing() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        here.loop(TIMING, provider=pool, room=ROOM, dry_run=True).round()
        assert pool.calls == []


#: The provider, the settings, and why nothing is ordered.
REFUSALS: dict[str, tuple[SpotGroup, RoomSettings, str]] = {
    "the group is at its maximum": (
        SpotGroup(5, 5),
        ROOM,
        "group spot has 5 of at most 5 nodes; 1 more would be needed",
    ),
    "no group has spot nodes": (
        SpotGroup(),
        ROOM,
        "no group of the provider has spot nodes like spot-1",
    ),
}


@pytest.mark.parametrize(("pool", "settings", "detail"), REFUSALS.values(), ids=REFUSALS)
def test_no_order_is_placed_in_these_cases(pool: SpotGroup, settings: RoomSettings, detail: str) -> None:
    if detail.startswith("no group"):
        pool.group_for = lambda *_, **__: None  # type: ignore[method-assign]
    with world(*CLUSTER) as here:
        assert here.loop(TIMING, provider=pool, room=settings).round() is RoundOutcome.HELD
        assert [(held.waiting, held.detail) for held in here.of(Held)] == [(Waiting.NO_SPOT_CAPACITY, detail)]
        assert pool.calls == []


def test_an_order_that_the_provider_refuses_is_dropped_and_the_next_one_waits() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        pool.trouble = Permanent("quota exceeded")
        loop = here.loop(TIMING, provider=pool, room=ROOM)
        loop.round()
        assert (endings(here), orders(here), here.memory.room.times) == ([RoomEnding.REFUSED], (), 1)
        for _ in range(5):
            here.pass_time(120)
            loop.round()
        assert pool.calls == [("increase", 1)]


def test_an_order_whose_result_is_unknown_is_followed() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        pool.trouble = Retryable("timeout")
        loop = started(here, pool)
        here.pass_time(ROOM.timeout.total_seconds())
        loop.round()
        loop.round()
        assert pool.calls == [("increase", 1)], "the provider did not accept it, so nothing is given back"
        assert [order.ended for order in orders(here)] == [True]


def test_an_order_whose_spot_nodes_do_not_join_is_canceled() -> None:
    """Nothing moves, and the next order waits."""
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        here.pass_time(ROOM.timeout.total_seconds())
        loop.round()
        loop.round()
        assert (pool.calls, pool.target) == ([("increase", 1), ("decrease", 1)], 1)
        assert (endings(here), here.memory.room.times) == ([RoomEnding.TIMED_OUT], 1)
        for _ in range(10):
            here.pass_time(60)
            loop.round()
        assert (len(pool.calls), here.writes) == (2, [])


def test_a_node_that_arrives_too_late_is_given_back() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        pool.running = 2  # it runs, but has not joined
        here.pass_time(ROOM.timeout.total_seconds())
        loop.round()
        loop.round()
        assert pool.calls[1:] == [("decrease", 1)]
        here.add(node("new-1", created=here.time()))
        loop.round()
        assert (pool.calls[2:], pool.target) == ([("delete", ["new-1"])], 1)
        assert here.writes == [("cordon", "new-1"), ("delete", "new-1")]
        assert [order.ended for order in orders(here)] == [True]


def test_an_unused_node_is_given_back() -> None:
    """A pod of another node was faster, or the drain was no longer possible."""
    with world(*CLUSTER, pod("alone", "od-1", owner=None, cpu="1m")) as here:
        here.cluster.delete("Pod", "default/alone")
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1")
        here.add(pod("alone", "od-1", owner=None, cpu="1m"))
        for _ in range(4):
            here.pass_time(ROOM.timeout.total_seconds() / 2)
            loop.round()
        loop.round()
        assert (endings(here), pool.calls[1:]) == ([RoomEnding.UNUSED], [("delete", ["new-1"])])


CHANGES: dict[str, Callable[[LoopWorld], object]] = {
    "a pod that tolerates the cordon": lambda here: here.add(pod("late", "new-1")),
    "another user uncordons the node": lambda here: here.edit_node(
        "new-1", here.node("new-1").metadata.uid, NodeEdit(cordon=False)
    ),
    "the Node is deleted": lambda here: here.cluster.delete("Node", "new-1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_machine_that_is_given_back_may_end_at_each_request(change: str) -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1")
        pool.before_request = lambda: CHANGES[change](here)
        here.paused = "release 42"
        for _ in range(3):
            loop.round()
        assert pool.withheld
        assert (pool.calls, pool.target) == ([("increase", 1)], 2)


def test_nodes_in_use_stay() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1")
        here.add(pod("other", "new-1", cpu="3"), pod("alone", "od-1", owner=None, cpu="1m"))
        for _ in range(4):
            here.pass_time(ROOM.timeout.total_seconds() / 2)
            loop.round()
        loop.round()
        assert (pool.calls, pool.target) == ([("increase", 1)], 2)
        assert [order.ended for order in orders(here)] == [True]


def test_a_node_that_the_provider_does_not_delete_takes_pods_again() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        pool.outcome = Refused(Refusal.PROTECTED, "locked")
        loop = started(here, pool)
        join(here, pool, "new-1")
        here.paused = "release 42"
        loop.round()
        loop.round()
        assert endings(here) == [RoomEnding.WITHDRAWN]
        assert here.writes == [("cordon", "new-1"), ("uncordon", "new-1")]
        assert (here.node("new-1").metadata.annotations, here.memory.room.times) == ({}, 0)


def test_the_cordon_of_another_user_is_respected() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1", unschedulable=True)
        here.paused = "release 42"
        loop.round()
        loop.round()
        assert (pool.calls, here.writes) == ([("increase", 1)], [])


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_another_leader_continues_or_gives_back(steps: int) -> None:
    """The process ends after the order, while nodes arrive, or while they are given back."""
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        if steps:
            join(here, pool, "new-1", ready="False")
        if steps > 1:
            here.pass_time(ROOM.timeout.total_seconds())
            loop.round()
        other = here.loop(TIMING, provider=pool, room=ROOM, holder="other")
        here.pass_time(60 if steps > 1 else ROOM.timeout.total_seconds())
        for _ in range(3):
            other.round()
        assert (pool.target, [order.ended for order in orders(here)]) == (1, [True])
        assert "new-1" not in here.cluster.nodes.row
        assert not [each for each in here.cluster.nodes if GIVING_BACK in each.metadata.annotations]


def test_an_order_that_is_left_is_given_back_without_the_flag() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        started(here, pool)
        loop = here.loop(TIMING, provider=pool, holder="other")
        loop.round()
        loop.round()
        assert (pool.target, endings(here)) == (1, [RoomEnding.WITHDRAWN])


def test_the_wait_for_a_machine_that_cannot_be_given_back_is_limited() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        pool.running, here.paused = 2, "release 42"
        loop.round()
        here.pass_time(LATEST.total_seconds() - 1)
        loop.round()
        assert not orders(here)[0].ended
        here.pass_time(1)
        loop.round()
        assert orders(here) == ()
        assert [event.detail for event in here.of(Trouble)] == [
            "pool: not all spot nodes of group spot could be given back"
        ]


def test_the_orders_of_an_hour_are_limited() -> None:
    with world(*CLUSTER, node("od-2", ON_DEMAND), pod("db-1", "od-2", cpu="4")) as here:
        pool = SpotGroup()
        settings = RoomSettings(MakeRoom.PROVIDER, per_hour=1)
        loop = here.loop(TIMING, provider=pool, room=settings)
        loop.round()
        join(here, pool, "new-1")
        loop.round()
        here.add(pod("moved", "new-1", cpu="4"))
        here.cluster.delete("Node", "od-1")
        loop.round()
        here.pass_time(120)
        loop.round()
        assert here.of(Held)[-1].detail == (
            "an order needs 1 spot node, but only 0 more may be ordered now (--max-spot-nodes-per-hour=1)"
        )
        here.pass_time(3600)
        loop.round()
        assert pool.calls == [("increase", 1)] * 2


def test_the_new_node_of_another_installation_is_not_ours() -> None:
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1", unschedulable=True, annotations={GIVING_BACK: "other/lease"})
        here.paused = "release 42"
        loop.round()
        loop.round()
        assert (pool.calls, IDENTITY == "other/lease") == ([("increase", 1)], False)


def test_a_node_that_another_client_removed_is_not_given_back_again() -> None:
    """Another autoscaler removes one of two new nodes, and requests a machine for other pods."""
    with world(
        *CLUSTER[:3], *(pod(f"web-{n}", "od-1", cpu="3") for n in (1, 2)), node("od-1", ON_DEMAND, cpu="8")
    ) as here:
        pool = SpotGroup()
        loop = here.loop(TIMING, provider=pool, room=ROOM)
        loop.round()
        assert pool.calls == [("increase", 2)]
        join(here, pool, "new-1", "new-2", ready="False")
        loop.round()
        here.cluster.delete("Node", "new-2")
        here.add(pod("other", "new-1"))
        pool.running, pool.target = 2, 3
        here.paused = "release 42"
        for _ in range(3):
            loop.round()
        assert (pool.calls, pool.target) == ([("increase", 2)], 3)
        assert [order.ended for order in orders(here)] == [True]


def test_the_cordon_of_a_node_that_is_used_after_all_is_removed() -> None:
    """The process ended after the cordon, and a pod was bound there without the scheduler."""
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1", unschedulable=True, annotations={GIVING_BACK: IDENTITY})
        here.add(pod("late", "new-1"))
        here.paused = "release 42"
        loop.round()
        loop.round()
        assert (here.writes, pool.calls) == ([("uncordon", "new-1")], [("increase", 1)])
        assert [order.ended for order in orders(here)] == [True]


def test_a_new_node_that_a_person_has_cordoned_is_not_given_back() -> None:
    """The watch does not show the cordon yet."""
    with world(*CLUSTER) as here:
        pool = SpotGroup()
        loop = started(here, pool)
        join(here, pool, "new-1")
        before = here.node("new-1")
        here.edit_node("new-1", before.metadata.uid, NodeEdit(cordon=True))
        here.hide_change("new-1", before)
        here.paused = "release 42"
        loop.round()
        loop.round()
        assert (here.node("new-1").spec.unschedulable, pool.calls) == (True, [("increase", 1)])
        assert GIVING_BACK not in here.node("new-1").metadata.annotations


# The groups of on-demand nodes, and how many more nodes they may get after a loss (--fallback-nodes-per-minute).


class OnDemandGroup(SpotGroup):
    """A provider with one group, of the nodes od-*, which counts how often it is asked about a node."""

    asked = 0

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:  # noqa: ARG002
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return NodeGroup("workers", 0, self.most) if node.name.startswith("od") else None


def group_sizes(here: LoopWorld, pool: SpotGroup) -> Callable[[], Mapping[str, tuple[str, int]]]:
    """Return what plans know of the growth of groups, by node."""
    access = DrainContext(here, pool, here.clock, "me", here, IDENTITY)
    sources = ViewSources(growth=GroupSizes(access).of_samples)
    view = ClusterView(here, Policy(), here.clock, Known(), sources)

    def growth() -> Mapping[str, tuple[str, int]]:
        view.advance()
        view.start_planning()
        return view.circumstances.growth

    return growth


def test_nodes_that_are_alike_are_of_one_group_which_is_asked_for_once_a_minute() -> None:
    alike, other = node("od-2", ON_DEMAND), node("other", ON_DEMAND, cpu="8")
    with world(node("od-1", ON_DEMAND), alike, other) as here:
        pool = OnDemandGroup(target=2, most=5)
        sizes = group_sizes(here, pool)
        expected = {"od-1": ("workers", 3), "od-2": ("workers", 3), "other": ("", 0)}
        assert (sizes(), pool.asked) == (expected, 2)
        pool.target = 6  # more than the maximum, which was lowered
        assert (sizes(), pool.asked) == (expected, 2)
        here.pass_time(REREAD_SECONDS)
        assert (sizes(), pool.asked) == ({**expected, "od-1": ("workers", 0), "od-2": ("workers", 0)}, 4)


def test_sizes_of_groups_stay_while_the_provider_does_not_respond() -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        pool = OnDemandGroup(target=2, most=5)
        pool.trouble = Retryable("away")
        sizes = group_sizes(here, pool)
        assert sizes() == {"od-1": ("", 0)}
        here.pass_time(REREAD_SECONDS)
        pool.trouble = None
        assert sizes() == {"od-1": ("workers", 3)}
        here.pass_time(REREAD_SECONDS)
        pool.trouble = Retryable("away")
        assert sizes() == {"od-1": ("workers", 3)}
