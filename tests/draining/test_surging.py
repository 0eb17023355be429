"""Tables of rolling updates: how long a pod may be missing, and what ends a roll-out before."""

from dataclasses import replace
from typing import Any, Final, TypeAlias

import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import AskSurge, DrainTimes, Mark, RevertSurge, StoreDebts, SurgeMark
from rescheduler.draining.events import (
    Cause,
    ControllersRead,
    Done,
    DrainEvent,
    Looked,
    NodeSeen,
    PlannedAgain,
    ProviderAnswered,
    RolledTemplate,
    Stop,
    SurgeRead,
    SurgeReverted,
    SurgeSeen,
)
from rescheduler.draining.state import Drain, Limits, Phase, Why
from rescheduler.planning.outcome import Surge
from tests.draining.stories import plan, running, workload

LIMITS: Final = Limits(
    eviction=20, grace=5, headroom=5, removal=20, release=10, landing=30, creation=5, binding=10, exposure=5
)
API: Final = workload("api", "a", "b", total=3)
SURGE: Final = Surge("ns", "api", API.controller.uid, 3, API.pods)
MARK: Final = SurgeMark("ns", "api", API.controller.uid, "2026-01-01T00:00:00Z", None, "1", ("a", "b"))
PLANNED: Final = replace(plan(API), surges=(SURGE,))

#: The seconds that the Deployment's own deadlines allow.
PROGRESS: Final = 600.0

#: Seconds since the change of the template, and what is seen then.
Story: TypeAlias = list[tuple[float, DrainEvent]]


def seen(ready: int, *pods: str, terminating: str = "", **replicas: Any) -> NodeSeen:
    """Return what is watched: *ready* pods of the Deployment, and those of the old *pods* that are on the node."""
    counted = {API.controller: running(ready, **replicas)}
    return NodeSeen(frozenset(pods), counted, terminating=frozenset(terminating))


def state(wanted: int) -> ControllersRead:
    known = API.state(wanted=wanted)
    return ControllersRead({API.controller: known}, {}, {})


def rolling_out() -> Drain:
    """Return a drain whose Deployment has a new template since second 0."""
    drain, _ = transitions.start(PLANNED, LIMITS)
    read = ControllersRead(
        {API.controller: API.state()}, {("ns", API.controller.uid): API.controller}, {API.controller: API.running}
    )
    story = (
        ProviderAnswered("pool"),
        Done(Mark),
        Looked(PLANNED),
        read,
        Done(Mark),
        Done(StoreDebts),
        seen(3, "a", "b"),
    )
    for event in (
        *story,
        PlannedAgain(PLANNED),
        SurgeRead(MARK, progress_seconds=PROGRESS),
        Done(Mark),
        Done(AskSurge),
    ):
        drain, _ = transitions.step(drain, event, 0)
    assert drain.phase is Phase.SURGING
    return drain


def resumed(due_at: float | None = None) -> Drain:
    """Return the drain in a process that started at second 0, before it has read the Deployment."""
    times = DrainTimes(None, due_at)
    drain, _ = transitions.resume("od", LIMITS, ("a", "b"), (API.debt,), times=times, surge=MARK)
    for event in (ProviderAnswered("pool"), Done(Mark)):
        drain, _ = transitions.step(drain, event, 0)
    assert drain.phase is Phase.SURGING
    return drain


def follow(drain: Drain, story: Story) -> tuple[Drain, float | None]:
    """Return the drain after *story*, and when it asked to restore the template."""
    for at, event in story:
        drain, actions = transitions.step(drain, event, at)
        if any(isinstance(action, RevertSurge) for action in actions):
            return drain, at
    return drain, None


DOWN: Final = SurgeSeen(RolledTemplate.OURS, downtime="Recreate")
OURS: Final = SurgeSeen(RolledTemplate.OURS)
COMPLETE: Final = SurgeSeen(RolledTemplate.OURS, complete=True)

