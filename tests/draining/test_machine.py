"""Whole drains, played through as (time, event, expected actions): no clock, no threads, no cluster."""

from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import pytest

from rescheduler.draining import machine
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    AskProvider,
    Cause,
    ControllersRead,
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
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Release,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
    Renew,
    Stop,
    TryEviction,
)
from rescheduler.draining.state import Failure, Phase, Why
from rescheduler.planning.debts import Replicas
from rescheduler.planning.outcome import Blocker, Plan, PodRef, Reason, Rejected
from tests.draining.stories import (
    EMPTY,
    LEFT,
    LIMITS,
    MOVED,
    NO_ROOM,
    OFF,
    OPENING,
    ORDERED,
    PLAN,
    TAKEN,
    WEB,
    A,
    B,
    C,
    Story,
    Workload,
    begun,
    opening,
    plan,
    planning,
    play,
    read,
    reading,
    running,
    seen,
    step,
    workload,
)

LATE = workload("late", "c")
RUNS = {WEB: running(2)}
READ = reading(WEB, of=(WEB,))
RENEWED = Renew(Step.DRAINING, ("a", "b"), debts=(WEB.debt,))

#: A pod of another Deployment was bound to the node just before the scheduler saw the taint.
CAME: Story = [
    (10, Looked(plan(LATE)), (reading(of=(LATE,)),)),
    (10, read(LATE), (Mark(Step.DRAINING, ("a", "b"), debts=(LATE.debt,)),)),
    (10, Marked(), ()),
    (11, seen("c", {LATE: running(1)}), (planning(),)),
    *step(11, "c"),
    (12, seen("", {LATE: running(1)}), (LookAgain(),)),
]

SUCCESSES: dict[str, tuple[Plan, Story]] = {
    "pods are evicted in steps, and run elsewhere": (PLAN, [*OPENING, *MOVED, *LEFT]),
    "pods that are gone already need no eviction": (
        PLAN,
        [
            *OPENING[:5],
            (4, PodGone("a"), ()),
            (4, PodGone("b"), ()),
            (5, seen("", RUNS), ()),
            (6, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "a pod that is gone when its eviction is asked for needs none": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A),)),
            (5, PodGone("a"), ()),
            (6, seen("b", RUNS), (planning(),)),
            *step(6, "b"),
            (7, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "a pod that leaves while its eviction is refused is gone": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A),)),
            (5, EvictionRefused("a", "budget"), ()),
            (6, seen("b", RUNS), (planning(),)),
            *step(6, "b"),
            (7, seen("", RUNS), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods without a controller owe nothing": (
        plan(bare="ab"),
        [
            *opening(plan(bare="ab")),
            (5, seen("a b"), (planning(),)),
            *step(5, "a b"),
            (6, seen("b"), ()),
            (7, seen(), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods that are being deleted are waited for, and not evicted": (
        plan(leaving="c"),
        [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING),)),
            (1, Marked(), (LookAgain(),)),
            (2, Looked(plan(leaving="c")), (reading(),)),
            (3, ControllersRead({}, {}), (Mark(Step.DRAINING),)),
            (4, Marked(), ()),
            (5, seen("c"), ()),
            (6, seen(), (LookAgain(),)),
            *LEFT,
        ],
    ),
    "pods that came after the plan was made are moved too": (PLAN, [*OPENING, *MOVED, *CAME, *LEFT]),
    "a node without pods is left at once where nobody takes its machine": (
        EMPTY,
        [
            (0, ProviderAnswered(None), (Mark(Step.DRAINING),)),
            (1, Marked(), (LookAgain(),)),
            (2, Looked(EMPTY), (Release(),)),
            (3, Released(), ()),
        ],
    ),
    "the machine of a node without pods is ordered after a look that late pods have had time for": (
        EMPTY,
        [
            (0, ProviderAnswered("pool"), (Mark(Step.DRAINING),)),
            (1, Marked(), (LookAgain(),)),
            (2, Looked(EMPTY), ()),
            (3, seen(), ()),
            (5.9, seen(), ()),
            (6, seen(), (LookAgain(),)),
            (7, Looked(EMPTY), (Mark(Step.REMOVING, group="pool"),)),
            (8, Marked(), (OrderRemoval("pool"),)),
            (9, Removed(), (DeleteNode(),)),
            (10, NodeDeleted(), ()),
        ],
    ),
    "the machine is ordered once everything runs, and its node is deleted": (
        PLAN,
        [*TAKEN, *MOVED, *ORDERED, (12, Removed(), (DeleteNode(),)), (13, NodeDeleted(), ())],
    ),
    "a machine that takes its time is asked about again": (
        PLAN,
        [
            *TAKEN,
            *MOVED,
            *ORDERED,
            (12, RemovalPending("booked"), ()),
            (21, seen(), ()),
            (22, seen(), (OrderRemoval("pool", again=True),)),
            (23, Removed(), (DeleteNode(),)),
            (24, NodeDeletionFailed("500"), ()),
            (25, seen(), ()),
            (26, seen(), (DeleteNode(),)),
            (27, NodeDeleted(), ()),
        ],
    ),
    "a release that fails is tried again": (
        PLAN,
        [
            *OPENING,
            *MOVED,
            (10, Looked(EMPTY), (Release(),)),
            (11, ReleaseFailed("timeout"), ()),
            (12, seen(), ()),
            (13, seen(), (Release(),)),
            (14, Released(), ()),
        ],
    ),
    "answers that come late change nothing": (
        PLAN,
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, LookFailed("late"), ()),
            (5, EvictionAccepted("b"), ()),
            *step(5, "a", PLAN),
            (5, EvictionAccepted("a"), ()),
            (5, EvictionRefused("a", "late"), ()),
            (5, EvictionFailed("c", "late", retryable=False), ()),
            *MOVED[3:],
            (10, Looked(EMPTY), (Release(),)),
            (10, EvictionAccepted("a"), ()),
            (10, EvictionRefused("b", "late"), ()),
            (10, Marked(), ()),
            (11, Released(), ()),
            (12, seen("a"), ()),
            (12, Stop(Cause.TERMINATED), ()),
        ],
    ),
}


