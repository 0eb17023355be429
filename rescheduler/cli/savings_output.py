"""The text and the JSON output of ``rescheduler savings``."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from rescheduler.cli.console import BLANK, Line
from rescheduler.planning.money.savings import Receipt, Savings
from rescheduler.planning.money.savings_report import ASSUMPTIONS, ReceiptShare, SavingsDay, SavingsReport
from rescheduler.planning.timestamps import utc
from rescheduler.planning.units import count

_HOUR: Final = 3600

#: How a saving ended → its text for people.
_ENDINGS: Final = {"": "still counts", "replaced": "ended by a new node", "expired": "ended after 30 days"}


def page(known: SavingsReport) -> Iterator[Line]:
    """Yield the lines of the receipts for people, with the totals first."""
    yield from _head(known)
    for day in known.days:
        yield BLANK
        yield from _day(day)
    if known.waiting:
        yield BLANK
        yield Line("Drained, machine still exists (saves nothing yet)")
        for receipt in known.waiting:
            yield Line(f"{receipt.node}, drained {_time(receipt.drained_at)}", 1)
    yield BLANK
    yield Line("Assumptions")
    for sentence in ASSUMPTIONS:
        yield Line(f"- {sentence}", 1)


def _head(known: SavingsReport) -> Iterator[Line]:
    if not known.total.node_seconds:
        yield Line(f"Nothing was saved since {known.since} (UTC).")
        return
    yield Line(f"Saved since {known.since} (UTC): {_amounts(known.total)}")
    cpu, memory = _hours(known.total.cpu_seconds / 1000), _hours(known.total.memory_seconds / 1024)
    yield Line(f"{cpu} vCPU-hours, {memory} GiB-hours", 1)
    yield Line(f"{count(known.removed, 'machine')} removed in this period", 1)


def _day(day: SavingsDay) -> Iterator[Line]:
    yield Line(f"{day.day}: {_amounts(day.savings)}")
    for share in day.receipts:
        yield from _lines(share)
    missing = day.savings.node_seconds - sum(share.savings.node_seconds for share in day.receipts)
    if missing > 0:
        yield Line(f"{_hours(missing)} node-hours of nodes whose receipts are no longer stored", 1)


def _lines(share: ReceiptShare) -> Iterator[Line]:
    receipt = share.receipt
    kind = ", ".join(filter(None, [receipt.instance_type, receipt.zone]))
    yield Line(f"{receipt.node}{f' ({kind})' if kind else ''}", 1)
    yield Line(f"drained {_time(receipt.drained_at)}, machine gone {_time(receipt.gone_at)}", 2)
    hours, ending = _hours(share.savings.node_seconds), _ENDINGS[receipt.ending]
    yield Line(f"{hours} h{_price(receipt)}: {_money(share.savings)}, {ending}", 2)


def _price(receipt: Receipt) -> str:
    if receipt.price is None or receipt.spot_cost is None:
        return ""
    return f" at {receipt.price:.4f} - {receipt.spot_cost:.4f} (pods on spot)"


def _amounts(savings: Savings) -> str:
    return f"{_hours(savings.node_seconds)} node-hours, {_money(savings)}"


def _money(savings: Savings) -> str:
    amounts = (f"{amount:,.2f} {currency}".rstrip() for currency, amount in sorted(savings.money.items()))
    return ", ".join(amounts) or "no price known"


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:,.1f}"


def _time(moment: datetime | None) -> str:
    return "unknown" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def as_json(known: SavingsReport) -> dict[str, Any]:
    """Return the object for ``-o json`` and ``-o yaml``. Prices are per hour, times are in UTC."""
    return {
        "since": str(known.since),
        "until": _stamp(known.until),
        "total": _sums(known.total) | {"machines_removed": known.removed},
        "days": [
            {"day": str(day.day), **_sums(day.savings), "receipts": [_receipt(share) for share in day.receipts]}
            for day in known.days
        ],
        "waiting": [{"node": receipt.node, "drained_at": _stamp(receipt.drained_at)} for receipt in known.waiting],
        "assumptions": list(ASSUMPTIONS),
    }


def _receipt(share: ReceiptShare) -> dict[str, Any]:
    receipt = share.receipt
    return {
        "node": receipt.node,
        "uid": receipt.uid,
        "instance_type": receipt.instance_type,
        "zone": receipt.zone,
        "drained_at": _stamp(receipt.drained_at),
        "gone_at": _stamp(receipt.gone_at),
        "ended_at": _stamp(receipt.ended_at),
        "ending": receipt.ending or None,
        "price": _number(receipt.price),
        "spot_cost": _number(receipt.spot_cost),
        "currency": receipt.currency,
        **_sums(share.savings),
    }


def _sums(savings: Savings) -> dict[str, Any]:
    return {
        "node_hours": round(savings.node_hours, 4),
        "vcpu_hours": round(savings.cpu_seconds / 1000 / _HOUR, 4),
        "gib_hours": round(savings.memory_seconds / 1024 / _HOUR, 4),
        "money": {currency: float(amount) for currency, amount in sorted(savings.money.items())},
    }


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _stamp(moment: datetime | None) -> str | None:
    return None if moment is None else utc(moment)
