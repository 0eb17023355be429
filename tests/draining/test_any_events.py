"""Properties of every drain under any events that its phases accept, including responses to requests never sent."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    Action,
    AskSurge,
    DeleteNode,
    DeletePlaceholder,
    Evict,
    FollowSurge,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    ReadSurge,
    Release,
    RevertSurge,
    StoreDebts,
    SurgeMark,
    TryEviction,
    Withdraw,
)
from rescheduler.draining.events import (
    Cause,
    ControllersRead,
    Done,
    DrainEvent,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionRequested,
    EvictionSkipped,
    Looked,
    NodeGone,
    NodeSeen,
    NotDone,
    Outcome,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Removed,
    RequestSeen,
    RequestsUnserved,
    RequestWithheld,
    RolledTemplate,
    Stop,
    SurgeRead,
    SurgeReverted,
    SurgeSeen,
    kind_of,
)
from rescheduler.draining.state import Drain, Limits, Phase, Result, Why
from rescheduler.draining.transitions import TABLE
from rescheduler.planning.controllers import ControllerState, JobFacts
from rescheduler.planning.debts import Replicas
from rescheduler.planning.last_look import Ground
from rescheduler.planning.outcome import Plan, PodRef, Surge
from tests.draining.stories import JOINED, NO_ROOM, STORED, Workload, plan, workload

LIMITS = Limits(
    eviction=20, grace=5, headroom=5, removal=20, release=10, landing=30, creation=5, binding=10, exposure=5
)
REQUESTING = replace(LIMITS, requests=True, taking=8)
WEB, DATABASE = workload("web", "a", "b"), workload("db", "c", kind="StatefulSet", namespace="data", total=3)
#: Its pod is moved by a roll-out.
API = workload("api", "g")
WORKLOADS = (WEB, DATABASE, API)
SURGE = Surge("ns", "api", API.controller.uid, 1, API.pods)
SURGE_MARK = SurgeMark("ns", "api", API.controller.uid, "2026-01-01T00:00:00Z", None, "1", ("g",))
PLAN = plan(*WORKLOADS, bare="d")
PLAN = replace(
    PLAN,
    placements=tuple(
        msgspec.structs.replace(each, responders=each.pod.uid == "b", requestable=each.pod.uid != "d")
        for each in PLAN.placements
    ),
    surges=(SURGE,),
)
UIDS = tuple(placement.pod.uid for placement in PLAN.placements)
ORDERED_AT = datetime(2026, 1, 1, tzinfo=UTC)

REMOVING = transitions.await_end(Drain("od", LIMITS, Phase.DONE, marked=True, group="pool", ordered=True), LIMITS, 0)


def _roll_out(begun: Result) -> Result:
    """Return the drain *begun* right before a Deployment rolls out."""
    running = ControllersRead(
        {API.controller: API.state()}, {("ns", API.controller.uid): API.controller}, {API.controller: API.running}
    )
    planned = replace(plan(API), surges=(SURGE,))
    ready = NodeSeen(frozenset("g"), {API.controller: API.running})
    first = (ProviderAnswered("pool"),) if begun[0].phase is Phase.ASKING else ()
    story = (*first, Done(Mark), Looked(planned), running, Done(Mark), Done(StoreDebts), ready, PlannedAgain(planned))
    for event in (*story, SurgeRead(SURGE_MARK)):
        begun = transitions.step(begun[0], event, 0)
    return begun


BEGINNINGS: Mapping[str, Result] = {
    "a roll-out": _roll_out(transitions.start(replace(plan(API), surges=(SURGE,)), LIMITS)),
    "a roll-out before a removal": _roll_out(transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT)),
    "a drain": transitions.start(PLAN, LIMITS),
    "a drain with EvictionRequests": transitions.start(PLAN, REQUESTING),
    "a resumed drain with EvictionRequests": transitions.resume("od", REQUESTING, UIDS, (DATABASE.debt,)),
    "a resumed drain": transitions.resume("od", LIMITS, UIDS, (DATABASE.debt,)),
    "a resumed removal": transitions.resume_removal("od", LIMITS, "pool", ORDERED_AT, (DATABASE.debt,)),
    "a resumed roll-out": transitions.resume("od", LIMITS, UIDS, (DATABASE.debt, API.debt), surge=SURGE_MARK),
    "an undone roll-out": transitions.undo("od", LIMITS, (DATABASE.debt,), SURGE_MARK, 0),
    "a rollback": transitions.roll_back("od", LIMITS, (DATABASE.debt,), 0),
    "a removal in progress": REMOVING,
    "a deletion": transitions.step(REMOVING[0], Removed(), 0),
}

Trace = list[tuple[Drain, DrainEvent, Drain, tuple[Action, ...]]]


class Events:
    """A strategy for random events."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def trace(self, beginning: str) -> Trace:
        """Return a drain after up to forty events, most of which it waits for."""
        (drain, _), now = BEGINNINGS[beginning], 0.0
        trace: Trace = []
        for _ in range(self.random.randint(0, 40)):
            if drain.done:
                break
            now += self.random.choice([0.0, 0.2, 1.0, 3.0, 9.0])
            event = self.expected(drain.phase) if self.random.random() < 0.8 else self.possible(drain.phase)
            after, actions = transitions.step(drain, event, now)
            trace.append((drain, event, after, actions))
            drain = after
        return trace

    def expected(self, phase: Phase) -> DrainEvent:
        """Return an event that lets the drain make progress."""
        waited: Mapping[Phase, list[Callable[[], DrainEvent]]] = {
            Phase.ASKING: [lambda: ProviderAnswered("pool")],
            Phase.MARKING: [lambda: Done(Mark)],
            Phase.LOOKING: [lambda: Looked(self.plan())],
            Phase.COUNTING: [self.read],
            Phase.NOTING: [lambda: Done(StoreDebts)],
            Phase.TRYING: [lambda: EvictionAccepted(self.uid())],
            Phase.EVICTING: [
                lambda: EvictionAccepted(self.uid()),
                lambda: EvictionRequested(self.uid()),
                lambda: PlannedAgain(self.plan()),
                lambda: PlannedAgain(self.plan(), self.read()),
                self.seen,
                self.seen,
            ],
            Phase.SURGE_READING: [lambda: SurgeRead(SURGE_MARK)],
            Phase.SURGE_NOTING: [lambda: Done(Mark)],
            Phase.SURGING: [lambda: Done(AskSurge), self.surge_seen, self.surge_seen, self.seen, self.seen],
            Phase.SURGE_REVERTING: [lambda: NotDone(RevertSurge, "500", Outcome.UNKNOWN)],
            Phase.ORDERING: [lambda: Done(Mark)],
            Phase.REMOVING: [lambda: NotDone(OrderRemoval, "booked", Outcome.UNKNOWN)],
            Phase.DELETING: [lambda: NotDone(DeleteNode, "500")],
            Phase.RELEASING: [lambda: NotDone(Release, "500")],
        }
        return self.random.choice(waited[phase])()

    def possible(self, phase: Phase) -> DrainEvent:
        """Return any event that *phase* accepts or ignores."""
        while kind_of(event := self.any()) not in TABLE[phase]:
            pass
        return event

    def any(self) -> DrainEvent:
        makers: list[Callable[[], DrainEvent]] = [
            self.seen,
            self.read,
            self.incomplete,
            lambda: replace(self.read(), blockers=NO_ROOM.blockers),
            *(lambda: Done(Mark), lambda: Done(StoreDebts)),
            lambda: NotDone(StoreDebts, "conflict", Outcome.UNKNOWN),
            lambda: Done(DeleteNode),
            lambda: Done(Release),
            lambda: NodeGone("no node od"),
            lambda: EvictionSkipped(self.uid()),
            lambda: Looked(self.plan()),
            lambda: Looked(NO_ROOM),
            lambda: Looked(JOINED),
            lambda: PlannedAgain(NO_ROOM),
            lambda: PlannedAgain(JOINED),
            lambda: PlannedAgain(self.plan(), self.read(), {("ns", "uid-web"): "it is gone"} if self.rarely() else {}),
            lambda: NotDone(PlanAgain, "timeout", self.outcome()),
            lambda: EvictionAccepted(self.uid()),
            lambda: EvictionRefused(self.uid(), "budget", self.random.choice([None, 0.0, 5.0])),
            lambda: EvictionFailed(self.uid(), "500", self.often()),
            lambda: PodGone(self.uid()),
            lambda: EvictionRequested(self.uid()),
            lambda: RequestsUnserved(self.uid(), "404"),
            lambda: RequestSeen(self.uid(), self.often(), "Failed" if self.rarely() else "", gone=self.rarely()),
            lambda: Done(Withdraw),
            lambda: NotDone(Withdraw, "500"),
            lambda: Done(DeletePlaceholder, self.uid()),
            lambda: NotDone(DeletePlaceholder, "500", self.outcome(), uid=self.uid()),
            lambda: ProviderAnswered(self.random.choice([None, "pool"]), self.random.choice(["", "no"])),
            lambda: NotDone(Mark, "409", self.random.choice(list(Outcome))),
            lambda: NotDone(LookAgain, "timeout", Outcome.GONE if self.rarely() else Outcome.FAILED),
            lambda: NotDone(ReadControllers, "timeout", self.outcome()),
            lambda: Removed(self.often()),
            lambda: SurgeRead(SURGE_MARK, self.random.choice(["", "it is paused"])),
            lambda: NotDone(ReadSurge, "500", self.outcome()),
            lambda: Done(AskSurge),
            lambda: NotDone(AskSurge, "500", self.outcome()),
            lambda: NotDone(FollowSurge, "500", self.outcome()),
            self.surge_seen,
            lambda: SurgeReverted(complete=self.rarely()),
            lambda: NotDone(RevertSurge, "500", self.outcome()),
            lambda: NotDone(OrderRemoval, "booked", Outcome.UNKNOWN),
            lambda: NotDone(OrderRemoval, "protected", Outcome.GONE if self.rarely() else Outcome.FAILED),
            lambda: RequestWithheld(self.random.choice([*Ground, Ground.PODS, Ground.PODS]), "late"),
            lambda: NotDone(DeleteNode, "500"),
            lambda: NotDone(Release, "500"),
            lambda: Stop(self.random.choice(list(Cause))),
        ]
        return self.random.choice(makers)()

    def outcome(self) -> Outcome:
        return Outcome.UNKNOWN if self.often() else Outcome.FAILED

    def often(self) -> bool:
        return self.random.random() < 0.8

    def rarely(self) -> bool:
        return not self.often()

    def uid(self) -> str:
        return self.random.choice(UIDS)

    def plan(self) -> Plan:
        placements = self.random.sample(PLAN.placements, max(0, self.random.randint(-2, len(UIDS))))
        leaving = self.random.sample("ef", self.random.choice([0, 0, 1, 2]))
        surges = (SURGE,) if any(placement.pod in SURGE.pods for placement in placements) else ()
        return Plan("od", tuple(placements), tuple(PodRef("ns", name, name) for name in leaving), surges=surges)

    def surge_seen(self) -> SurgeSeen:
        template = RolledTemplate.OURS if self.often() else self.random.choice(list(RolledTemplate))
        fault, refusal = self.random.choice(["", "", "", "", "deadline"]), self.random.choice(["", "", "quota"])
        return SurgeSeen(template, self.often(), fault, refusal, "Recreate" if self.rarely() else "")

    def seen(self) -> NodeSeen:
        replicas = {each.controller: self.replicas() for each in WORKLOADS if self.often()}
        present = frozenset(uid for uid in UIDS if self.often())
        tainted, stale = self.often() or self.often(), self.rarely()
        lost, joined = self.random.choice(["", "", "s1"]), self.random.choice(["", "", "", "Cluster Autoscaler"])
        placeholders = {uid: PodRef("room", uid, uid) for uid in UIDS if self.rarely()}
        terminating = frozenset(uid for uid in present if self.rarely())
        return NodeSeen(present, replicas, tainted, lost, stale, joined, placeholders, terminating)

    def replicas(self) -> Replicas:
        numbers = sorted(self.random.randint(0, 4) for _ in range(3))
        ready, bound, live = numbers
        return Replicas(live, bound, ready, unschedulable=("ns/x",) if self.rarely() else ())

    def read(self) -> ControllersRead:
        topmost = {(each.controller.namespace, each.controller.uid): each.controller for each in WORKLOADS}
        return ControllersRead({each.controller: self.state(each) for each in WORKLOADS}, topmost)

    def incomplete(self) -> ControllersRead:
        states = {each.controller: self.state(each) for each in WORKLOADS if self.rarely()}
        return ControllersRead(states, {("ns", WEB.controller.uid): WEB.controller} if self.often() else {})

    def state(self, each: Workload) -> ControllerState:
        return each.state(
            wanted=self.random.choice([None, 0, 1, 2, 3]),
            template=self.random.choice(["1", "1", "2", ""]),
            exists=self.often() or self.often(),
            deleting=self.rarely() and self.rarely(),
            suspended=self.rarely(),
            job=JobFacts(failures=3) if self.rarely() else None,
        )


