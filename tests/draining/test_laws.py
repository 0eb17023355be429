"""What holds of every drain, whatever happens in whatever order."""

from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.draining import machine
from rescheduler.draining.messages import (
    Action,
    Cause,
    DeleteNode,
    Event,
    Evict,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
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
    Seen,
    Stop,
)
from rescheduler.draining.state import Drain, Limits, Phase, Why
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected

LIMITS = Limits(eviction=60, grace=30, headroom=10, removal=50, release=20)
PODS = tuple(PodRef("ns", name, name) for name in "abc")
PLAN = Plan("od", tuple(Placement(pod, "s1") for pod in PODS[:2]))

uids = st.sampled_from([pod.uid for pod in PODS])
plans = st.sets(st.sampled_from(PODS)).map(
    lambda pods: Plan("od", tuple(Placement(pod, "s1") for pod in sorted(pods, key=str)))
)
words = st.just("why")
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(ProviderAnswered, st.sampled_from([None, "pool"]), st.sampled_from(["", "", "", "no"])),
    st.builds(Marked),
    st.builds(MarkFailed, words, st.booleans()),
    st.builds(Looked, plans),
    st.builds(Looked, st.just(Rejected("od", (Blocker(Reason.NO_ROOM, "full"),)))),
    st.builds(LookFailed, words, st.booleans()),
    st.builds(EvictionAccepted, uids),
    st.builds(EvictionRefused, uids, words, st.sampled_from([None, 5.0])),
    st.builds(EvictionFailed, uids, words, st.booleans()),
    st.builds(PodGone, uids),
    st.builds(Seen, st.frozensets(uids)),
    st.builds(Removed),
    st.builds(RemovalPending, words),
    st.builds(RemovalFailed, words),
    st.builds(NodeDeleted),
    st.builds(NodeDeletionFailed, words),
    st.builds(Released),
    st.builds(ReleaseFailed, words),
    st.builds(Stop, st.sampled_from(Cause)),
)
scripts = st.lists(st.tuples(st.floats(0, 30), events), max_size=40)

Trace = list[tuple[Drain, Event, Drain, tuple[Action, ...]]]


def run(script: list[tuple[float, Event]]) -> tuple[Drain, Trace]:
    """Play *script* (pauses and events)."""
    (drain, _), now, trace = machine.start(PLAN, LIMITS), 0.0, Trace()
    for pause, event in script:
        now += pause
        after, actions = machine.step(drain, event, now)
        trace.append((drain, event, after, actions))
        drain = after
    return drain, trace


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_nothing_is_evicted_but_on_a_plan_made_with_the_taint_on(script: list[tuple[float, Event]]) -> None:
    _, trace = run(script)
    looked: set[str] = set()
    marked = False
    for before, event, _, actions in trace:
        marked = marked or (isinstance(event, Marked) and before.phase is Phase.MARKING)
        if before.phase is Phase.LOOKING and isinstance(event, Looked) and isinstance(event.verdict, Plan):
            looked |= {one.pod.uid for one in event.verdict.placements}
        evicted = {one.pod.uid for one in actions if isinstance(one, Evict)}
        assert evicted <= looked
        assert marked or not evicted


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_every_end_has_freed_the_node_or_a_reason_not_to(script: list[tuple[float, Event]]) -> None:
    drain, trace = run(script)
    if not drain.done or not drain.marked or drain.released:
        return
    lost = drain.failure is not None and drain.failure.why is Why.LEADERSHIP_LOST
    tried = any(isinstance(one, Release) for *_, actions in trace for one in actions)
    ordered = any(isinstance(one, OrderRemoval) for *_, actions in trace for one in actions)
    assert lost or tried or ordered


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_the_machine_is_ordered_away_only_after_the_intent_is_written(script: list[tuple[float, Event]]) -> None:
    _, trace = run(script)
    actions = [one for *_, done in trace for one in done]
    order = [one for one in actions if isinstance(one, Mark | OrderRemoval | DeleteNode)]
    for number, one in enumerate(order):
        if isinstance(one, OrderRemoval | DeleteNode):
            assert any(isinstance(earlier, Mark) and earlier.group for earlier in order[:number])
    deleted = next((number for number, one in enumerate(actions) if isinstance(one, DeleteNode)), None)
    if deleted is not None:
        assert any(isinstance(event, Removed) for _, event, _, _ in trace)


@settings(max_examples=400, deadline=None)
@given(scripts)
def test_once_told_to_stop_nothing_more_is_evicted(script: list[tuple[float, Event]]) -> None:
    _, trace = run(script)
    stops = [number for number, (_, event, _, _) in enumerate(trace) if isinstance(event, Stop)]
    if stops:
        assert not [one for *_, actions in trace[stops[0] :] for one in actions if isinstance(one, Evict)]


@settings(max_examples=400, deadline=None)
@given(scripts, st.sampled_from([None, "pool"]))
def test_time_ends_every_drain(script: list[tuple[float, Event]], group: str | None) -> None:
    """With requests that all fail, and pods that never leave, a drain ends within its limits."""
    drain, _ = run(script)
    now, present = 1000.0, frozenset(pod.uid for pod in PODS)
    answers: dict[Phase, Event] = {
        Phase.ASKING: ProviderAnswered(group),
        Phase.MARKING: MarkFailed("x"),
        Phase.LOOKING: LookFailed("x"),
        Phase.ORDERING: MarkFailed("x"),
        Phase.REMOVING: RemovalPending("x"),
        Phase.DELETING: NodeDeletionFailed("x"),
        Phase.RELEASING: ReleaseFailed("x"),
    }
    for _ in range(500):
        if drain.done:
            return
        now += 1
        if (answer := answers.get(drain.phase)) is not None:
            drain, _ = machine.step(drain, answer, now)
        drain, _ = machine.step(drain, Seen(present), now)
    raise AssertionError(drain)
