"""Drains are played through as (time, event, expected actions): no clock, no threads, no cluster."""

from dataclasses import replace

import pytest

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    AskProvider,
    Cause,
    DeleteNode,
    Evict,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    LookAgain,
    Looked,
    LookFailed,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    OrderRemoval,
    PodGone,
    ProviderAnswered,
    Release,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
    Stop,
)
from rescheduler.draining.state import Failure, Phase, Why
from rescheduler.planning.outcome import Placement, Plan, PodRef
from tests.draining.stories import (
    ACCEPTED,
    EMPTIED,
    EMPTY,
    LEFT,
    LIMITS,
    NO_ROOM,
    OFF,
    OPENING,
    ORDERED,
    PLAN,
    TAKEN,
    A,
    B,
    C,
    Story,
    play,
    seen,
)

CAME: Story = [
    (6, Looked(Plan("od", (Placement(C, "s1"),))), (Evict(C),)),
    (6, EvictionAccepted("c"), ()),
    (6, seen(), (LookAgain(),)),
]

SUCCESSES: dict[str, Story] = {
    "pods are evicted and leave": [*OPENING, *ACCEPTED, (4, seen("b"), ()), *EMPTIED, *LEFT],
    "a pod that is gone already needs no eviction": [
        *OPENING,
        (3, PodGone("a"), ()),
        (3, PodGone("b"), (LookAgain(),)),
        *LEFT,
    ],
    "a pod that leaves while its eviction is refused is gone": [
        *OPENING,
        (3, EvictionRefused("a", "budget"), ()),
        (3, EvictionAccepted("b"), ()),
        *EMPTIED,
        *LEFT,
    ],
    "the machine is ordered away once the node is empty": [
        *TAKEN,
        *ACCEPTED,
        *EMPTIED,
        *ORDERED,
        (8, Removed(), (DeleteNode(),)),
        (9, NodeDeleted(), ()),
    ],
    "a machine that takes its time is asked about again": [
        *TAKEN,
        *ACCEPTED,
        *EMPTIED,
        *ORDERED,
        (8, RemovalPending("booked"), ()),
        (17, seen(), ()),
        (18, seen(), (OrderRemoval("pool"),)),
        (19, Removed(), (DeleteNode(),)),
        (20, NodeDeletionFailed("500"), ()),
        (21, seen(), ()),
        (22, seen(), (DeleteNode(),)),
        (23, NodeDeleted(), ()),
    ],
    "a release that fails is tried again": [
        *OPENING,
        *ACCEPTED,
        *EMPTIED,
        (6, Looked(EMPTY), (Release(),)),
        (7, ReleaseFailed("timeout"), ()),
        (8, seen(), ()),
        (9, seen(), (Release(),)),
        (10, Released(), ()),
    ],
    "answers that come late change nothing": [
        *OPENING,
        *ACCEPTED,
        *EMPTIED,
        (6, EvictionAccepted("a"), ()),
        (6, Looked(EMPTY), (Release(),)),
        (6, EvictionRefused("b", "late"), ()),
        (6, Marked(), ()),
        (7, Released(), ()),
        (8, seen("a"), ()),
        (8, Stop(Cause.TERMINATED), ()),
    ],
}


@pytest.mark.parametrize("story", SUCCESSES.values(), ids=SUCCESSES)
def test_success(story: Story) -> None:
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.failure, drain.succeeded) == (Phase.DONE, None, True)