def actions_of(trace: Trace) -> Iterator[Action]:
    return (action for *_, actions in trace for action in actions)


def pods_are_evicted_only_by_a_plan_made_after_the_taint(trace: Trace) -> None:
    looked: set[str] = set()
    for before, event, after, actions in trace:
        if before.phase is Phase.LOOKING and isinstance(event, Looked) and isinstance(event.verdict, Plan):
            looked |= {placement.pod.uid for placement in event.verdict.placements}
        evicted = {action.pod.uid for action in actions if isinstance(action, Evict)}
        assert evicted <= looked
        assert not evicted or (after.marked and after.phase is Phase.EVICTING)


def termination_is_requested_only_after_the_mark_and_without_debts(trace: Trace) -> None:
    marked = bool(trace) and trace[0][0].ordered
    for before, event, after, actions in trace:
        marked = marked or (before.phase is Phase.ORDERING and event == Done(Mark))
        for action in actions:
            asks = isinstance(action, OrderRemoval) and action.doubt  # about an earlier order
            may_end = marked and (asks or not after.owed)
            assert not isinstance(action, OrderRemoval | DeleteNode) or may_end or after.doubt
            assert not isinstance(action, DeleteNode) or isinstance(event, Removed | NodeSeen)


def no_pod_is_evicted_after_a_stop_request(trace: Trace) -> None:
    stops = [number for number, (_, event, *_) in enumerate(trace) if isinstance(event, Stop)]
    if stops:
        assert not any(isinstance(action, Evict | Mark) for action in actions_of(trace[stops[0] :]))


