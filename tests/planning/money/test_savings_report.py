"""The receipts of each day, and their sums."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from rescheduler.planning.money.savings import Receipt, Savings, SavingsLedger
from rescheduler.planning.money.savings_form import ReceiptShare, SavingsDay, SavingsReport, report

NOW = datetime(2026, 1, 3, 6, tzinfo=UTC)
DAY = timedelta(days=1)


def receipt(node: str, gone_at: datetime | None, ended_at: datetime | None = None) -> Receipt:
    return Receipt(
        node=node,
        uid=f"uid-{node}",
        cpu=2000,
        memory=1 << 30,
        drained_at=(gone_at or NOW) - timedelta(minutes=10),
        nodes_before=3,
        price=Decimal("0.3"),
        spot_cost=Decimal("0.1"),
        currency="USD",
        gone_at=gone_at,
        ended_at=ended_at,
        ending="replaced" if ended_at else "",
        move_cost=2.5 if ended_at else None,
    )


def hours(number: int) -> Savings:
    """Return the savings of one of these nodes in *number* hours."""
    seconds = number * 3600
    return Savings(seconds, seconds * 2000, seconds * 1024, {"USD": Decimal("0.2") * number})


OPEN = receipt("a", datetime(2026, 1, 1, 18, tzinfo=UTC))
ENDED = receipt("b", datetime(2026, 1, 2, 12, tzinfo=UTC), datetime(2026, 1, 2, 15, tzinfo=UTC))
EXISTS = receipt("c", None)
LEDGER = SavingsLedger(receipts=(OPEN, ENDED, EXISTS), level=3, days={date(2025, 12, 1): hours(5)})


def test_the_report_has_days_with_their_receipts() -> None:
    assert report(LEDGER, 30 * DAY, NOW) == SavingsReport(
        since=date(2025, 12, 4),
        until=NOW,
        total=hours(39),
        days=(
            SavingsDay(date(2026, 1, 3), hours(6), (ReceiptShare(OPEN, hours(6)),)),
            SavingsDay(date(2026, 1, 2), hours(27), (ReceiptShare(OPEN, hours(24)), ReceiptShare(ENDED, hours(3)))),
            SavingsDay(date(2026, 1, 1), hours(6), (ReceiptShare(OPEN, hours(6)),)),
        ),
        removed=2,
        waiting=(EXISTS,),
        move_cost=2.5,
    )


def test_only_days_since_the_start_of_the_period_are_reported() -> None:
    known = report(LEDGER, timedelta(hours=1), NOW)
    assert (known.since, known.total, [day.day for day in known.days]) == (NOW.date(), hours(6), [NOW.date()])
    assert known.removed == 0


def test_days_whose_receipts_are_no_longer_stored_have_sums() -> None:
    known = report(LEDGER, 60 * DAY, NOW)
    assert known.days[-1] == SavingsDay(date(2025, 12, 1), hours(5), ())
    assert known.total == hours(44)


def test_an_empty_ledger_has_no_savings() -> None:
    assert report(SavingsLedger(), DAY, NOW) == SavingsReport(date(2026, 1, 2), NOW, Savings(), (), 0, ())