FAILURES: dict[str, tuple[Story, Failure]] = {
    "the provider would not take the machine: nothing is touched": (
        [(0, ProviderAnswered("pool", "below minimum"), ())],
        Failure(Why.REFUSED, "below minimum"),
    ),
    "the provider cannot be asked: nothing is touched": (
        [(0, ProviderAnswered(None, "no answer"), ())],
        Failure(Why.PROVIDER, "no answer"),
    ),
    "the node is gone when the taint is put on": (
        [OPENING[0], (1, MarkFailed("not found", node_gone=True), ())],
        Failure(Why.NODE_GONE, "not found"),
    ),
    "a PATCH that may have got through is taken back": (
        [OPENING[0], (1, MarkFailed("timeout"), (Release(),)), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "the plan no longer holds with the taint on": (
        [*OPENING[:2], (2, Looked(NO_ROOM), (Release(),)), *OFF],
        Failure(
            Why.PLAN_CHANGED,
            "the plan no longer holds: no-room-on-spot: pod ns/a: Insufficient cpu (and 1 more)",
        ),
    ),
    "the second look fails": (
        [*OPENING[:2], (2, LookFailed("timeout"), (Release(),)), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "the node is gone when it is empty": (
        [*OPENING, *ACCEPTED, *EMPTIED, (6, LookFailed("no node od", node_gone=True), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "a budget refuses to the end": (
        [
            *OPENING,
            (3, EvictionAccepted("b"), ()),
            (3, EvictionRefused("a", "would violate web", 100), ()),
            (4, seen("a"), ()),
            (5, seen("a"), (Evict(A),)),  # b has left: a need not wait for so long
            (6, EvictionRefused("a", "would violate web", 200), ()),
            (121, seen("a"), ()),
            (122, seen("a"), (Release(),)),
            *OFF,
        ],
        Failure(Why.EVICTION_TIMEOUT, "pod ns/a could not be evicted within 120 s: would violate web", (A,)),
    ),
    "a pod does not end: its own grace period counts where it is the shorter": (
        [*OPENING, *ACCEPTED, (42, seen("a", "b"), ()), (43, seen("a", "b"), (Release(),)), *OFF],
        Failure(Why.TERMINATION_TIMEOUT, "pod ns/b did not end within the grace period and 30 s", (B,)),
    ),
    "an eviction is forbidden": (
        [*OPENING, (3, EvictionFailed("a", "forbidden", retryable=False), (Release(),)), *OFF],
        Failure(Why.EVICTION_FAILED, "forbidden", (A,)),
    ),
    "pods keep coming to the node": (
        [
            *OPENING,
            *ACCEPTED,
            *EMPTIED,
            (6, Looked(Plan("od", (Placement(C, "s1"),))), (Evict(C),)),
            (7, EvictionAccepted("c"), ()),
            (8, seen(), (LookAgain(),)),
            (122, Looked(Plan("od", (Placement(C, "s1"),))), (Release(),)),
            *OFF,
        ],
        Failure(Why.EVICTION_TIMEOUT, "1 pods came to the node while it was drained", (C,)),
    ),
    "pods are put back on the node": (
        [
            *OPENING,
            *ACCEPTED,
            *EMPTIED,
            *CAME,
            *CAME,
            (6, Looked(Plan("od", (Placement(C, "s1"),))), (Release(),)),
            *OFF,
        ],
        Failure(Why.PODS_RETURN, "pods came to the node 3 times while it was drained: they tolerate its taint", (C,)),
    ),
    "the provider refuses after all": (
        [*TAKEN, *ACCEPTED, *EMPTIED, *ORDERED, (8, RemovalFailed("protected"), (Release(),)), *OFF],
        Failure(Why.PROVIDER, "protected"),
    ),
    "the intent to remove cannot be written": (
        [*TAKEN, *ACCEPTED, *EMPTIED, ORDERED[0], (8, MarkFailed("409"), (Release(),)), *OFF],
        Failure(Why.API_ERROR, "409"),
    ),
    "told to stop before anything was done": (
        [(0, Stop(Cause.TERMINATED), ())],
        Failure(Why.STOPPED, "told to stop in the middle of the drain"),
    ),
    "told to stop in the middle": (
        [
            *OPENING,
            (3, EvictionAccepted("a"), ()),
            (4, seen("b"), ()),
            (5, Stop(Cause.TERMINATED), (Release(),)),
            (6, Stop(Cause.TERMINATED), ()),
            *OFF,
        ],
        Failure(Why.STOPPED, "told to stop in the middle of the drain", (B,)),
    ),
}


@pytest.mark.parametrize(("story", "failure"), FAILURES.values(), ids=FAILURES)
def test_failure(story: Story, failure: Failure) -> None:
    """Whatever goes wrong, the taint comes off where it may be on."""
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.failure, drain.released) == (Phase.DONE, failure, True)


def test_the_beginning() -> None:
    assert machine.start(PLAN, LIMITS)[1] == (AskProvider(),)
    assert machine.resume("od", LIMITS, ("a",))[1] == (AskProvider(),)


def test_grace_is_the_pods_own_up_to_the_cap() -> None:
    """The eviction names a grace period only where it cuts the pod's own (the seed made short ones longer)."""
    own = {A: 600, B: 5, C: None}
    plan = Plan("od", tuple(Placement(pod, "s1", grace) for pod, grace in own.items()))
    drain, _ = machine.start(plan, LIMITS)
    drain = replace(drain, phase=Phase.LOOKING)
    assert machine.step(drain, Looked(plan), 0)[1] == (Evict(A, 60), Evict(B), Evict(C))


def test_pods_being_deleted_are_waited_for_and_not_evicted() -> None:
    plan = Plan("od", (Placement(A, "s1"),), leaving=(B,))
    story: Story = [
        (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a",)),)),
        (0, Marked(), (LookAgain(),)),
        (0, Looked(plan), (Evict(A),)),
        (1, PodGone("a"), ()),
        (2, seen("b"), ()),
        (3, seen(), (LookAgain(),)),
        *LEFT,
    ]
    assert play(machine.start(plan, LIMITS), story).succeeded


def test_a_refused_eviction_is_asked_for_with_growing_pauses() -> None:
    drain = play(machine.start(PLAN, LIMITS), [*OPENING, (2, EvictionAccepted("b"), ())])
    asked: list[float] = []
    now = 2.0
    while len(asked) < 7:
        drain, actions = machine.step(drain, EvictionRefused("a", "budget"), now)
        while Evict(A) not in actions:
            now += 0.5
            drain, actions = machine.step(drain, seen("a", "b"), now)
        asked.append(now)
        drain = replace(
            drain, deadline=1000, victims={**drain.victims, "b": replace(drain.victims["b"], leaves_by=1e9)}
        )
    assert [later - earlier for earlier, later in zip([2.0, *asked], asked, strict=False)] == [1, 2, 4, 8, 10, 10, 10]


def test_the_server_is_believed_when_it_names_a_time() -> None:
    story: Story = [
        *OPENING,
        (3, EvictionAccepted("b"), ()),
        (3, EvictionFailed("a", "busy", retryable=True, retry_after=7), ()),
        (9.5, seen("a", "b"), ()),
        (10, seen("a", "b"), (Evict(A),)),
        (10.5, seen("a", "b"), ()),
    ]
    assert not play(machine.start(PLAN, LIMITS), story).done


def test_a_lost_lease_stops_at_once_and_writes_nothing() -> None:
    drain = play(machine.start(PLAN, LIMITS), [*OPENING, (3, Stop(Cause.LEADERSHIP_LOST), ())])
    assert (drain.done, drain.released, drain.succeeded) == (True, False, False)
    assert drain.failure is not None
    assert drain.failure.why is Why.LEADERSHIP_LOST


def test_pods_that_came_after_the_look_are_moved_too() -> None:
    newcomer = Plan("od", (Placement(C, "s1"),))
    story: Story = [
        *OPENING,
        *ACCEPTED,
        *EMPTIED,
        (6, Looked(newcomer), (Evict(C),)),
        (7, EvictionAccepted("c"), ()),
        (8, seen(), (LookAgain(),)),
        *LEFT,
    ]
    drain = play(machine.start(PLAN, LIMITS), story)
    assert drain.succeeded
    assert drain.placements == (*PLAN.placements, *newcomer.placements)
    assert drain.evicted == (A, B, C)


def test_a_taint_that_does_not_come_off_is_told() -> None:
    """It stays for the next round's sweep; the drain has failed, though the node is empty."""
    story: Story = [
        *OPENING,
        *ACCEPTED,
        *EMPTIED,
        (6, Looked(EMPTY), (Release(),)),
        *((now, ReleaseFailed("no answer"), ()) for now in (10, 15, 23)),
        (24, ReleaseFailed("no answer"), ()),
    ]
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.done, drain.released) == (True, False)
    assert drain.failure == Failure(Why.API_ERROR, "no answer")


def test_the_first_pods_are_named_and_the_rest_counted() -> None:
    many = tuple(Placement(PodRef("ns", f"p{n}", f"p{n}"), "s1") for n in range(8))
    plan = Plan("od", many)
    story: Story = [
        (0, ProviderAnswered(None), (Mark(Step.DRAINING, tuple(one.pod.uid for one in many)),)),
        (0, Marked(), (LookAgain(),)),
        (0, Looked(plan), tuple(Evict(one.pod) for one in many)),
        (120, seen(*(one.pod.uid for one in many)), (Release(),)),
    ]
    failure = play(machine.start(plan, LIMITS), story).failure
    assert failure is not None
    assert failure.detail == "pods ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 3 more could not be evicted within 120 s"
