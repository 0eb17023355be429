"""Tests of movements: controllers whose pods return wait longer each time, and no replica moves too often."""

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest

from predicates.objects import Pod
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.movements import LONGEST_REST, ControllerMoves, LeftoverMoves, Move, Movements
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.waits import Waits
from tests.planning.builders import NOW, pod, snapshot

WEB = Controller("default", "Deployment", "web", "uid-web")
KEY = "default/uid-web"
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
WAITS = Waits()
UNLIMITED = Waits(moves_per_pod=0)


def state(wanted: int | None = 1, controller: Controller = WEB) -> ControllerState:
    return ControllerState(controller, frozenset({"rs"}), wanted)


def created_pod(name: str, on: str, at: dt.datetime = NOW) -> Pod:
    """Return a pod created *at* this time. The API server truncates to whole seconds."""
    [web_pod] = snapshot([pod(name, on)]).pods.values()
    return msgspec.structs.replace(web_pod, creation_timestamp=f"{at:%Y-%m-%dT%H:%M:%SZ}")


def moves(*at: dt.datetime, **fields: object) -> Movements:
    """Return moves of one pod of WEB each."""
    record = ControllerMoves(tuple(Move(moment, 1) for moment in at))
    return Movements({KEY: msgspec.structs.replace(record, **fields)})


def blocked(detail: str, by: str = "default/w-1") -> tuple[Blocker, ...]:
    return (Blocker(Reason.MOVED_RECENTLY, f"default/Deployment/web: {detail}", by),)


@dataclass(frozen=True)
class Case:
    before: Movements
    pods: Mapping[ControllerState, Sequence[Pod]]
    blockers: tuple[Blocker, ...] = ()
    after: Movements | None = None  # None: as before
    waits: Waits = field(default=WAITS)


