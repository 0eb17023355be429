"""When a machine is ordered away, when it is waited for, and what is said when time runs out."""

import datetime as dt
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.backends.base import Accepted, AlreadyGone, Deleted, Failed, Refusal, Refused
from rescheduler.backends.cloudpool.deletion import (
    Answer,
    Ending,
    Limits,
    Order,
    Send,
    Verdict,
    Wait,
    give_up,
    judge,
    lowers,
)
from rescheduler.backends.cloudpool.messages import Machine
from tests.backends.clocks import START

LIMITS = Limits(settle=dt.timedelta(seconds=100), back_off=dt.timedelta(seconds=2))
PROTECTED = {"active": True, "evictable": False}
INACTIVE = {"active": False, "evictable": True}


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def machine(state: str = "RUNNING", membership: object = None) -> Machine:
    return Machine(id="i-1", machine_state=state, membership_status=membership)


def order(answer: Answer, **changes: object) -> Order:
    """An order of ours that ended at second 10."""
    return replace(Order(at(10), answer), **changes)  # type: ignore[arg-type]


MISSING_404 = Failed(
    "the pool answers 404 to its termination, and lists it as RUNNING: "
    "is this the right API (v5 or multipool) below the right URL?",
    retryable=True,
)

#: fact: (machine, order, seen at, now, verdict); the process began at second 5.
JUDGED: dict[str, tuple[Machine | None, Order | None, float, float, Verdict]] = {
    "one that runs is ordered away": (machine(), None, 5, 5, Send()),
    "one that is only requested, too": (machine("REQUESTED"), None, 5, 5, Send()),
    "one that is being launched, too": (machine("PENDING"), None, 5, 5, Send()),
    "a view from before this process proves nothing": (machine(), None, 4.9, 5, Wait()),
    "a protected one is refused": (
        machine(membership=PROTECTED),
        None,
        5,
        5,
        Refused(Refusal.PROTECTED, "its membership status says that it is not evictable"),
    ),
    "one in a state that nobody knows is refused": (
        machine("SUSPENDED"),
        None,
        5,
        5,
        Refused(Refusal.PROTECTED, "its state 'SUSPENDED' is not known"),
    ),
    "one that ends by another hand is gone": (machine("TERMINATING"), None, 0, 5, AlreadyGone("TERMINATING")),
    "one that ended is gone": (machine("TERMINATED"), None, 0, 5, AlreadyGone("TERMINATED")),
    "one that never came is gone": (machine("REJECTED"), None, 0, 5, AlreadyGone("REJECTED")),
    "one that is not there and was never ordered is nobody's": (
        None,
        None,
        5,
        5,
        Refused(Refusal.NOT_IN_GROUP, "no machine of the pool is its machine"),
    ),
    "one that ends by our order is deleted": (
        machine("TERMINATING"),
        order(Answer.DONE),
        9,
        11,
        Deleted("TERMINATING"),
    ),
    "one that left by our order is deleted": (None, order(Answer.DONE), 9, 11, Deleted("no longer in the pool")),
    "so it is when the answer was lost": (None, order(Answer.NONE), 9, 11, Deleted("no longer in the pool")),
    "so it is when the answer was an error": (None, order(Answer.FAULT), 9, 11, Deleted("no longer in the pool")),
    "a 404 and no machine: gone before": (None, order(Answer.MISSING), 9, 11, AlreadyGone("no longer in the pool")),
    "an earlier process's order": (None, order(Answer.NONE, ours=False), 9, 11, AlreadyGone("no longer in the pool")),
    "an order under way is waited for": (machine(), order(Answer.PENDING), 50, 1000, Wait()),
    "a view from before the answer proves nothing": (machine(), order(Answer.FAULT), 9.9, 1000, Wait()),
    "also not after a success": (machine(), order(Answer.DONE), 9.9, 1000, Wait()),
    "after a failure, once seen to run: again": (machine(), order(Answer.FAULT), 10, 12, Send()),
    "but not before the back-off": (machine(), order(Answer.FAULT), 10, 11.9, Wait()),
    "the back-off doubles": (machine(), order(Answer.FAULT, attempts=3), 10, 17.9, Wait()),
    "and ends": (machine(), order(Answer.FAULT, attempts=3), 10, 18, Send()),
    "and is at most 30 s": (machine(), order(Answer.FAULT, attempts=60), 10, 40, Send()),
    "what was never sent is sent again, whatever the view": (machine(), order(Answer.UNSENT), 0, 12, Send()),
    "a lost answer may be at work": (machine(), order(Answer.NONE), 50, 109.9, Wait()),
    "for the settle time": (machine(), order(Answer.NONE), 50, 110, Send()),
    "an earlier process's order may be at work, too": (machine(), order(Answer.NONE, ours=False), 50, 109.9, Wait()),
    "a success that the cloud takes its time for": (machine(), order(Answer.DONE), 50, 109.9, Wait()),
    "a 404 for one that is listed afresh: the wrong path": (machine(), order(Answer.MISSING), 10, 11, MISSING_404),
    "a 404 for one that is listed from before": (machine(), order(Answer.MISSING), 9, 11, Wait()),
    "protected meanwhile: not again": (
        machine(membership=PROTECTED),
        order(Answer.FAULT),
        10,
        12,
        Refused(Refusal.PROTECTED, "its membership status says that it is not evictable"),
    ),
}


