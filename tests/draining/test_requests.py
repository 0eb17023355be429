"""Drains that ask for evictions with EvictionRequests, as (time, event, expected actions)."""

from dataclasses import replace
from typing import Final
from unittest.mock import MagicMock

import msgspec
import pytest

from rescheduler.draining.actions import (
    Action,
    Evict,
    FollowRequest,
    Mark,
    Release,
    RevertSurge,
    StoreDebts,
    SurgeMark,
    TryEviction,
    Withdraw,
)
from rescheduler.draining.events import (
    Cause,
    Done,
    DrainEvent,
    EvictionRefused,
    EvictionRequested,
    Looked,
    NodeSeen,
    NotDone,
    PlannedAgain,
    ProviderAnswered,
    RequestSeen,
    RequestsUnserved,
    Stop,
    SurgeReverted,
)
from rescheduler.draining.state import Drain, Why
from rescheduler.draining.transitions import resume, start, step, undo
from rescheduler.execution.observation import Observation
from rescheduler.planning.outcome import Plan
from tests.draining.stories import (
    EMPTY,
    LIMITS,
    PLAN,
    RUNS,
    STORED,
    WEB,
    A,
    B,
    Story,
    begun,
    planning,
    play,
    read,
    running,
    seen,
)

REQUESTS: Final = replace(LIMITS, requests=True, landing=100, taking=15)
TAKEN: Final = RequestSeen("a", taken=True, note="acme.io/migrator: copying memory")
UNTAKEN: Final = RequestSeen("a", taken=False)


def marked(plan: Plan, **fields: bool) -> Plan:
    """Return *plan* with these *fields* of its placements."""
    return replace(plan, placements=tuple(msgspec.structs.replace(each, **fields) for each in plan.placements))


def asked(plan: Plan = PLAN) -> Drain:
    """Return a drain that has asked for the eviction of the first pod at 5 s."""
    story: Story = [
        (5, seen("a b", RUNS), (planning(),)),
        (5, PlannedAgain(plan), (Evict(A, request=True),)),
        (5, EvictionRequested("a"), ()),
    ]
    drain = play(replace(begun(plan, WEB), limits=REQUESTS), story)
    assert drain.requested
    return drain


def until(drain: Drain, end: float, since: float, answer: DrainEvent | None = None) -> tuple[Drain, list[Action]]:
    """Let both pods stay on the node, and answer each read with *answer*. Return the actions except reads.

    Evictions that are requested again are planned at once.
    """
    sent: list[Action] = []
    now = since
    while now < end and not drain.done:
        drain, actions = step(drain, seen("a b", RUNS), now)
        if any(victim.pod.uid in drain.victims for victim in drain.step):
            drain, more = step(drain, PlannedAgain(PLAN), now)
            actions += more
        sent += [each for each in actions if isinstance(each, Evict | StoreDebts | Withdraw | Release)]
        if answer is not None and any(isinstance(each, FollowRequest) for each in actions):
            drain, more = step(drain, answer, now)
            sent += more
        now += 0.5
    return drain, sent


def test_the_eviction_is_accepted_when_the_pod_is_being_deleted() -> None:
    drain, sent = until(asked(), 60, 6, TAKEN)
    assert (sent, drain.evicted, drain.last_eviction_at) == ([], (), 4)
    drain, _ = step(drain, seen("a b", RUNS, terminating=frozenset("a")), 60)
    assert (drain.evicted, drain.last_eviction_at, drain.unanswered) == ((A,), 60, False)
    drain, _ = step(drain, seen("b", {WEB: running(1)}), 61)
    drain, _ = step(drain, seen("b", RUNS), 62)
    drain, actions = step(drain, PlannedAgain(PLAN), 62)
    assert actions == (Evict(B, request=True),)


def test_a_pod_that_is_gone_before_its_deletion_was_seen_is_owed() -> None:
    drain, _ = step(asked(), seen("b", {WEB: running(1)}), 6)
    assert (drain.evicted, list(drain.unproven), list(drain.owed)) == ((A,), [], [WEB.controller])


def test_while_a_request_is_open_no_other_pod_is_evicted() -> None:
    drain, _ = until(asked(), 90, 6, TAKEN)
    assert [each.pod for each in drain.waiting] == [B]