def a_drain_that_failed_evicts_nothing(trace: Trace) -> None:
    for _, _, after, actions in trace:
        if after.failure is not None or after.done:
            assert not any(isinstance(action, Evict | TryEviction) for action in actions)


def no_pod_is_evicted_while_a_node_of_the_plan_is_lost(trace: Trace) -> None:
    for _, event, _, actions in trace:
        lost = isinstance(event, NodeSeen) and event.lost
        assert not lost or not any(isinstance(action, Evict) for action in actions)


def no_pod_is_evicted_while_another_tool_removes_the_node(trace: Trace) -> None:
    for _, event, _, actions in trace:
        joined = isinstance(event, NodeSeen) and event.removed_by
        assert not joined or not any(isinstance(action, Evict | PlanAgain) for action in actions)


def only_a_drain_without_pending_evictions_is_handed_to_another_tool(trace: Trace) -> None:
    for _, _, after, _ in trace:
        pending = after.waiting or any(not victim.accepted for victim in after.victims.values())
        assert not after.removed_by or (after.evicted and not pending)


def every_finished_drain_has_released_its_node_or_has_a_reason(trace: Trace) -> None:
    if not trace or not (drain := trace[-1][2]).done or not drain.marked or drain.released:
        return
    lost = drain.failure is not None and drain.failure.why in (Why.LEADERSHIP_LOST, Why.MARK_LOST)
    tried = drain.rolled_back or any(isinstance(action, Release | RevertSurge) for action in actions_of(trace))
    assert lost or tried or drain.ordered or drain.ordered_at is not None


