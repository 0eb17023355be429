"""Rounds with orders of spot room, on an in-memory cluster with frozen time."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import pytest

from predicates.snapshot import ROOM_NAMESPACE
from rescheduler.draining.state import Why
from rescheduler.errors import Forbidden, Permanent, ReschedulerError, Retryable
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import (
    DrainEnded,
    DrainStarted,
    ErrorKind,
    Held,
    PlaceholdersObserved,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    Trouble,
    Waiting,
)
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import Deleted
from rescheduler.settings import MakeRoom, RoomSettings, Timing
from tests.housekeeping.world import LoopWorld, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

MINUTE: Final = 60.0
ROOM: Final = RoomSettings(MakeRoom.PLACEHOLDERS)
TIMING: Final = Timing(node_drain_delay=timedelta())

#: A node with two pods, and a full spot node.
FULL: Final[Sequence[Manifest]] = (
    node("od-1", ON_DEMAND),
    node("spot-1"),
    pod("filler-1", "spot-1", cpu="4"),
    pod("web-1", "od-1", cpu="2"),
    pod("web-2", "od-1", cpu="1"),
)
BOTH: Final = ["room-uid-web-1", "room-uid-web-2"]


def rounds(here: LoopWorld, number: int = 2, room: RoomSettings = ROOM) -> list[RoundOutcome]:
    """Run rounds of a new daemon, a second apart."""
    loop = here.loop(TIMING, room=room)
    outcomes = []
    for _ in range(number):
        outcomes.append(loop.round())
        here.pass_time(1)
    return outcomes


def endings(here: LoopWorld) -> list[tuple[str, RoomEnding]]:
    return [(event.node.name, event.ending) for event in here.of(RoomEnded)]


def holds(here: LoopWorld) -> list[Waiting]:
    return [event.waiting for event in here.of(Held)]


def arrive(here: LoopWorld) -> None:
    """Add a spot node on which all placeholders run."""
    here.add(node("spot-2"))
    here.placeholders.run_on("spot-2")


def test_placeholders_are_created_and_the_node_is_drained_when_they_run() -> None:
    with world(*FULL) as here:
        assert rounds(here) == [RoundOutcome.HELD, RoundOutcome.HELD]
        assert here.placeholders.names == BOTH
        assert holds(here) == [Waiting.MAKING_ROOM] * 2
        [ordered] = here.of(RoomOrdered)
        assert (ordered.node.name, ordered.pods, ordered.nodes, ordered.template) == ("od-1", 2, 1, "spot-1")
        arrive(here)
        here.writes.clear()
        assert rounds(here, 1) == [RoundOutcome.DRAINED]
        moves = [write for write in here.writes if write[0] in ("evict", "delete")]
        assert moves == [
            ("delete", "room-uid-web-1"),
            ("evict", "web-1"),
            ("delete", "room-uid-web-2"),
            ("evict", "web-2"),
        ]
        assert (endings(here), here.placeholders.names) == ([("od-1", RoomEnding.FILLED)], [])
        assert here.of(PlaceholdersObserved)[-1] == PlaceholdersObserved(2, 0)


def of_template(cpu: str) -> Manifest:
    """Return the controller of FULL's pods on od-1, whose next pods will request *cpu*."""
    containers = [{"name": "main", "image": "app:2", "resources": {"requests": {"cpu": cpu}}}]
    labels = {"app": "web"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-of-web"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("cpu", "nodes"),
    [
        pytest.param("1", 1, id="as the running pods"),
        pytest.param("2", 1, id="larger"),
        pytest.param("3", 0, id="two new nodes for one are not worth it"),
        pytest.param("5", 0, id="too large"),
    ],
)
def test_an_order_is_sized_for_the_pods_that_will_be_created(cpu: str, nodes: int) -> None:
    with world(*FULL) as here:
        here.templates = [of_template(cpu)]
        assert set(rounds(here)) == {RoundOutcome.HELD if nodes else RoundOutcome.IDLE}
        assert [ordered.nodes for ordered in here.of(RoomOrdered)] == [nodes][: nodes and 1]


def test_room_is_made_if_all_spot_nodes_are_gone() -> None:
    with world(FULL[0], *FULL[3:]) as here:
        rounds(here)
        [ordered] = here.of(RoomOrdered)
        assert (ordered.node.name, ordered.nodes, ordered.template) == ("od-1", 1, "od-1")
        arrive(here)
        assert rounds(here, 1) == [RoundOutcome.DRAINED]


def test_an_order_waits_until_all_placeholders_run_on_spot_nodes() -> None:
    with world(*FULL) as here:
        rounds(here)
        here.add(node("spot-2"), node("other", ON_DEMAND))
        here.placeholders.run_on("spot-2", BOTH[:1])
        here.placeholders.run_on("other", BOTH[1:])
        assert rounds(here) == [RoundOutcome.HELD] * 2
        assert here.of(Held)[-1].detail.startswith("1 of 2 placeholders for the pods of node od-1 run on spot nodes")
        assert not here.of(DrainStarted)