def test_if_nobody_takes_the_request_the_api_is_used_for_it_and_all_others() -> None:
    drain, sent = until(asked(), 21, 6, UNTAKEN)
    assert sent == [Evict(A, withdraw=True)]
    drain, _ = step(drain, seen("b", {WEB: running(1)}), 22)
    drain = replace(drain, planning_at=None)
    drain, _ = step(drain, seen("b", RUNS), 23)
    drain, actions = step(drain, PlannedAgain(PLAN), 23)
    assert actions == (Evict(B),)


def test_where_requests_are_not_served_the_api_is_used_at_once() -> None:
    drain = replace(begun(PLAN, WEB), limits=REQUESTS)
    drain = play(drain, [(5, seen("a b", RUNS), (planning(),)), (5, PlannedAgain(PLAN), (Evict(A, request=True),))])
    drain, _ = step(drain, RequestsUnserved("a", "404"), 5)
    drain, sent = until(drain, 7, 6)
    assert sent == [Evict(A)]


def test_a_request_that_failed_is_followed_by_the_api_and_the_next_pod_is_asked_for_again() -> None:
    drain, sent = until(asked(), 12, 6, RequestSeen("a", taken=True, failed="NoFurtherResponder"))
    assert sent == [Evict(A, withdraw=True)]
    assert not drain.ignored


def test_a_request_that_somebody_deleted_is_made_again() -> None:
    _, sent = until(asked(), 30, 6, RequestSeen("a", taken=False, gone=True))
    assert sent == [Evict(A, request=True)]


OTHERS = marked(PLAN, responders=True)
FAILURES: dict[str, tuple[DrainEvent, float, Why, str]] = {
    "nobody takes it": (UNTAKEN, 30, Why.EVICTION_TIMEOUT, "nobody took the EvictionRequest of pod ns/a within 15 s"),
    "the last responder fails": (
        RequestSeen("a", taken=True, failed="NoFurtherResponder: no luck"),
        30,
        Why.EVICTION_FAILED,
        "the EvictionRequest of pod ns/a failed: NoFurtherResponder: no luck",
    ),
    "it takes too long": (
        TAKEN,
        120,
        Why.EVICTION_TIMEOUT,
        "pod ns/a did not leave within 100 s after its EvictionRequest was taken: acme.io/migrator: copying memory",
    ),
}


@pytest.mark.parametrize(("answer", "end", "why", "detail"), FAILURES.values(), ids=FAILURES)
def test_a_responder_is_never_bypassed(answer: DrainEvent, end: float, why: Why, detail: str) -> None:
    drain, sent = until(asked(OTHERS), end, 6, answer)
    assert drain.failure is not None
    assert (drain.failure.why, drain.failure.detail, drain.failure.pods) == (why, detail, (A,))
    assert [each for each in sent if not isinstance(each, FollowRequest)][:3] == [STORED, Withdraw(), Release()]
    assert not any(isinstance(each, Evict) for each in sent)


def test_an_api_server_without_requests_does_not_bypass_a_responder_either() -> None:
    drain, actions = step(replace(asked(OTHERS)), RequestsUnserved("a", "create evictionrequest: 404"), 6)
    assert actions == (STORED, Withdraw(), Release())
    assert drain.failure is not None
    assert (drain.failure.why, drain.failure.detail) == (Why.EVICTION_FAILED, "create evictionrequest: 404")


def test_pods_of_groups_are_evicted_by_the_api() -> None:
    drain = replace(begun(marked(PLAN, requestable=False), WEB), limits=REQUESTS)
    story: Story = [(5, seen("a b", RUNS), (planning(),)), (5, PlannedAgain(PLAN), (Evict(A),))]
    assert not play(drain, story).requested


def test_the_budgets_are_asked_again_before_a_request_is_repeated() -> None:
    drain = replace(begun(PLAN, WEB), limits=REQUESTS)
    drain = play(drain, [(5, seen("a b", RUNS), (planning(),)), (5, PlannedAgain(PLAN), (Evict(A, request=True),))])
    drain, _ = step(drain, EvictionRefused("a", "budget", 2), 5)
    drain, sent = until(drain, 8, 6)
    assert sent == [Evict(A, request=True)]


def test_both_ways_are_tried_in_a_dry_run() -> None:
    drain, actions = start(marked(PLAN, responders=True), REQUESTS)
    for event in (
        ProviderAnswered(None),
        Done(Mark),
        Looked(marked(PLAN, responders=True)),
        read(WEB),
        Done(Mark),
        Done(StoreDebts),
    ):
        drain, actions = step(drain, event, 1)
    assert actions == (TryEviction(A, request=True, must=True), TryEviction(B, request=True, must=True))


