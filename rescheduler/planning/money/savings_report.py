"""The output of ``rescheduler savings``: sums, and the receipts of each day."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from rescheduler.planning.money.savings import LONGEST, Receipt, Savings, SavingsLedger, shares

#: How the amounts are determined, for the reader of the receipts.
ASSUMPTIONS: Final = (
    "A node counts from the time at which its machine was observed to be gone after a drain, not earlier.",
    f"It counts while there are fewer on-demand nodes than before, at most {LONGEST.days} days.",
    "A new on-demand node ends the oldest saving, first one of the same instance type.",
    "Money is the price of the node without the cost of its pods on spot nodes, at least 0.",
    "Prices are those at the drain. A pod costs the larger of its shares of CPU and memory of the spot node.",
    "Nodes without a known price, or whose pods have no known cost, count as node-hours only.",
)


@dataclass(frozen=True, slots=True)
class ReceiptShare:
    """The savings of one drained node on one day."""

    receipt: Receipt
    savings: Savings


@dataclass(frozen=True, slots=True)
class SavingsDay:
    day: date
    savings: Savings  #: including nodes whose receipts are no longer stored
    receipts: tuple[ReceiptShare, ...]  #: in the order of the drains


@dataclass(frozen=True, slots=True)
class SavingsReport:
    """The savings in a range of days (UTC)."""

    since: date
    until: datetime
    total: Savings
    days: tuple[SavingsDay, ...]  #: days with savings, newest first
    removed: int  #: number of machines removed in this period
    waiting: tuple[Receipt, ...]  #: drained nodes whose machines still exist; they save nothing yet


def report(ledger: SavingsLedger, since: timedelta, now: datetime) -> SavingsReport:
    """Return the savings up to *now*, from the start of the day on which the period *since* begins."""
    first = (now - since).astimezone(UTC).date()
    sums = {day: savings for day, savings in ledger.by_day(now).items() if day >= first and savings.node_seconds}
    shares_by_day: dict[date, list[ReceiptShare]] = {day: [] for day in sums}
    removed = sorted(
        (receipt for receipt in ledger.receipts if receipt.gone_at is not None), key=lambda receipt: receipt.drained_at
    )
    for receipt in removed:
        assert receipt.gone_at is not None
        for day, share in shares(receipt, receipt.gone_at, receipt.until(now)).items():
            if day in shares_by_day:
                shares_by_day[day].append(ReceiptShare(receipt, share))
    total = Savings()
    for savings in sums.values():
        total = total.plus(savings)
    return SavingsReport(
        since=first,
        until=now,
        total=total,
        days=tuple(SavingsDay(day, sums[day], tuple(shares_by_day[day])) for day in sorted(sums, reverse=True)),
        removed=sum(
            receipt.gone_at is not None and receipt.gone_at.astimezone(UTC).date() >= first for receipt in removed
        ),
        waiting=tuple(receipt for receipt in ledger.receipts if receipt.gone_at is None),
    )