def a_finished_drain_does_not_change(trace: Trace) -> None:
    if trace and (drain := trace[-1][2]).done:
        for _, event, *_ in trace:
            assert transitions.step(drain, event, 1e6) == (drain, ())


def ends_after_failures(trace: Trace) -> None:
    """Check that the drain ends if all requests fail from now on and no pod leaves."""
    if not trace:
        return
    drain, now = trace[-1][2], 1000.0
    seen = NodeSeen(frozenset(UIDS), {each.controller: each.running for each in WORKLOADS})
    for _ in range(200):
        if drain.done:
            return
        now += 1
        for response in (*failures(drain), seen):
            drain, _ = transitions.step(drain, response, now)
    raise AssertionError(drain)


def failures(drain: Drain) -> list[DrainEvent]:
    """Return failures of all requests that *drain* may be waiting for."""
    of_phases: dict[Phase, DrainEvent] = {
        Phase.ASKING: ProviderAnswered("pool"),
        Phase.MARKING: NotDone(Mark, "x"),
        Phase.LOOKING: NotDone(LookAgain, "x"),
        Phase.COUNTING: NotDone(ReadControllers, "x", Outcome.UNKNOWN),
        Phase.NOTING: NotDone(Mark, "x"),
        Phase.SURGE_READING: NotDone(ReadSurge, "x", Outcome.UNKNOWN),
        Phase.SURGE_NOTING: NotDone(Mark, "x"),
        Phase.SURGING: NotDone(AskSurge, "x", Outcome.UNKNOWN),
        Phase.SURGE_REVERTING: NotDone(RevertSurge, "x", Outcome.UNKNOWN),
        Phase.ORDERING: NotDone(Mark, "x"),
        Phase.REMOVING: NotDone(OrderRemoval, "x", Outcome.UNKNOWN),
        Phase.DELETING: NotDone(DeleteNode, "x"),
        Phase.RELEASING: NotDone(Release, "x"),
    }
    if drain.phase in of_phases:
        return [of_phases[drain.phase]]
    planned = [PlannedAgain(PLAN)] if drain.phase is Phase.EVICTING else []
    deletions = [NotDone(DeletePlaceholder, "x", Outcome.UNKNOWN, uid=uid) for uid in drain.vacating]
    return [*planned, *deletions, *(EvictionFailed(uid, "x", retryable=True) for uid in drain.victims)]