@pytest.mark.parametrize(("made", "story"), SUCCESSES.values(), ids=SUCCESSES)
def test_success(made: Plan, story: Story) -> None:
    drain = play(machine.start(made, LIMITS), story)
    assert (drain.phase, drain.failure, drain.succeeded, drain.debts) == (Phase.DONE, None, True, {})


#: The first pod's eviction was asked for and not answered yet.
ASKED: Story = [
    *OPENING,
    (5, seen("a b", RUNS), (planning(),)),
    (5, PlannedAgain(PLAN), (Evict(A),)),
]

FAILURES: dict[str, tuple[Story, Failure]] = {
    "the node is gone when it is looked at for the last time": (
        [*OPENING, *MOVED, (10, LookFailed("no node od", node_gone=True), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "the last look fails": (
        [*OPENING, *MOVED, (10, LookFailed("timeout"), (Release(),)), *OFF],
        Failure(Why.API_ERROR, "timeout"),
    ),
    "a budget refuses to the end": (
        [
            *ASKED,
            (6, EvictionRefused("a", "would violate web", 100), ()),
            (105.9, seen("a b", RUNS), (READ, RENEWED)),
            (106, seen("a b", RUNS), (Evict(A),)),
            (107, EvictionRefused("a", "would violate web", 100), ()),
            (124.9, seen("a b", RUNS), ()),
            (125, seen("a b", RUNS), (Release(),)),
            *OFF,
        ],
        Failure(Why.EVICTION_TIMEOUT, "pod ns/a could not be evicted within 120 s: would violate web", (A,)),
    ),
    "an eviction is not answered": (
        [
            *ASKED,
            (124.9, seen("a b", RUNS), (READ, RENEWED)),
            (125, seen("a b", RUNS), (Release(),)),
            *OFF,
        ],
        Failure(Why.EVICTION_TIMEOUT, "pod ns/a could not be evicted within 120 s", (A,)),
    ),
    "an eviction is forbidden": (
        [*ASKED, (6, EvictionFailed("a", "forbidden", retryable=False), (Release(),)), *OFF],
        Failure(Why.EVICTION_FAILED, "forbidden", (A,)),
    ),
    "a pod does not end within its grace period": (
        [
            *ASKED,
            (5, EvictionAccepted("a"), ()),
            (64.9, seen("a b", {WEB: running(1, bound=2)}), (READ, RENEWED)),
            (65, seen("a b", {WEB: running(1, bound=2)}), (Release(),)),
            *OFF,
        ],
        Failure(Why.TERMINATION_TIMEOUT, "pod ns/a did not end within the grace period and 30 s", (A,)),
    ),
    "pods are put back on the node again and again": (
        [
            *OPENING,
            *MOVED,
            *CAME,
            *CAME,
            (10, Looked(plan(LATE, leaving="d")), (Release(),)),
            *OFF,
        ],
        Failure(
            Why.PODS_RETURN,
            "pods came to the node 3 times while it was drained: they tolerate its taint",
            (C, PodRef("ns", "d", "d")),
        ),
    ),
    "the taint is removed": (
        [*ASKED, (6, seen("a b", RUNS, tainted=False), (Release(),)), *OFF],
        Failure(Why.MARK_LOST, "our taint or annotation was removed or replaced by somebody else"),
    ),
    "the annotation is replaced": (
        [*ASKED, (6, MarkFailed("the annotation is not ours", lost=True), (Release(),)), *OFF],
        Failure(Why.MARK_LOST, "our taint or annotation was removed or replaced by somebody else"),
    ),
    "the node is gone when the mark is renewed": (
        [*ASKED, (6, MarkFailed("no node od", node_gone=True), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "the provider refuses after all": (
        [*TAKEN, *MOVED, *ORDERED, (12, RemovalFailed("protected"), (Release(),)), *OFF],
        Failure(Why.PROVIDER, "protected"),
    ),
    "the intent to remove cannot be written": (
        [*TAKEN, *MOVED, ORDERED[0], (11, MarkFailed("409"), (Release(),)), *OFF],
        Failure(Why.API_ERROR, "409"),
    ),
    "the mark is not ours any more when the intent to remove is written": (
        [*TAKEN, *MOVED, ORDERED[0], (11, MarkFailed("not ours", lost=True), (Release(),)), *OFF],
        Failure(Why.MARK_LOST, "not ours"),
    ),
    "the node is gone when the intent to remove is written": (
        [*TAKEN, *MOVED, ORDERED[0], (11, MarkFailed("no node od", node_gone=True), ())],
        Failure(Why.NODE_GONE, "no node od"),
    ),
    "a node of the plan is lost, and the others have no room": (
        [
            *ASKED,
            (5, EvictionAccepted("a"), ()),
            (6, seen("b", {WEB: running(1, live=2)}, lost="node s1: it is cordoned"), (READ, planning("a"))),
            (6, PlannedAgain(NO_ROOM), (Release(),)),
            *OFF,
        ],
        Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
    ),
    "the targets are filled by others between two steps": (
        [*OPENING, *MOVED[:5], (7, PlannedAgain(NO_ROOM), (Release(),)), *OFF],
        Failure(Why.TARGET_LOST, "no-room-on-spot: pod ns/a: Insufficient cpu"),
    ),
    "a pod that is left may not be evicted any more": (
        [
            *OPENING,
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(Rejected("od", (Blocker(Reason.DO_NOT_DISRUPT, "annotated", "ns/b"),))), (Release(),)),
            *OFF,
        ],
        Failure(Why.PLAN_CHANGED, "do-not-disrupt: pod ns/b: annotated"),
    ),
}


@pytest.mark.parametrize(("story", "failure"), FAILURES.values(), ids=FAILURES)
def test_failure(story: Story, failure: Failure) -> None:
    """Whatever goes wrong, the taint is removed where it may be on."""
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.phase, drain.failure, drain.released) == (Phase.DONE, failure, True)


def test_a_drain_begins_with_the_provider() -> None:
    assert machine.start(PLAN, LIMITS)[1] == (AskProvider(),)
    assert machine.resume("od", LIMITS, ("a",))[1] == (AskProvider(),)


def test_landing_is_measured_from_the_last_eviction() -> None:
    """There is nothing to measure before everything runs, and where nothing was evicted."""
    moved = play(machine.start(PLAN, LIMITS), [*OPENING, *MOVED])
    _, story = SUCCESSES["pods that are being deleted are waited for, and not evicted"]
    left = play(machine.start(EMPTY, LIMITS), story)
    assert (moved.landing_seconds, begun(PLAN, WEB).landing_seconds, left.landing_seconds) == (2, None, None)


class TestEvictionsThatAreRefused:
    def test_they_are_asked_for_with_growing_pauses(self) -> None:
        drain, asked, now = play(machine.start(PLAN, replace(LIMITS, eviction=1000)), ASKED), [5.0], 5.0
        while len(asked) < 8:
            drain, actions = machine.step(drain, EvictionRefused("a", "budget"), now)
            while Evict(A) not in actions:
                now += 0.5
                drain, actions = machine.step(drain, seen("a b", RUNS), now)
            asked.append(now)
        assert [later - earlier for earlier, later in pairwise(asked)] == [1, 2, 4, 8, 10, 10, 10]

    def test_the_server_is_believed_when_it_names_a_time(self) -> None:
        story: Story = [
            *ASKED,
            (6, EvictionFailed("a", "busy", retryable=True, retry_after=7), ()),
            (12.5, seen("a b", RUNS), ()),
            (13, seen("a b", RUNS), (READ, Evict(A))),
            (13.5, seen("a b", RUNS), ()),
        ]
        assert not play(machine.start(PLAN, LIMITS), story).done

    FIRST, X, Y = ALL = (workload("first", "a"), workload("x", "x"), workload("y", "y"))
    RUNNING: ClassVar[dict[Workload, Replicas]] = dict.fromkeys(ALL, running(1))
    #: After the first pod, those of two Deployments are asked for at the same time.
    TWO: ClassVar[Story] = [
        (5, seen("a x y", RUNNING), (planning(),)),
        *step(5, "a"),
        (6, seen("x y", RUNNING), (planning(),)),
        (6, PlannedAgain(EMPTY), (Evict(X.pods[0]), Evict(Y.pods[0]))),
    ]

    def test_another_pod_that_left_makes_room_in_a_budget(self) -> None:
        story: Story = [
            *self.TWO,
            (6, EvictionAccepted("x"), ()),
            (6, EvictionRefused("y", "budget", 100), ()),
            (7, seen("y", self.RUNNING), ()),
            (8, seen("y", self.RUNNING), (Evict(self.Y.pods[0]),)),
            (9, seen("y", self.RUNNING), ()),
        ]
        assert not play(begun(plan(*self.ALL), *self.ALL), story).done

    def test_one_whose_answer_is_on_its_way_is_not_asked_for_twice(self) -> None:
        story: Story = [
            *self.TWO,
            (6, EvictionRefused("y", "budget", 1), ()),
            (7, seen("x y", self.RUNNING), (Evict(self.Y.pods[0]),)),
            (8, EvictionAccepted("x"), ()),
            (9, seen("y", self.RUNNING), ()),
            (11, seen("y", self.RUNNING), ()),
            (11, EvictionAccepted("y"), ()),
            (12, seen("y", self.RUNNING), ()),
        ]
        assert not play(begun(plan(*self.ALL), *self.ALL), story).done


def test_nothing_is_evicted_while_a_node_of_the_plan_is_lost() -> None:
    """Not even a pod whose eviction a budget had refused; it is asked for once the pods fit other nodes."""
    story: Story = [
        *ASKED,
        (6, EvictionRefused("a", "budget", 1), ()),
        (7, seen("a b", RUNS, lost="node s1: it is gone"), (planning(),)),
        (7, PlannedAgain(PLAN), ()),
        (8, seen("a b", RUNS), (Evict(A),)),
        (8, EvictionRefused("a", "budget", 1), ()),
        (9, seen("a", RUNS, lost="node s1: it is gone"), (READ, planning())),
        (9, PlannedAgain(NO_ROOM), (Release(),)),
    ]
    assert play(machine.start(PLAN, LIMITS), story).evicted == ()


def test_a_lost_node_that_no_pod_needs_any_more_does_not_matter() -> None:
    story: Story = [
        *OPENING,
        *MOVED[:-2],
        (8, seen("b", {WEB: running(1, bound=2)}, lost="node s1: it is gone"), (READ,)),
        MOVED[-1],
        *LEFT,
    ]
    assert play(machine.start(PLAN, LIMITS), story).succeeded


def test_the_mark_is_renewed_each_minute() -> None:
    """With what is still owed, and in whatever phase the drain waits."""
    story: Story = [
        *OPENING[:4],
        (50, Marked(), (TryEviction(A), TryEviction(B))),
        (50, EvictionAccepted("a"), ()),
        (50, EvictionFailed("b", "500", retryable=True, retry_after=100), ()),
        (109.9, seen("a b"), ()),
        (110, seen("a b"), (RENEWED,)),
        (111, MarkFailed("timeout"), ()),
        (150, seen("a b"), (TryEviction(B),)),
        (151, EvictionAccepted("b"), ()),
        (152, seen("a b", RUNS), (READ, planning())),
        (152, PlannedAgain(PLAN), (Evict(A),)),
        (169.9, seen("a b", RUNS), ()),
        (170, EvictionAccepted("a"), (RENEWED,)),
        (171, seen("b", RUNS), (planning(),)),
        *step(171, "b"),
        (200, seen("b", RUNS), ()),
        (231, seen("", RUNS), (LookAgain(),)),
    ]
    assert play(machine.start(PLAN, LIMITS), story).phase is Phase.LOOKING


def test_the_mark_of_a_removal_is_renewed_each_minute() -> None:
    story: Story = [
        *TAKEN,
        *MOVED,
        *ORDERED,
        (70.9, RemovalPending("booked"), ()),
        (71, seen(), (Renew(Step.REMOVING, group="pool"),)),
        (71, MarkFailed("timeout"), ()),
        (80.9, seen(), (OrderRemoval("pool", again=True),)),
        (90, Removed(), (DeleteNode(),)),
        (131, seen(), (Renew(Step.REMOVING, group="pool"),)),
    ]
    assert play(machine.start(PLAN, LIMITS), story).phase is Phase.DELETING


STOPPED = "told to stop in the middle of the drain"

#: Where a drain is told to stop: what it does, and which pods it names.
STOPS: dict[str, tuple[Story, bool, tuple[PodRef, ...]]] = {
    "while the provider is asked": ([], False, ()),
    "while the node is marked": (OPENING[:1], True, ()),
    "while the cluster is read": (OPENING[:2], True, ()),
    "while the controllers are read": (OPENING[:3], True, (A, B)),
    "while the debts are noted": (OPENING[:4], True, (A, B)),
    "while evictions are tried": (OPENING[:5], True, (A, B)),
    "before the first eviction": (OPENING, True, (A, B)),
    "while an eviction is asked for": (ASKED, True, (A, B)),
    "while a replacement pod is awaited": ([*ASKED, (5, EvictionAccepted("a"), ())], True, (B,)),
    "when everything runs": ([*OPENING, *MOVED], True, ()),
    "while the intent to remove is written": ([*TAKEN, *MOVED, ORDERED[0]], True, ()),
}


@pytest.mark.parametrize(("story", "marked", "pods"), STOPS.values(), ids=STOPS)
def test_told_to_stop(story: Story, marked: bool, pods: tuple[PodRef, ...]) -> None:
    """What was begun is taken back; nothing further is evicted."""
    now = story[-1][0] if story else 0
    after: Story = [
        (now, Stop(Cause.TERMINATED), (Release(),) if marked else ()),
        (now, Stop(Cause.TERMINATED), ()),
        (now, seen("a b", RUNS), ()),
        (now, Released(), ()),
    ]
    drain = play(machine.start(PLAN, LIMITS), [*story, *after])
    assert (drain.phase, drain.failure, drain.released) == (Phase.DONE, Failure(Why.STOPPED, STOPPED, pods), True)


@pytest.mark.parametrize("story", [*(story for story, *_ in STOPS.values()), [*TAKEN, *MOVED, *ORDERED]])
def test_a_lost_lease_stops_at_once_and_writes_nothing(story: Story) -> None:
    now = story[-1][0] if story else 0
    drain = play(machine.start(PLAN, LIMITS), [*story, (now, Stop(Cause.LEADERSHIP_LOST), ())])
    assert (drain.phase, drain.released, drain.succeeded) == (Phase.DONE, False, False)
    assert drain.failure is not None
    assert drain.failure.why is Why.LEADERSHIP_LOST


def test_an_eviction_that_is_accepted_after_the_drain_failed_counts() -> None:
    """Its replacement pod is owed, too."""
    story: Story = [
        *ASKED,
        (6, seen("a b", RUNS, tainted=False), (Release(),)),
        (7, EvictionAccepted("a"), ()),
        (7, EvictionAccepted("a"), ()),
        (7, EvictionAccepted("b"), ()),
    ]
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.evicted, drain.debts) == ((A,), {WEB.controller: WEB.debt})


def test_an_eviction_in_a_dry_run_that_is_accepted_after_the_drain_failed_does_not_count() -> None:
    story: Story = [
        *OPENING[:5],
        (5, EvictionRefused("a", "budget"), (Release(),)),
        (6, EvictionAccepted("b"), ()),
    ]
    assert play(machine.start(PLAN, LIMITS), story).evicted == ()


def test_a_failed_drain_owes_only_controllers_that_have_lost_pods() -> None:
    api = workload("api", "c")
    replicas = {WEB: running(2), api: running(1)}
    story: Story = [
        (5, seen("a b c", replicas), (planning(),)),
        (5, PlannedAgain(EMPTY), (Evict(A),)),
        (6, Stop(Cause.TERMINATED), (Release(),)),
    ]
    drain = play(begun(plan(WEB, api), WEB, api), story)
    assert drain.debts == {WEB.controller: WEB.debt}


def test_a_taint_that_cannot_be_removed_is_reported() -> None:
    """It stays for the next round's sweep; the drain has failed, though its pods run."""
    story: Story = [
        *OPENING,
        *MOVED,
        (10, Looked(EMPTY), (Release(),)),
        *((now, ReleaseFailed("no answer"), ()) for now in (14, 19, 27)),
        (28, ReleaseFailed("no answer"), ()),
    ]
    drain = play(machine.start(PLAN, LIMITS), story)
    assert (drain.done, drain.released, drain.failure) == (True, False, Failure(Why.API_ERROR, "no answer"))


def test_the_first_pods_are_named_and_the_rest_counted() -> None:
    made = plan(bare="abcdefgh")
    story: Story = [
        (5, seen("a b c d e f g h"), (planning(),)),
        (5, PlannedAgain(made), tuple(Evict(placement.pod) for placement in made.placements)),
        (125, seen("a b c d e f g h"), (Release(),)),
    ]
    failure = play(begun(made), story).failure
    assert failure is not None
    assert failure.detail == "pods ns/a, ns/b, ns/c, ns/d, ns/e and 3 more could not be evicted within 120 s"
