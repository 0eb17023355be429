"""Tests of what is remembered of the owners whose pods were moved."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rescheduler.planning.owner_records import OwnerRecord, OwnerRecords
from tests.planning.builders import NOW

DAY = timedelta(days=1)


def test_pods_are_counted_for_a_week_by_day() -> None:
    records = OwnerRecords()
    for days, pods in ((0, 2), (0, 1), (3, 4), (6, 8)):
        records = records.moved("a/Deployment/web", pods, NOW + days * DAY)
    at = [records.in_a_week(NOW + days * DAY) for days in (6, 7, 10, 14)]
    assert at == [{"a/Deployment/web": pods} for pods in (15, 12, 8)] + [{}]
    assert len(records.by_name["a/Deployment/web"].days) == 3


def test_the_time_until_ready_is_the_mean_of_the_last_and_what_was_known() -> None:
    records = OwnerRecords().moved("a/Deployment/web", 1, NOW, ready=40).moved("a/Deployment/db", 1, NOW)
    assert records.ready() == {"a/Deployment/web": 40}
    records = records.moved("a/Deployment/web", 1, NOW, ready=100).moved("a/Deployment/web", 1, NOW)
    assert records.ready() == {"a/Deployment/web": 70}


def test_owners_that_were_not_moved_for_a_month_are_forgotten() -> None:
    records = OwnerRecords().moved("a/Deployment/web", 1, NOW).moved("a/Deployment/db", 1, NOW + 5 * DAY)
    assert list(records.bounded(NOW + 31 * DAY).by_name) == ["a/Deployment/db"]
    assert records.bounded(NOW + 29 * DAY) is records


def test_times_of_a_wrong_clock_do_not_count() -> None:
    wrong = OwnerRecords().moved("a/Deployment/web", 5, NOW + 300 * DAY)
    assert wrong.bounded(NOW) == OwnerRecords({"a/Deployment/web": OwnerRecord(NOW)})
    right = OwnerRecords().moved("a/Deployment/web", 5, NOW)
    assert right.bounded(NOW) is right


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1))
def test_a_record_stays_small_and_counts_no_move_twice(moves: list[tuple[int, int]]) -> None:
    record = OwnerRecord(NOW)
    for days, pods in sorted(moves):
        record = record.moved(pods, NOW + days * DAY)
    last = max(days for days, _ in moves)
    assert len(record.days) <= 8
    assert record.in_a_week(NOW + last * DAY) == sum(pods for days, pods in moves if days > last - 7)