def requests_are_made_only_if_wanted_and_withdrawn_before_the_marks_are_removed(trace: Trace) -> None:
    for before, _, after, actions in trace:
        if any(isinstance(action, Evict) and action.request for action in actions):
            assert after.limits.requests
            assert after.requested
        releases = before.phase is not Phase.RELEASING and any(isinstance(action, Release) for action in actions)
        if releases:
            assert not before.requested or Withdraw() in actions[: actions.index(Release())]


def debts_are_stored_before_the_marks_are_removed_or_the_machine_is_ordered_away(trace: Trace) -> None:
    for before, _, after, actions in trace:
        if after.phase is not before.phase and after.phase in (Phase.RELEASING, Phase.ORDERING):
            assert actions[0] == STORED


def no_pod_whose_eviction_is_the_task_of_others_is_evicted_by_the_api(trace: Trace) -> None:
    for before, _, _, actions in trace:
        victims = {victim.pod.uid: victim for victim in (*before.waiting, *before.victims.values(), *before.step)}
        for action in actions:
            if isinstance(action, Evict) and before.limits.requests:
                assert action.request or not victims[action.pod.uid].responders


def no_pod_is_evicted_before_the_placeholders_of_its_step_are_gone(trace: Trace) -> None:
    for before, event, _, actions in trace:
        if isinstance(event, PlannedAgain):
            evicted = {action.pod.uid for action in actions if isinstance(action, Evict)}
            assert not evicted & before.placeholders.keys()


