"""The promise about --min-worth is judged by evictions alone."""

import datetime as dt
from decimal import Decimal

import pytest

from tests.invariants.objects import MetaFields, OwnerField, SeenPod
from tests.invariants.replay import SeenDrain
from tests.simulation.move_promises import not_worth_it
from tests.simulation.worlds import START


def minutes(number: int) -> dt.datetime:
    return START + dt.timedelta(minutes=number)


def seen(uid: str, created: int) -> SeenPod:
    owner = (OwnerField("StatefulSet", "pinned-0", "uid-of-owner", controller=True),)
    meta = MetaFields("pinned-0-0", uid, "default", creation_timestamp=minutes(created), owner_references=owner)
    return SeenPod(meta)


@pytest.mark.parametrize(("least", "found"), [(73, 0), (74, 1)])
def test_a_drain_is_found_that_saves_less_for_a_move_than_is_wanted(least: int, found: int) -> None:
    """Four vCPU cost 146 per month, and two pods moved."""
    drain = SeenDrain("od-0-new-1", START, 1, [], evicted=[seen("1", -60), seen("2", -60)], node_gone=True, ended=START)
    assert len(list(not_worth_it([drain], {"od-0": 4}, Decimal(least)))) == found
