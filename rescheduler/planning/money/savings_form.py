"""The forms of the ledger of savings: as it is stored, and as ``rescheduler savings`` shows it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final

import msgspec

from rescheduler.errors import InputError
from rescheduler.planning.forms import LIMIT, pack, packed_within, unpack, utc
from rescheduler.planning.money.savings import LONGEST, Receipt, Savings, SavingsLedger, shares

# The stored form of the ledger of savings, and its readable summary.

#: Version of the stored form. It is incremented when older versions of this program cannot use the new form.
VERSION: Final = 1

#: Stored times must be in these years, and stored amounts below this number. Anything else comes from manual edits.
_YEARS: Final = range(2000, 2200)
_MOST: Final = Decimal(10) ** 15


class _LedgerDocument(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=1)]
    savings: SavingsLedger


#: Created once, at import: see :mod:`rescheduler.decoding`.
_DECODER: Final = msgspec.json.Decoder(_LedgerDocument)
_ENCODER: Final = msgspec.json.Encoder()


def load_ledger(content: bytes) -> SavingsLedger:
    """Decode the output of :func:`dump_ledger`. Fields that newer versions added are ignored.

    Raises InputError with the reason if *content* is not valid.
    """
    try:
        ledger = _DECODER.decode(unpack(content)).savings
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"expected the savings as JSON: {error}") from error
    if any(not amount.is_finite() or abs(amount) >= _MOST for amount in _amounts(ledger)):
        raise InputError("expected the savings as JSON: an amount is out of range")
    if any(moment.year not in _YEARS for moment in _moments(ledger)):
        raise InputError("expected the savings as JSON: a time is out of range")
    return ledger


def dump_ledger(ledger: SavingsLedger) -> bytes:
    """Encode *ledger* as gzip-compressed JSON. Equal ledgers give equal bytes. See :func:`bounded`."""
    in_order = msgspec.structs.replace(ledger, days=dict(sorted(ledger.days.items())))
    return pack(_ENCODER.encode(_LedgerDocument(VERSION, in_order)))


def bounded(ledger: SavingsLedger, limit: int = LIMIT) -> SavingsLedger:
    """Return *ledger* with as many receipts as fit into *limit* bytes; the daily sums stay as they are.

    The receipts of savings that have ended are dropped first, oldest first.
    """
    if len(dump_ledger(ledger)) <= limit:
        return ledger
    by_age = sorted(ledger.receipts, key=lambda receipt: (receipt.ended_at is None, receipt.drained_at, receipt.uid))
    kept = packed_within(limit, len(by_age), lambda drop: dump_ledger(_without_receipts(ledger, by_age[:drop])))
    return load_ledger(kept)


def summary(ledger: SavingsLedger, now: datetime) -> str:
    """Return a readable summary of the ledger, with several lines, for the ConfigMap."""
    total = ledger.total(now)
    money = ", ".join(f"{amount:.2f} {currency}".rstrip() for currency, amount in sorted(total.money.items()))
    lines = (
        f"node-hours of on-demand nodes saved until {utc(now)}: {total.node_hours:.1f}",
        f"money saved: {money or 'unknown, because no prices are known'}",
        f"nodes that are gone and still count: {sum(receipt.is_open for receipt in ledger.receipts)}",
        f"drained nodes that still exist: {sum(receipt.gone_at is None for receipt in ledger.receipts)}",
        "receipts: rescheduler savings",
    )
    return "\n".join(lines) + "\n"


def _without_receipts(ledger: SavingsLedger, receipts: list[Receipt]) -> SavingsLedger:
    dropped = {receipt.uid for receipt in receipts}
    kept = tuple(receipt for receipt in ledger.receipts if receipt.uid not in dropped)
    return msgspec.structs.replace(ledger, receipts=kept)


def _amounts(ledger: SavingsLedger) -> Iterator[Decimal]:
    for receipt in ledger.receipts:
        yield from (amount for amount in (receipt.price, receipt.committed, receipt.spot_cost) if amount is not None)
    for savings in (ledger.earlier, *ledger.days.values()):
        yield from savings.money.values()


def _moments(ledger: SavingsLedger) -> Iterator[datetime]:
    for receipt in ledger.receipts:
        moments = (receipt.drained_at, receipt.gone_at, receipt.ended_at, receipt.counted)
        yield from (moment for moment in moments if moment is not None)


# The output of ``rescheduler savings``: sums, and the receipts of each day.

#: How the amounts are determined, for the reader of the receipts.
ASSUMPTIONS: Final = (
    "A node counts from the time at which its machine was observed to be gone after a drain, not earlier.",
    f"It counts while there are fewer on-demand nodes than before, at most {LONGEST.days} days.",
    "A new on-demand node ends the oldest saving, first one of the same instance type.",
    "Money is the price of the node without the cost of its pods on spot nodes, at least 0.",
    "What a commitment pays anyway is not saved (--commitments).",
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
    move_cost: float | None = None  #: of the moves for the removed machines, where receipts state it


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
    recent = [each for each in removed if each.gone_at is not None and each.gone_at.astimezone(UTC).date() >= first]
    costs = [each.move_cost for each in recent if each.move_cost is not None]
    total = Savings()
    for savings in sums.values():
        total = total.plus(savings)
    return SavingsReport(
        since=first,
        until=now,
        total=total,
        days=tuple(SavingsDay(day, sums[day], tuple(shares_by_day[day])) for day in sorted(sums, reverse=True)),
        removed=len(recent),
        move_cost=round(sum(costs), 3) if costs else None,
        waiting=tuple(receipt for receipt in ledger.receipts if receipt.gone_at is None),
    )