def pods_of_a_deployment_that_rolls_out_are_never_evicted(trace: Trace) -> None:
    """The plan decides: a pod is moved by a roll-out, or by an eviction."""
    surging = {pod.uid for pod in SURGE.pods}
    assert not any(
        isinstance(action, Evict | TryEviction) and action.pod.uid in surging for action in actions_of(trace)
    )


def a_template_is_changed_only_after_its_mark_and_never_left_changed(trace: Trace) -> None:
    for before, event, after, actions in trace:
        asks = any(isinstance(action, AskSurge) for action in actions)
        noted = before.phase is Phase.SURGE_NOTING and event == Done(Mark)
        assert not asks or noted or before.phase is Phase.SURGING
        if before.rollout is None or after.rollout is not None or before.phase is Phase.SURGE_REVERTING:
            continue
        complete = before.rollout.complete
        theirs = isinstance(event, SurgeSeen) and event.template is not RolledTemplate.OURS
        lost = event == NotDone(Mark, "409", Outcome.REFUSED)
        assert complete or theirs or lost or not before.rollout.asked


def a_stopped_drain_undoes_its_roll_out(trace: Trace) -> None:
    for before, event, after, actions in trace:
        if isinstance(event, Stop) and event.cause is not Cause.LEADERSHIP_LOST and before.phase is Phase.SURGING:
            undone = after.phase is Phase.SURGE_REVERTING and any(isinstance(each, RevertSurge) for each in actions)
            assert undone or after.done


LAWS = (
    requests_are_made_only_if_wanted_and_withdrawn_before_the_marks_are_removed,
    debts_are_stored_before_the_marks_are_removed_or_the_machine_is_ordered_away,
    no_pod_whose_eviction_is_the_task_of_others_is_evicted_by_the_api,
    pods_of_a_deployment_that_rolls_out_are_never_evicted,
    a_template_is_changed_only_after_its_mark_and_never_left_changed,
    a_stopped_drain_undoes_its_roll_out,
    no_pod_is_evicted_before_the_placeholders_of_its_step_are_gone,
    pods_are_evicted_only_by_a_plan_made_after_the_taint,
    termination_is_requested_only_after_the_mark_and_without_debts,
    no_pod_is_evicted_after_a_stop_request,
    a_drain_that_failed_evicts_nothing,
    no_pod_is_evicted_while_a_node_of_the_plan_is_lost,
    no_pod_is_evicted_while_another_tool_removes_the_node,
    only_a_drain_without_pending_evictions_is_handed_to_another_tool,
    every_finished_drain_has_released_its_node_or_has_a_reason,
    a_finished_drain_does_not_change,
    ends_after_failures,
)


@pytest.mark.parametrize("beginning", BEGINNINGS)
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_all_properties_hold_for_any_events(beginning: str, seed: int) -> None:
    trace = Events(Random(seed)).trace(beginning)
    for law in LAWS:
        law(trace)