BACK = "its pods returned to on-demand nodes once; they are not moved before 2026-01-01T12:10:00Z"
LONG_AGO = NOW - 2 * HOUR
CASES = {
    "never moved": Case(Movements(), {state(): [created_pod("w-1", "od")]}),
    "moved, and not back": Case(moves(LONG_AGO), {state(): [created_pod("w-1", "od", LONG_AGO - HOUR)]}),
    "back on the candidate": Case(
        moves(LONG_AGO),
        {state(): [created_pod("w-1", "od", LONG_AGO + MINUTE)]},
        blocked(BACK),
        moves(LONG_AGO, returns=1, returned=True, until=NOW + 10 * MINUTE),
    ),
    "back in the second of the move": Case(
        moves(LONG_AGO + timedelta(milliseconds=700)),
        {state(): [created_pod("w-1", "od", LONG_AGO)]},
        blocked(BACK),
        moves(LONG_AGO + timedelta(milliseconds=700), returns=1, returned=True, until=NOW + 10 * MINUTE),
    ),
    "back on another node": Case(
        moves(LONG_AGO),
        {state(2): [created_pod("w-1", "od", LONG_AGO - HOUR), created_pod("w-2", "spot", LONG_AGO + MINUTE)]},
    ),
    "no pod on the candidate": Case(moves(LONG_AGO), {state(): [created_pod("w-1", "spot", LONG_AGO + MINUTE)]}),
    "a return is counted once": Case(
        moves(LONG_AGO, returns=1, returned=True, until=NOW), {state(): [created_pod("w-1", "od", LONG_AGO + MINUTE)]}
    ),
    "the wait of a counted return": Case(
        moves(LONG_AGO, returns=1, returned=True, until=NOW + 10 * MINUTE),
        {state(): [created_pod("w-1", "od", LONG_AGO + MINUTE)]},
        blocked(BACK),
    ),
    "each further return doubles the wait": Case(
        moves(LONG_AGO, returns=3, until=NOW - HOUR),
        {state(9): [created_pod("w-1", "od", LONG_AGO + MINUTE)]},
        blocked("its pods returned to on-demand nodes 4 times; they are not moved before 2026-01-01T13:20:00Z"),
        moves(LONG_AGO, returns=4, returned=True, until=NOW + 80 * MINUTE),
    ),
    "up to the longest wait": Case(
        moves(LONG_AGO, returns=60, until=NOW - HOUR),
        {state(9): [created_pod("w-1", "od", LONG_AGO + MINUTE)]},
        blocked("its pods returned to on-demand nodes 61 times; they are not moved before 2026-01-02T12:00:00Z"),
        moves(LONG_AGO, returns=61, returned=True, until=NOW + 24 * HOUR),
    ),
    "returns expire after the longest wait": Case(
        moves(LONG_AGO, returns=3, until=NOW - 24 * HOUR),
        {state(9): [created_pod("w-1", "od", LONG_AGO + MINUTE)]},
        blocked(BACK),
        moves(LONG_AGO, returns=1, returned=True, until=NOW + 10 * MINUTE),
    ),
    "three moves of its only replica": Case(
        moves(*(NOW - hours * HOUR for hours in (20, 10, 5))),
        {state(): [created_pod("w-1", "od", NOW - 24 * HOUR)]},
        blocked(
            "3 of its pods were moved in the last 24 h; 1 more would exceed the limit for 1 replicas "
            "(--max-moves-per-pod-per-day=3); not before 2026-01-01T16:00:00Z"
        ),
    ),
    "three moves, the first of them a day ago": Case(
        moves(*(NOW - hours * HOUR for hours in (24, 10, 5))), {state(): [created_pod("w-1", "od", NOW - 30 * HOUR)]}
    ),
    "three moves of three replicas": Case(
        moves(*(NOW - hours * HOUR for hours in (20, 10, 5))), {state(3): [created_pod("w-1", "od", NOW - 30 * HOUR)]}
    ),
    "as many as are allowed": Case(
        moves(*[NOW - HOUR] * 4), {state(2): [created_pod(f"w-{n}", "od", NOW - 30 * HOUR) for n in (1, 2)]}
    ),
    "one move more than allowed": Case(
        moves(*[NOW - HOUR] * 5),
        {state(2): [created_pod(f"w-{n}", "od", NOW - 30 * HOUR) for n in (1, 2)]},
        blocked(
            "5 of its pods were moved in the last 24 h; 2 more would exceed the limit for 2 replicas "
            "(--max-moves-per-pod-per-day=3); not before 2026-01-02T11:00:00Z"
        ),
    ),
    "a kind that cannot be read counts its pods": Case(
        moves(*[NOW - HOUR] * 5),
        {state(None): [created_pod("w-1", "od", NOW - 30 * HOUR), created_pod("w-2", "spot", NOW - HOUR)]},
    ),
    "a controller scaled to zero counts as one replica": Case(
        moves(*[NOW - HOUR] * 3),
        {state(0): [created_pod("w-1", "od", NOW - 30 * HOUR)]},
        blocked(
            "3 of its pods were moved in the last 24 h; 1 more would exceed the limit for 1 replicas "
            "(--max-moves-per-pod-per-day=3); not before 2026-01-02T11:00:00Z"
        ),
    ),
    "a limit below one": Case(
        Movements(),
        {state(): [created_pod("w-1", "od")]},
        blocked(
            "0 of its pods were moved in the last 24 h; 1 more would exceed the limit for 1 replicas "
            "(--max-moves-per-pod-per-day=0.5); its pods on the node exceed the limit of a whole day"
        ),
        waits=Waits(moves_per_pod=0.5),
    ),
    "no limit": Case(
        moves(*[NOW - HOUR] * 50), {state(): [created_pod("w-1", "od", NOW - 30 * HOUR)]}, waits=UNLIMITED
    ),
    "both rules, each by its name": Case(
        moves(*[NOW - HOUR] * 3, returns=1, returned=True, until=NOW + 10 * MINUTE),
        {state(): [created_pod("w-1", "od", NOW)]},
        blocked(BACK)
        + blocked(
            "3 of its pods were moved in the last 24 h; 1 more would exceed the limit for 1 replicas "
            "(--max-moves-per-pod-per-day=3); not before 2026-01-02T11:00:00Z"
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_pods_are_not_moved_while_their_controller_waits(case: Case) -> None:
    after, blockers = case.before.judge("od", case.pods, NOW, case.waits)
    assert blockers == case.blockers
    assert after == (case.before if case.after is None else case.after)


def test_a_return_that_is_not_recorded_has_the_same_blocker_at_any_time() -> None:
    """Otherwise the nodes would be planned again each time they are displayed."""
    record = Movements({KEY: ControllerMoves((Move(LONG_AGO, 1),))})
    pods = {state(): [created_pod("w-1", "od")]}
    first, second = (record.judge("od", pods, now, WAITS, recorded=False)[1] for now in (NOW, NOW + MINUTE))
    assert first == second
    assert first[0].detail.endswith("their wait begins when the node is about to be drained")


def test_each_controller_is_evaluated_separately() -> None:
    other = Controller("default", "StatefulSet", "db", "uid-db")
    pods = {state(): [created_pod("w-1", "od")], state(controller=other): [created_pod("d-1", "od")]}
    record = ControllerMoves((Move(LONG_AGO, 1),))
    _, blockers = Movements({KEY: record, f"default/{other.uid}": record}).judge("od", pods, NOW, WAITS)
    assert [(blocker.pod, blocker.detail.partition(":")[0]) for blocker in blockers] == [
        ("default/w-1", "default/Deployment/web"),
        ("default/d-1", "default/StatefulSet/db"),
    ]


def test_evictions_of_one_drain_are_recorded_one_by_one() -> None:
    before = moves(LONG_AGO, returns=1, returned=True, until=NOW)
    first = before.moved(WEB, 1, NOW)
    assert first == moves(LONG_AGO, NOW, returns=1, until=NOW)
    noticed, _ = first.judge("od", {state(9): [created_pod("w-1", "od", NOW)]}, NOW + MINUTE, WAITS)
    again = noticed.moved(WEB, 2, NOW)
    assert again.by_uid[KEY] == ControllerMoves(
        (Move(LONG_AGO, 1), Move(NOW, 3)), returns=2, returned=True, until=NOW + 21 * MINUTE
    )


def test_the_number_of_stored_moves_is_limited() -> None:
    """No move is lost. The oldest moves count for longer than a day, at most until the following ones expire."""
    movements = Movements()
    for minute in range(300):
        movements = movements.moved(WEB, 2, NOW + minute * MINUTE)
    record = movements.by_uid[KEY]
    assert (len(record.moves), sum(move.pods for move in record.moves)) == (24, 600)
    assert record.moves[-2:] == (Move(NOW + 298 * MINUTE, 2), Move(NOW + 299 * MINUTE, 2))


CURRENT: dict[str, tuple[Movements, Movements]] = {
    "a day has passed": (moves(NOW - 24 * HOUR), Movements()),
    "less than a day": (moves(NOW - 23 * HOUR), moves(NOW - 23 * HOUR)),
    "the older of two": (moves(NOW - 25 * HOUR, NOW - HOUR), moves(NOW - HOUR)),
    "during a wait the last move is kept to detect returns": (
        moves(NOW - 50 * HOUR, NOW - 49 * HOUR, returns=9, until=NOW - 23 * HOUR),
        moves(NOW - 49 * HOUR, returns=9, until=NOW - 23 * HOUR),
    ),
    "a wait that is long over": (moves(NOW - 49 * HOUR, returns=9, until=NOW - 24 * HOUR), Movements()),
}


@pytest.mark.parametrize(("before", "after"), CURRENT.values(), ids=CURRENT)
def test_expired_entries_are_removed(before: Movements, after: Movements) -> None:
    assert before.current(NOW, WAITS.returned) == after


def test_times_of_a_wrong_clock_are_limited() -> None:
    far = NOW + 10000 * HOUR
    assert moves(NOW - HOUR, far, returns=2, until=far).bounded(NOW, WAITS.returned) == moves(
        NOW - HOUR, NOW, returns=2, until=NOW + 24 * HOUR, returned=True
    )
    right = moves(NOW - HOUR, NOW, returns=2, until=NOW + 24 * HOUR)
    assert right.bounded(NOW, WAITS.returned) is right


@pytest.mark.parametrize("created", [-HOUR, 30 * MINUTE, 2 * HOUR])
def test_after_a_clock_jump_no_pod_counts_as_returned(created: timedelta) -> None:
    """The clock was an hour ahead when the pods were moved, or is an hour behind the API server's now."""
    jumped = moves(NOW + HOUR).bounded(NOW, WAITS.returned)
    pods = {state(2): [created_pod("web-1", "od", NOW + created)]}
    assert jumped.judge("od", pods, NOW + MINUTE, UNLIMITED) == (jumped, ())


def pushed_back(waits: Waits, hours: int) -> list[int]:
    """Return the minutes at which a pod is moved, if it returns immediately and its node is planned every minute."""
    movements, moved = Movements(), []
    created = NOW - HOUR
    for minute in range(60 * hours):
        now = NOW + minute * MINUTE
        movements, blockers = movements.judge("od", {state(): [created_pod("w-1", "od", created)]}, now, waits)
        if not blockers:
            movements = movements.moved(WEB, 1, now)
            created = now + timedelta(seconds=1)
            moved.append(minute)
    return moved


def test_pods_that_keep_returning_are_moved_less_and_less_often() -> None:
    moved = pushed_back(UNLIMITED, 30)
    assert [later - earlier for earlier, later in itertools.pairwise(moved)] == [
        1 + wait for wait in (10, 20, 40, 80, 160, 320, 640)
    ]


def test_pods_that_keep_returning_are_moved_at_most_three_times_a_day() -> None:
    assert pushed_back(WAITS, 24) == [0, 11, 32]


def test_a_namespace_is_restless_if_its_pods_move_more_often_than_allowed_under_new_names() -> None:
    movements = Movements()
    for number in range(7):
        owner = Controller("a", "Deployment", f"web-{number}", f"uid-{number}")
        movements = movements.moved(owner, 1, NOW - number * HOUR)
        movements = movements.moved(msgspec.structs.replace(owner, namespace="b"), 1, NOW - timedelta(days=2))
    assert movements.restless(NOW, 3, lambda: {"a": 2, "b": 0}) == {"a": 1}
    assert movements.restless(NOW, 3, lambda: {"a": 1}) == {"a": 2}
    assert movements.restless(NOW, 3, lambda: {"a": 3, "b": 0}) == {}
    assert movements.restless(NOW, 0, dict) == {}


def test_pods_without_a_controller_count_for_their_namespace() -> None:
    movements = Movements()
    for number in range(30):
        movements = movements.moved_without_controller("a", 1, NOW - number * MINUTE)
    movements = movements.moved_without_controller("b", 1, NOW).moved(WEB, 1, NOW)
    assert movements.restless(NOW, 3, lambda: {"a": 2, "b": 1}) == {"a": 3}
    assert movements.restless(NOW, 3, lambda: {"a": 10, "b": 1}) == {}
    assert movements.current(NOW + timedelta(days=2), WAITS.returned) == Movements()
    assert [*movements.controllers] == [KEY]
    assert len(movements.by_uid) == 3  # one record for each namespace and controller
    assert len(movements.by_uid["a/"].moves) == 24


def test_a_controller_of_another_namespace_with_the_same_uid_has_its_own_record() -> None:
    forged = Controller("tenant", "Widget", "w", WEB.uid, "example.com/v1")
    movements = moves(NOW).moved(forged, 9, NOW)
    assert movements.by_uid[KEY] == moves(NOW).by_uid[KEY]
    assert movements.by_uid["tenant/uid-web"].moves == (Move(NOW, 9),)


LEFTOVERS = LeftoverMoves().moved(["a/1"], NOW - 3 * HOUR).moved(["a/1", "a/2"], NOW - 2 * HOUR)


def test_an_owner_rests_since_the_first_move_of_its_leftovers_until_after_the_last() -> None:
    known = LEFTOVERS.moved(["a/1"], NOW - HOUR)
    assert known.resting(NOW, 2 * HOUR) == {"a/1": NOW - 3 * HOUR}
    assert known.resting(NOW, 3 * HOUR) == {"a/1": NOW - 3 * HOUR, "a/2": NOW - 2 * HOUR}
    assert known.resting(NOW, HOUR) == {}


def test_moves_of_leftovers_are_stored_and_older_stored_forms_are_read() -> None:
    stored = msgspec.json.encode(LEFTOVERS)
    assert msgspec.json.decode(stored, type=LeftoverMoves) == LEFTOVERS
    before = msgspec.json.decode(b'{"by_owner": {"a/1": "2026-01-01T10:00:00Z"}}', type=LeftoverMoves)
    assert before.since("a/1") == before.by_owner["a/1"]


def test_expired_moves_of_leftovers_and_times_of_a_wrong_clock_are_removed() -> None:
    assert LEFTOVERS.bounded(NOW) is LEFTOVERS
    assert LEFTOVERS.bounded(NOW + LONGEST_REST) == LeftoverMoves()
    early = NOW - timedelta(hours=2, minutes=30)
    assert LEFTOVERS.bounded(early) == LeftoverMoves({"a/1": early, "a/2": early}, {"a/1": NOW - 3 * HOUR})
    assert LEFTOVERS.without({"a/1"}) == LeftoverMoves({"a/2": NOW - 2 * HOUR})