def test_the_node_of_the_order_is_drained_first_although_another_is_emptier() -> None:
    emptier = (
        node("od-2", ON_DEMAND),
        pod("api-1", "od-2", cpu="500m", annotations={"karpenter.sh/do-not-disrupt": "true"}),
    )
    with world(*FULL, *emptier) as here:
        rounds(here)
        assert here.of(RoomOrdered)[0].node.name == "od-1"
        here.add(pod("api-1", "od-2", cpu="500m"))
        arrive(here)
        rounds(here)
        assert here.drained == ["od-1", "od-2"]


def test_an_empty_node_is_offered_to_its_provider_while_an_order_is_open() -> None:
    with world(*FULL) as here:
        rounds(here)
        here.add(node("od-2", ON_DEMAND))
        loop = here.loop(TIMING, room=ROOM, provider=ScriptedProvider([Deleted()]))
        assert loop.round() is RoundOutcome.DRAINED
        assert here.drained == ["od-2"]
        assert here.placeholders.names == BOTH


def test_the_blocker_of_a_node_explains_why_no_room_is_made() -> None:
    small = (node("od-1", ON_DEMAND, cpu="2"), *FULL[1:3], pod("web-1", "od-1", cpu="2"))
    with world(*small) as here:
        assert rounds(here) == [RoundOutcome.IDLE] * 2
        assert here.placeholders.names == []
        [blocker] = blockers(here, "od-1")
        why = "no spot room is ordered: 1 new spot node like spot-1 would not pay off: an order frees 2 vCPU and adds 4"
        assert (blocker.reason, blocker.detail) == (
            Reason.NO_ROOM,
            f"0/1 spot nodes are available: 1 Insufficient cpu; {why}",
        )


def test_placeholders_that_do_not_run_in_time_are_removed_and_the_pause_doubles() -> None:
    with world(*FULL) as here:
        here.stop_at(70 * MINUTE)
        here.loop(TIMING, room=ROOM).run()
        times = [(round(at / MINUTE), type(event).__name__) for at, event in here.reported if _is_about_room(event)]
        assert times == [
            (0, "RoomOrdered"),
            (15, "RoomEnded"),
            (30, "RoomOrdered"),
            (45, "RoomEnded"),
        ]
        assert endings(here) == [("od-1", RoomEnding.TIMED_OUT)] * 2
        assert here.placeholders.names == []
        assert not here.of(DrainStarted)
        assert holds(here)[-1] is Waiting.NO_SPOT_CAPACITY
        assert [blocker.reason for blocker in blockers(here, "od-1")] == [Reason.NO_SPOT_CAPACITY, Reason.NO_ROOM]
        assert here.memory.room.times == 2


def _is_about_room(event: object) -> bool:
    return isinstance(event, RoomOrdered | RoomEnded)


def test_room_that_arrives_during_the_pause_is_used() -> None:
    with world(*FULL) as here:
        here.stop_at(16 * MINUTE)
        here.loop(TIMING, room=ROOM).run()
        here.stopping = False
        here.add(node("spot-2"))
        assert rounds(here, 1) == [RoundOutcome.DRAINED]


def test_a_filled_order_ends_the_pauses() -> None:
    with world(*FULL) as here:
        here.stop_at(31 * MINUTE)
        here.loop(TIMING, room=ROOM).run()
        here.stopping = False
        assert here.memory.room.times == 1
        arrive(here)
        assert rounds(here, 1) == [RoundOutcome.DRAINED]
        assert here.memory.room.times == 0


def test_room_that_cannot_be_used_is_given_back() -> None:
    with world(*FULL) as here:
        rounds(here)
        arrive(here)
        here.add(pod("web-3", "od-1", cpu="500m", annotations={"karpenter.sh/do-not-disrupt": "true"}))
        rounds(here)
        here.placeholders.run_on("spot-2")
        here.stop_at(31 * MINUTE)
        here.loop(TIMING, room=ROOM).run()
        assert endings(here) == [("od-1", RoomEnding.UNUSED)]
        assert (here.placeholders.names, here.of(DrainStarted)) == ([], [])


def test_placeholders_follow_the_pods_of_their_node() -> None:
    with world(*FULL) as here:
        rounds(here)
        here.cluster.delete("Pod", "default/web-1")
        here.add(pod("web-3", "od-1", cpu="500m"))
        rounds(here)
        assert here.placeholders.names == ["room-uid-web-2", "room-uid-web-3"]
        assert not here.of(RoomEnded)


WITHDRAWALS: Final[dict[str, Callable[[LoopWorld], object]]] = {
    "drains are paused": lambda here: setattr(here, "paused", "drains are paused"),
    "the node is gone": lambda here: here.cluster.delete("Node", "od-1"),
    "its pods have left": lambda here: here.cluster.replace("Pod", here.cluster.placeholders.values()),
}