@pytest.mark.parametrize("fact", JUDGED)
def test_judged(fact: str) -> None:
    seen, last, observed, now, verdict = JUDGED[fact]
    assert verdict == judge(seen, last, observed_at=at(observed), not_before=at(5), now=at(now), limits=LIMITS)


#: fact: (machine, order, seen at, outcome)
GIVEN_UP: dict[str, tuple[Machine | None, Order | None, float, object]] = {
    "never sent: it runs on": (
        machine(),
        order(Answer.UNSENT, words="no route"),
        0,
        Failed("no route", retryable=True),
    ),
    "failed and seen to run": (machine(), order(Answer.FAULT, words="500"), 10, Failed("500", retryable=True)),
    "failed, not seen since": (
        machine(),
        order(Answer.FAULT, words="500"),
        9,
        Accepted("the pool reported a failure; the pool lists it as RUNNING: 500"),
    ),
    "no answer": (machine(), order(Answer.NONE), 10, Accepted("the order got no answer; the pool lists it as RUNNING")),
    "success, not seen yet": (
        machine(),
        order(Answer.DONE),
        9,
        Accepted("the pool took the order; the pool lists it as RUNNING"),
    ),
    "no order, and the view is too old": (
        machine(),
        None,
        0,
        Accepted("an earlier process may have ordered it; the pool's answers are older than this process"),
    ),
}


@pytest.mark.parametrize("answer", [Answer.FAULT, Answer.UNSENT])
def test_a_machine_that_the_pool_ends_by_itself_is_never_given_back(answer: Answer) -> None:
    last = order(answer, words="no")
    assert isinstance(give_up(machine(), last, observed_at=at(11)), Failed)
    assert isinstance(give_up(machine(membership=INACTIVE), last, observed_at=at(11)), Accepted)


@pytest.mark.parametrize("ending", Ending)
def test_protected_machines_go_only_to_be_disposed_of(ending: Ending) -> None:
    for membership in (PROTECTED, {"active": False, "evictable": False}, "unreadable"):
        one = machine(membership=membership)
        verdict = judge(one, None, observed_at=at(5), not_before=at(5), now=at(5), limits=LIMITS, ending=ending)
        assert (verdict == Send()) is (ending is Ending.DISPOSE)
    strange = machine("SUSPENDED", PROTECTED)
    verdict = judge(strange, None, observed_at=at(5), not_before=at(5), now=at(5), limits=LIMITS, ending=ending)
    assert isinstance(verdict, Refused)


@pytest.mark.parametrize("fact", GIVEN_UP)
def test_given_up(fact: str) -> None:
    seen, last, observed, outcome = GIVEN_UP[fact]
    assert give_up(seen, last, observed_at=at(observed)) == outcome


#: fact: (machine, order, desired size now, lowers)
LOWERED: dict[str, tuple[Machine, Order | None, int, bool]] = {
    "the first order": (machine(), None, 3, True),
    "an inactive machine does not count": (machine(membership=INACTIVE), None, 3, False),
    "again after a failure": (machine(), order(Answer.FAULT, desired=3), 3, True),
    "not after a success": (machine(), order(Answer.DONE, desired=3, lowered=True), 3, False),
    "not where the size fell meanwhile": (machine(), order(Answer.NONE, desired=3), 2, False),
    "where the size grew": (machine(), order(Answer.NONE, desired=3), 5, True),
    "where it fell before anything was sent": (machine(), order(Answer.UNSENT, desired=3), 2, True),
}


@pytest.mark.parametrize("fact", LOWERED)
def test_lowered(fact: str) -> None:
    seen, last, desired, expected = LOWERED[fact]
    assert lowers(seen, last, desired) is expected


@given(
    answer=st.sampled_from([Answer.PENDING, Answer.DONE, Answer.NONE]),
    seen=st.floats(0, 200),
    now=st.floats(0, 109),
    ours=st.booleans(),
)
def test_no_order_while_one_may_be_at_work(answer: Answer, seen: float, now: float, ours: bool) -> None:
    verdict = judge(
        machine(),
        order(answer, ours=ours),
        observed_at=at(seen),
        not_before=at(5),
        now=at(now),
        limits=LIMITS,
    )
    assert verdict == Wait()


@given(
    state=st.sampled_from(["REQUESTED", "PENDING", "RUNNING", "SUSPENDED", ""]),
    answer=st.sampled_from([None, *Answer]),
    seen=st.floats(0, 300),
    now=st.floats(0, 300),
)
def test_a_machine_that_is_there_is_never_called_gone(
    state: str, answer: Answer | None, seen: float, now: float
) -> None:
    last = None if answer is None else order(answer)
    verdict = judge(machine(state), last, observed_at=at(seen), not_before=at(5), now=at(now), limits=LIMITS)
    assert not isinstance(verdict, Deleted | AlreadyGone)
    assert not isinstance(give_up(machine(state), last, observed_at=at(seen)), Deleted | AlreadyGone)