class TestRollback:
    STOP: Final = Stop(Cause.TERMINATED)

    def test_requests_are_withdrawn_before_the_marks_are_removed(self) -> None:
        drain, actions = step(asked(), self.STOP, 6)
        assert actions == (STORED, Withdraw(), Release())
        story: Story = [(6, Done(Withdraw), ()), (6, Done(Release), ()), (7, seen("a b", RUNS), ())]
        drain = play(drain, story)
        assert drain.done
        assert (drain.evicted, drain.requested) == ((), False)

    def test_a_pod_that_is_deleted_meanwhile_is_owed(self) -> None:
        drain, _ = step(asked(), self.STOP, 6)
        leaving = seen("a b", RUNS, terminating=frozenset("a"))
        drain = play(drain, [(6, Done(Withdraw), ()), (6, Done(Release), ()), (7, leaving, ())])
        assert (drain.done, drain.evicted, list(drain.debts)) == (True, (A,), [WEB.controller])

    def test_a_failed_withdrawal_is_repeated_and_the_drain_ends_at_its_deadline(self) -> None:
        drain, _ = step(asked(), self.STOP, 6)
        story: Story = [
            (6, NotDone(Withdraw, "500"), ()),
            (6, Done(Release), ()),
            (7, seen("a b", RUNS), ()),
            (8, seen("a b", RUNS), (Withdraw(),)),
            (9, NotDone(Withdraw, "500"), ()),
            (26, seen("a b", RUNS), ()),
        ]
        drain = play(drain, story)
        assert (drain.done, drain.requested) == (True, True)

    def test_a_request_that_is_created_while_the_drain_ends_is_withdrawn_as_well(self) -> None:
        drain = replace(begun(PLAN, WEB), limits=REQUESTS)
        story: Story = [
            (5, seen("a b", RUNS), (planning(),)),
            (5, PlannedAgain(PLAN), (Evict(A, request=True),)),
            (6, self.STOP, (STORED, Withdraw(), Release())),
            (6, EvictionRequested("a"), (Withdraw(),)),
            (6, Done(Withdraw), ()),
            (6, Done(Release), ()),
            (7, seen("a b", RUNS), ()),
        ]
        drain = play(drain, story)
        assert not drain.done
        assert play(drain, [(7, Done(Withdraw), ()), (8, seen("a b", RUNS), ())]).done


def test_the_requests_of_a_drain_that_succeeded_are_withdrawn_before_the_machine_is_ordered() -> None:
    drain = replace(asked(), group="pool", waiting=(), victims={}, landed_at=9.0, debts={})
    drain = replace(drain, phase=drain.phase.LOOKING)
    drain, actions = step(drain, Looked(EMPTY), 10)
    assert [type(each).__name__ for each in actions] == ["StoreDebts", "Withdraw", "Mark"]
    assert not step(drain, Done(Withdraw), 11)[0].requested


def test_an_undone_roll_out_is_followed_by_the_withdrawal_of_requests_of_the_process_before() -> None:
    mark = SurgeMark("ns", "api", "uid", "2026-01-01T00:00:00Z")
    begun_before = undo("od", REQUESTS, (), mark, 0)
    assert begun_before[1] == (RevertSurge(mark),)
    story: Story = [
        (1, SurgeReverted(), (STORED, Withdraw(), Release())),
        (2, Done(Withdraw), ()),
        (2, Done(Release), ()),
    ]
    drain = play(begun_before, story)
    assert (drain.done, drain.requested) == (True, False)


def test_a_resumed_roll_out_is_followed_before_its_controllers_are_read() -> None:
    """The debts are known from the mark of the process before."""
    mark = SurgeMark("ns", "api", "uid", "2026-01-01T00:00:00Z")
    drain, _ = resume("od", LIMITS, (), (WEB.debt,), surge=mark)
    node = MagicMock()
    node.name = "od"
    view = MagicMock(
        **{"facts.node.return_value": node, "facts.pods_of.return_value": (), "facts.owned_by.return_value": {}}
    )

    event = Observation(view, node, MagicMock()).event(drain)

    assert isinstance(event, NodeSeen)
    assert (event.detaching, drain.owed) == ({}, {WEB.controller: WEB.debt})
