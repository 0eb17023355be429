"""Where moved pods came up, beside the forecast; and how long drains wait when they come back."""

import datetime as dt
from collections.abc import Sequence
from datetime import timedelta

import pytest

from predicates.objects import Pod
from rescheduler.landing import FIRST_PAUSE, LONGEST_PAUSE, PATIENCE, Landings, Outcome
from rescheduler.planning.outcome import Placement, Plan, PodRef
from tests.planning.builders import pod, snapshot

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LATER = NOW + timedelta(seconds=30)


def made(name: str, on: str) -> Pod:
    """A pod of the controller ``o``."""
    return snapshot([pod(name, on)]).pods[f"default/{name}"]


def plan(*nodes: str) -> tuple[Plan, dict[str, Pod]]:
    """A plan that moves one pod to each of *nodes*."""
    pods = {f"default/w-{n}": made(f"w-{n}", "od") for n in range(len(nodes))}
    refs = [PodRef("default", f"w-{n}", f"uid-w-{n}") for n in range(len(nodes))]
    return Plan("od", tuple(map(Placement, refs, nodes))), pods


def is_spot(node: str) -> bool:
    return node.startswith("s")


CASES: dict[str, tuple[Sequence[str], Sequence[str], dict[Outcome, int]]] = {
    "as forecast": (["s1", "s2"], ["s2", "s1"], {Outcome.AS_FORECAST: 2}),
    "on other spot nodes": (["s1", "s1"], ["s1", "s3"], {Outcome.AS_FORECAST: 1, Outcome.OTHER_SPOT: 1}),
    "back on demand": (["s1", "s1"], ["s1", "od2"], {Outcome.AS_FORECAST: 1, Outcome.RETURNED: 1}),
    "a return that was foreseen": (["s1", "od2"], ["s1", "od2"], {Outcome.AS_FORECAST: 1, Outcome.FORESEEN_RETURN: 1}),
    "a return foreseen elsewhere": (["od2"], ["od3"], {Outcome.FORESEEN_RETURN: 1}),
    "more pods than were moved": (["s1"], ["s1", "s1"], {Outcome.AS_FORECAST: 1}),
}


@pytest.mark.parametrize(("forecast", "landed", "expected"), CASES.values(), ids=CASES)
def test_outcomes(forecast: Sequence[str], landed: Sequence[str], expected: dict[Outcome, int]) -> None:
    landings = Landings()
    landings.expect(*plan(*forecast), NOW)(NOW)
    [told] = landings.look([made(f"n-{n}", node) for n, node in enumerate(landed)], is_spot, LATER)
    assert +told.outcomes == expected
    assert landings.look([], is_spot, LATER) == []


def test_pods_that_were_there_before_are_not_the_replacements() -> None:
    landings = Landings()
    foreseen, pods = plan("s1")
    pods["default/sibling"] = made("sibling", "s1")
    landings.expect(foreseen, pods, NOW)(NOW)
    assert landings.look(pods.values(), is_spot, LATER) == []


def test_who_does_not_come_up_in_time_is_missing() -> None:
    landings = Landings()
    landings.expect(*plan("s1", "s1"), NOW)(NOW)
    pods = [made("n", "s1"), made("m", "")]
    assert landings.look(pods, is_spot, NOW + PATIENCE - timedelta(seconds=1)) == []
    [told] = landings.look(pods, is_spot, NOW + PATIENCE)
    assert +told.outcomes == {Outcome.AS_FORECAST: 1, Outcome.MISSING: 1}


def test_a_drain_that_failed_is_not_watched() -> None:
    landings = Landings()
    landings.expect(*plan("s1"), NOW)
    assert landings.look([], is_spot, NOW + PATIENCE) == []


def test_drains_wait_longer_each_time_until_one_lands_well() -> None:
    landings = Landings()

    def land(*nodes: str) -> timedelta:
        landings.expect(*plan("s1", "s1"), NOW)(NOW)
        landings.look([made(f"n-{n}", node) for n, node in enumerate(nodes)], is_spot, LATER)
        until = landings.paused_until(LATER)
        return until - LATER if until else timedelta(0)

    assert land("s1", "od2") == timedelta(0)  # half of them is not most of them
    assert [land("od2", "od2") for _ in range(3)] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert land("s1", "s2") == timedelta(0)
    assert land("od2", "od2") == FIRST_PAUSE
    for _ in range(12):
        longest = land("od2", "od2")
    assert longest == LONGEST_PAUSE
    assert landings.paused_until(LATER + LONGEST_PAUSE) is None