#: What is seen, when the template is restored, and why; None while the roll-out goes on.
STORIES: dict[str, tuple[Story, float | None, Why | None]] = {
    "all pods are Ready for longer than the landing timeout": (
        [(at, seen(3, "a", "b")) for at in (1, 200, 500)],
        None,
        None,
    ),
    "all pods are Ready, but the Deployment's own deadline is over": (
        [(1, seen(3, "a", "b")), (700, seen(3, "a", "b"))],
        700,
        Why.LANDING_TIMEOUT,
    ),
    "an old pod is gone and the new one is not Ready": (
        [(1, seen(3, "a", "b")), (10, seen(2, "b", bound=3)), (39, seen(2, "b", bound=3)), (40, seen(2, "b", bound=3))],
        40,
        Why.LANDING_TIMEOUT,
    ),
    "an old pod terminates and the new one is not Ready": (
        [(10, seen(2, "a", "b", terminating="a")), (40, seen(2, "b"))],
        40,
        Why.LANDING_TIMEOUT,
    ),
    "the missing pod is Ready in between": (
        [(10, seen(2, "b")), (30, seen(3, "b")), (31, seen(2, "b")), (60, seen(2, "b")), (61, seen(2, "b"))],
        61,
        Why.LANDING_TIMEOUT,
    ),
    "the new pod is Ready, but not for minReadySeconds": (
        [(10, seen(3, "b", unavailable=1)), (40, seen(3, "b", unavailable=1))],
        40,
        Why.LANDING_TIMEOUT,
    ),
    "a pod on another node is lost": ([(10, seen(2, "a", "b")), (40, seen(2, "a", "b"))], 40, Why.LANDING_TIMEOUT),
    "the Deployment wants less": (
        [(10, seen(2, "b")), (12, state(2)), (13, seen(2, "b")), (90, seen(2, "b"))],
        None,
        None,
    ),
    "the strategy may end old pods, and none has gone": ([(1, DOWN), (2, seen(3, "a", "b"))], 2, Why.SURGE_FAILED),
    "the strategy may end old pods, and one terminates": (
        [(1, DOWN), (2, seen(2, "a", "b", terminating="a")), (31, seen(2, "b")), (32, seen(2, "b"))],
        32,
        Why.LANDING_TIMEOUT,
    ),
    "the strategy may end old pods, and all have gone: the new ones run in time": (
        [(1, DOWN), (2, seen(0)), (20, seen(3)), (21, COMPLETE), (22, seen(3))],
        None,
        None,
    ),
    "the strategy may end old pods, and all have gone: the new ones are Ready, which is not read yet": (
        [(1, DOWN), (2, seen(0)), (20, seen(3)), (22, seen(3))],
        None,
        None,
    ),
    "the strategy is as before when it is read again": ([(1, DOWN), (2, OURS), (3, seen(3, "a", "b"))], None, None),
    "the scheduler cannot place the new pod": (
        [(10, seen(2, "b", unschedulable=("ns/c",))), (15, seen(2, "b", unschedulable=("ns/c",)))],
        15,
        Why.REPLACEMENT_UNSCHEDULABLE,
    ),
    "the new pod is refused after an old one has gone": (
        [(10, SurgeSeen(RolledTemplate.OURS, refusal="quota")), (11, seen(2, "b")), (15, seen(2, "b"))],
        15,
        Why.REPLACEMENT_REFUSED,
    ),
}


@pytest.mark.parametrize(("story", "restored_at", "why"), STORIES.values(), ids=STORIES)
def test_how_long_pods_may_be_missing(story: Story, restored_at: float | None, why: Why | None) -> None:
    drain, at = follow(rolling_out(), story)
    assert (at, drain.failure.why if drain.failure is not None else None) == (restored_at, why)


def test_a_resumed_roll_out_has_the_rest_of_the_stored_time() -> None:
    """The earlier process stored that the pods must run by second 12."""
    read = ControllersRead({API.controller: API.state()}, {}, {API.controller: running(2)})
    story: Story = [(1, seen(0)), (2, read), (3, seen(2)), (11, seen(2)), (12, seen(2))]
    assert follow(resumed(due_at=12), story)[1] == 12
    story = [(1, seen(0)), (2, read), (3, seen(2)), (32, seen(2)), (33, seen(2))]
    assert follow(resumed(), story)[1] == 33


@pytest.mark.parametrize(
    ("story", "owed"),
    [
        ([(10, seen(2, "b"))], {API.controller: API.debt}),
        ([(10, seen(3, "a", "b"))], {}),
        ([(10, seen(2, "b")), (12, seen(3, "b"))], {}),
    ],
    ids=["missing", "Ready", "Ready again"],
)
@pytest.mark.parametrize(
    "end",
    [Stop(Cause.TERMINATED), SurgeSeen(RolledTemplate.THEIRS), SurgeSeen(RolledTemplate.OURS, fault="it was paused")],
    ids=["stopped", "the template of another client", "paused"],
)
def test_the_pods_that_a_roll_out_leaves_missing_are_owed(story: Story, end: DrainEvent, owed: object) -> None:
    drain, _ = follow(rolling_out(), [*story, (13, end)])
    if drain.phase is Phase.SURGE_REVERTING:
        drain, _ = transitions.step(drain, SurgeReverted(), 14)
    assert (drain.phase, drain.owed) == (Phase.RELEASING, owed)


def test_a_template_that_lost_the_change_of_the_drain_ends_the_drain() -> None:
    """Another client has removed it: asking again could restart the roll-out that somebody has stopped."""
    drain, _ = follow(rolling_out(), [(10, seen(3, "a", "b")), (11, SurgeSeen(RolledTemplate.UNTOUCHED))])
    assert drain.failure is not None
    assert (drain.phase, drain.failure.why) == (Phase.RELEASING, Why.SURGE_FAILED)


def test_a_complete_roll_out_whose_new_pod_fails_afterwards_fails_like_an_eviction() -> None:
    down = seen(2, bound=3)
    drain, _ = follow(rolling_out(), [(10, COMPLETE), (11, seen(3)), (12, down), (40, down), (41, down)])
    assert drain.failure is not None
    assert (drain.phase, drain.failure.why) == (Phase.RELEASING, Why.LANDING_TIMEOUT)