@pytest.mark.parametrize("change", WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_an_order_is_withdrawn(change: Callable[[LoopWorld], object]) -> None:
    with world(*FULL) as here:
        rounds(here)
        change(here)
        rounds(here)
        assert (endings(here), here.placeholders.names) == ([("od-1", RoomEnding.WITHDRAWN)], [])
        assert here.memory.room.times == 0


def test_placeholders_that_are_left_are_removed_if_no_room_is_made() -> None:
    with world(*FULL) as here:
        rounds(here)
        rounds(here, room=RoomSettings())
        assert (endings(here), here.placeholders.names) == ([("od-1", RoomEnding.WITHDRAWN)], [])


def test_no_placeholder_is_written_if_no_room_is_made() -> None:
    with world(*FULL) as here:
        assert rounds(here, 3, RoomSettings()) == [RoundOutcome.IDLE] * 3
        assert here.writes == []


def test_placeholders_of_another_installation_stay() -> None:
    with world(*FULL) as here:
        rounds(here)
        for other in list(here.cluster.placeholders.values()):
            notes = {**other.annotations, "spot-rescheduler/placeholder-installation": "other/lease"}
            here.cluster.upsert("Pod", msgspec.structs.replace(other, annotations=notes))
        here.writes.clear()
        rounds(here, room=RoomSettings())
        assert (here.writes, here.placeholders.names) == ([], BOTH)


ERRORS: Final[dict[str, ReschedulerError]] = {
    "forbidden": Forbidden("create placeholder x: forbidden (403)"),
    "rejected": Permanent("create placeholder x: denied by a webhook (400)"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_rejected_placeholder_ends_the_order(error: ReschedulerError) -> None:
    with world(*FULL) as here:
        here.placeholders.create_error = error
        assert rounds(here, 5) == [RoundOutcome.HELD] * 5
        [ended] = here.of(RoomEnded)
        assert ended.ending is RoomEnding.REFUSED
        assert str(error) in ended.detail
        assert set(holds(here)) == {Waiting.NO_SPOT_CAPACITY}
        assert here.writes == [("create", "room-uid-web-1")]


def test_placeholders_are_created_after_a_temporary_failure() -> None:
    with world(*FULL) as here:
        here.placeholders.create_error = Retryable("create placeholder x: timeout")
        rounds(here, 1)
        here.placeholders.create_error = None
        here.stop_at(2 * MINUTE)
        here.loop(TIMING, room=ROOM).run()
        assert here.placeholders.names == BOTH
        assert not here.of(RoomEnded)


def test_without_the_namespace_nothing_is_created() -> None:
    with world(*FULL) as here:
        here.cluster.delete("Namespace", ROOM_NAMESPACE)
        rounds(here)
        [held, *_] = here.of(Held)
        assert held.waiting is Waiting.NO_SPOT_CAPACITY
        assert held.detail.startswith(f"namespace {ROOM_NAMESPACE} does not exist; deploy/components/make-room")
        assert here.writes == []


def test_a_deletion_that_fails_is_reported_and_tried_again_later() -> None:
    with world(*FULL) as here:
        rounds(here)
        here.placeholders.delete_error = Forbidden("delete placeholder x: forbidden (403)")
        rounds(here, 10, RoomSettings())
        [trouble] = here.of(Trouble)
        assert (trouble.kind, trouble.node) == (ErrorKind.WRITE, "od-1")
        here.placeholders.delete_error = None
        here.pass_time(30)
        rounds(here, room=RoomSettings())
        assert (endings(here), here.placeholders.names) == ([("od-1", RoomEnding.WITHDRAWN)], [])


def test_a_placeholder_that_cannot_be_deleted_fails_the_drain_before_its_pod_is_evicted() -> None:
    with world(*FULL) as here:
        rounds(here)
        arrive(here)
        here.placeholders.delete_error = Forbidden("delete placeholder x: forbidden (403)")
        assert rounds(here, 1) == [RoundOutcome.FAILED]
        [ended] = here.of(DrainEnded)
        assert (ended.failure.why, ended.evicted, ended.tainted) == (Why.PLACEHOLDER_NOT_DELETED, (), False)


def test_a_failed_drain_gives_the_room_back() -> None:
    with world(*FULL) as here:
        rounds(here)
        arrive(here)
        here.endless.add("default/web-1")
        assert rounds(here, 1) == [RoundOutcome.FAILED]
        assert (endings(here), here.placeholders.names) == ([("od-1", RoomEnding.DRAIN_FAILED)], [])
        assert here.memory.room.times == 1


def test_nothing_is_written_without_leadership() -> None:
    with world(*FULL) as here:
        rounds(here)
        arrive(here)
        here.writes.clear()
        here.leading = False
        rounds(here)
        assert (here.writes, here.placeholders.names) == ([], BOTH)


def test_a_dry_run_makes_no_room() -> None:
    with world(*FULL) as here:
        assert here.loop(TIMING, room=ROOM, dry_run=True).round() is RoundOutcome.IDLE
        assert here.writes == []
