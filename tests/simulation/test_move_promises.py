"""The promises about leftovers and about --min-worth are judged by evictions alone."""

import datetime as dt
from decimal import Decimal
from typing import Final

import pytest

from tests.invariants.history import History, Revision, SentWrite
from tests.invariants.objects import MetaFields, OwnerField, SeenPod
from tests.invariants.replay import SeenDrain
from tests.simulation.move_promises import moved_twice, not_worth_it
from tests.simulation.worlds import START

REST: Final = dt.timedelta(hours=1)


def minutes(number: int) -> dt.datetime:
    return START + dt.timedelta(minutes=number)


def seen(uid: str, created: int) -> SeenPod:
    owner = (OwnerField("StatefulSet", "pinned-0", "uid-of-owner", controller=True),)
    meta = MetaFields("pinned-0-0", uid, "default", creation_timestamp=minutes(created), owner_references=owner)
    return SeenPod(meta)


def evicted(uid: str, at: int) -> SentWrite:
    when = minutes(at)
    return SentWrite("post", "pods/eviction", "default", "pinned-0-0", "", "", 201, when, when, uid=uid)


@pytest.mark.parametrize(
    ("created", "again", "found"),
    [(1, 59, 1), (1, 61, 0), (-1, 59, 0), (50, 61, 0)],
    ids=["within the rest", "after the rest", "created before", "its owner moved long ago"],
)
def test_a_pod_that_moved_is_found_if_it_is_evicted_again_within_the_rest(created: int, again: int, found: int) -> None:
    revisions = tuple(Revision(1, START, pod) for pod in (seen("1", -60), seen("2", created)))
    history = History(START, minutes(120), revisions, (evicted("1", 0), evicted("2", again)))
    assert len(list(moved_twice(history, REST))) == found


@pytest.mark.parametrize(("least", "found"), [(73, 0), (74, 1)])
def test_a_drain_is_found_that_saves_less_for_a_move_than_is_wanted(least: int, found: int) -> None:
    """Four vCPU cost 146 per month, and two pods moved."""
    drain = SeenDrain("od-0-new-1", START, 1, [], evicted=[seen("1", -60), seen("2", -60)], node_gone=True, ended=START)
    assert len(list(not_worth_it([drain], {"od-0": 4}, Decimal(least)))) == found
