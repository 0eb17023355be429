"""Decisions about terminations: when to request one, when to wait, and which outcome to report at the deadline."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.cloudpool.matching import Machine
from rescheduler.cloudpool.pool import Ending, KeepWaiting, OrderVerdict, Send, TerminationOrder, give_up, judge, lowers
from rescheduler.durations import Backoff
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, Failed, Refusal, Refused
from rescheduler.providers.order_life import OrderResult, OrderTimeouts
from tests.providers.clocks import START

LIMITS = OrderTimeouts(
    settle=dt.timedelta(seconds=100), backoff=Backoff(dt.timedelta(seconds=2), dt.timedelta(seconds=30))
)
PROTECTED = {"active": True, "evictable": False}
INACTIVE = {"active": False, "evictable": True}


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def machine(state: str = "RUNNING", membership: object = None) -> Machine:
    return Machine(id="i-1", machine_state=state, membership_status=membership)


def order(answer: OrderResult, **changes: object) -> TerminationOrder:
    """Return an order of this process whose response arrived at second 10."""
    return replace(TerminationOrder(at(10), answer), **changes)  # type: ignore[arg-type]


MISSING_404 = Failed(
    "the pool returns 404 for its termination but lists it as RUNNING: check the URL and the API (v5 or multipool)",
    retryable=True,
)

#: fact: (machine, order, seen at, now, verdict); the process started at second 5.
JUDGED: dict[str, tuple[Machine | None, TerminationOrder | None, float, float, OrderVerdict]] = {
    "a running machine is terminated": (machine(), None, 5, 5, Send()),
    "a requested machine is terminated": (machine("REQUESTED"), None, 5, 5, Send()),
    "a pending machine is terminated": (machine("PENDING"), None, 5, 5, Send()),
    "a view from before this process is ignored": (machine(), None, 4.9, 5, KeepWaiting()),
    "a protected machine is refused": (
        machine(membership=PROTECTED),
        None,
        5,
        5,
        Refused(Refusal.PROTECTED, "its membership status is not evictable"),
    ),
    "a machine in an unknown state is refused": (
        machine("SUSPENDED"),
        None,
        5,
        5,
        Refused(Refusal.PROTECTED, "its state 'SUSPENDED' is not known"),
    ),
    "a machine that is terminating without our order is gone": (
        machine("TERMINATING"),
        None,
        0,
        5,
        AlreadyGone("TERMINATING"),
    ),
    "a terminated machine is gone": (machine("TERMINATED"), None, 0, 5, AlreadyGone("TERMINATED")),
    "a rejected machine is gone": (machine("REJECTED"), None, 0, 5, AlreadyGone("REJECTED")),
    "a missing machine without an order is not in the group": (
        None,
        None,
        5,
        5,
        Refused(Refusal.NOT_IN_GROUP, "the pool has no machine for this node"),
    ),
    "a machine that is terminating by our order is deleted": (
        machine("TERMINATING"),
        order(OrderResult.DONE),
        9,
        11,
        Deleted("TERMINATING"),
    ),
    "a machine that disappeared after our order is deleted": (
        None,
        order(OrderResult.DONE),
        9,
        11,
        Deleted("no longer in the pool"),
    ),
    "it is deleted even if the response was lost": (
        None,
        order(OrderResult.NONE),
        9,
        11,
        Deleted("no longer in the pool"),
    ),
    "it is deleted even if the response was an error": (
        None,
        order(OrderResult.FAULT),
        9,
        11,
        Deleted("no longer in the pool"),
    ),
    "a 404 and no machine: gone before": (
        None,
        order(OrderResult.MISSING),
        9,
        11,
        AlreadyGone("no longer in the pool"),
    ),
    "an earlier process's order": (
        None,
        order(OrderResult.NONE, ours=False),
        9,
        11,
        AlreadyGone("no longer in the pool"),
    ),
    "an order in progress is awaited": (machine(), order(OrderResult.PENDING), 50, 1000, KeepWaiting()),
    "a view from before the answer is ignored": (machine(), order(OrderResult.FAULT), 9.9, 1000, KeepWaiting()),
    "a view from before a successful response is ignored": (
        machine(),
        order(OrderResult.DONE),
        9.9,
        1000,
        KeepWaiting(),
    ),
    "retry after a failure once seen running": (machine(), order(OrderResult.FAULT), 10, 12, Send()),
    "no retry before the back-off has passed": (machine(), order(OrderResult.FAULT), 10, 11.9, KeepWaiting()),
    "the back-off doubles": (machine(), order(OrderResult.FAULT, attempts=3), 10, 17.9, KeepWaiting()),
    "a retry after the doubled back-off": (machine(), order(OrderResult.FAULT, attempts=3), 10, 18, Send()),
    "the back-off is at most 30 s": (machine(), order(OrderResult.FAULT, attempts=60), 10, 40, Send()),
    "an unsent order is sent with any view": (machine(), order(OrderResult.UNSENT), 0, 12, Send()),
    "a lost answer may still take effect": (machine(), order(OrderResult.NONE), 50, 109.9, KeepWaiting()),
    "a lost answer is repeated after the settle time": (machine(), order(OrderResult.NONE), 50, 110, Send()),
    "an earlier process's order may still take effect": (
        machine(),
        order(OrderResult.NONE, ours=False),
        50,
        109.9,
        KeepWaiting(),
    ),
    "a success that takes time in the cloud": (machine(), order(OrderResult.DONE), 50, 109.9, KeepWaiting()),
    "a 404 for a machine in a new listing: wrong path": (machine(), order(OrderResult.MISSING), 10, 11, MISSING_404),
    "a 404 for a machine in an old listing": (machine(), order(OrderResult.MISSING), 9, 11, KeepWaiting()),
    "protected meanwhile: no retry": (
        machine(membership=PROTECTED),
        order(OrderResult.FAULT),
        10,
        12,
        Refused(Refusal.PROTECTED, "its membership status is not evictable"),
    ),
}


@pytest.mark.parametrize("fact", JUDGED)
def test_the_next_step_of_a_deletion_depends_on_machine_and_order(fact: str) -> None:
    seen, last, observed, now, verdict = JUDGED[fact]
    assert verdict == judge(seen, last, observed_at=at(observed), not_before=at(5), now=at(now), limits=LIMITS)


#: fact: (machine, order, seen at, outcome)
GIVEN_UP: dict[str, tuple[Machine | None, TerminationOrder | None, float, object]] = {
    "never sent: keeps running": (
        machine(),
        order(OrderResult.UNSENT, error_text="no route"),
        0,
        Failed("no route", retryable=True),
    ),
    "failed and seen running": (
        machine(),
        order(OrderResult.FAULT, error_text="500"),
        10,
        Failed("500", retryable=True),
    ),
    "failed, not seen since": (
        machine(),
        order(OrderResult.FAULT, error_text="500"),
        9,
        Accepted("the pool reported a failure; the pool lists it as RUNNING: 500"),
    ),
    "no answer": (
        machine(),
        order(OrderResult.NONE),
        10,
        Accepted("the order got no response; the pool lists it as RUNNING"),
    ),
    "success, not seen yet": (
        machine(),
        order(OrderResult.DONE),
        9,
        Accepted("the pool accepted the order; the pool lists it as RUNNING"),
    ),
    "no order, and the view is too old": (
        machine(),
        None,
        0,
        Accepted("an earlier process may have ordered it; the pool's responses predate this process"),
    ),
}


@pytest.mark.parametrize("answer", [OrderResult.FAULT, OrderResult.UNSENT])
def test_a_terminating_machine_is_never_released(answer: OrderResult) -> None:
    last = order(answer, error_text="no")
    assert isinstance(give_up(machine(), last, observed_at=at(11)), Failed)
    assert isinstance(give_up(machine(membership=INACTIVE), last, observed_at=at(11)), Accepted)


@pytest.mark.parametrize("ending", Ending)
def test_protected_machines_are_deleted_only_if_disposable(ending: Ending) -> None:
    for membership in (PROTECTED, {"active": False, "evictable": False}, "unreadable"):
        protected = machine(membership=membership)
        verdict = judge(protected, None, observed_at=at(5), not_before=at(5), now=at(5), limits=LIMITS, ending=ending)
        assert (verdict == Send()) is (ending is Ending.DISPOSE)
    strange = machine("SUSPENDED", PROTECTED)
    verdict = judge(strange, None, observed_at=at(5), not_before=at(5), now=at(5), limits=LIMITS, ending=ending)
    assert isinstance(verdict, Refused)


@pytest.mark.parametrize("fact", GIVEN_UP)
def test_the_outcome_at_the_deadline_depends_on_machine_and_order(fact: str) -> None:
    seen, last, observed, outcome = GIVEN_UP[fact]
    assert give_up(seen, last, observed_at=at(observed)) == outcome


#: fact: (machine, order, desired size now, lowers)
LOWERED: dict[str, tuple[Machine, TerminationOrder | None, int, bool]] = {
    "the first order": (machine(), None, 3, True),
    "an inactive machine does not count": (machine(membership=INACTIVE), None, 3, False),
    "again after a failure": (machine(), order(OrderResult.FAULT, desired=3), 3, True),
    "not after a success": (machine(), order(OrderResult.DONE, desired=3, lowered=True), 3, False),
    "not if the size fell meanwhile": (machine(), order(OrderResult.NONE, desired=3), 2, False),
    "if the size grew": (machine(), order(OrderResult.NONE, desired=3), 5, True),
    "if it fell before anything was sent": (machine(), order(OrderResult.UNSENT, desired=3), 2, True),
}


@pytest.mark.parametrize("fact", LOWERED)
def test_an_order_lowers_the_size_unless_it_was_lowered_before(fact: str) -> None:
    seen, last, desired, expected = LOWERED[fact]
    assert lowers(seen, last, desired) is expected


@given(
    result=st.sampled_from([OrderResult.PENDING, OrderResult.DONE, OrderResult.NONE]),
    seen=st.floats(0, 200),
    now=st.floats(0, 109),
    ours=st.booleans(),
)
def test_no_order_is_sent_while_another_may_take_effect(
    result: OrderResult, seen: float, now: float, ours: bool
) -> None:
    verdict = judge(
        machine(),
        order(result, ours=ours),
        observed_at=at(seen),
        not_before=at(5),
        now=at(now),
        limits=LIMITS,
    )
    assert verdict == KeepWaiting()


@given(
    state=st.sampled_from(["REQUESTED", "PENDING", "RUNNING", "SUSPENDED", ""]),
    result=st.sampled_from([None, *OrderResult]),
    seen=st.floats(0, 300),
    now=st.floats(0, 300),
)
def test_a_listed_machine_is_never_reported_gone(
    state: str, result: OrderResult | None, seen: float, now: float
) -> None:
    last = None if result is None else order(result)
    verdict = judge(machine(state), last, observed_at=at(seen), not_before=at(5), now=at(now), limits=LIMITS)
    assert not isinstance(verdict, Deleted | AlreadyGone)
    assert not isinstance(give_up(machine(state), last, observed_at=at(seen)), Deleted | AlreadyGone)
