"""The text and the JSON of ``rescheduler savings``."""

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from rescheduler.cli.console import printable
from rescheduler.planning.savings import Receipt, Savings
from rescheduler.planning.savings_report import ASSUMPTIONS, ReceiptShare, SavingsDay, SavingsReport
from rescheduler.planning.units import count

_WIDTH: Final = 80
_HOUR: Final = 3600

#: How a saving ended, for people.
_ENDINGS: Final = {"": "still counts", "replaced": "ended by a new node", "expired": "ended after 30 days"}


def as_text(known: SavingsReport) -> str:
    """Return the receipts for people: the sums first, lines of at most 80 columns except for long node names."""
    lines = list(_head(known))
    for day in known.days:
        lines += ["", *_day(day)]
    if known.waiting:
        lines += ["", "Drained, machine still exists (saves nothing yet)"]
        lines += [f"  {receipt.node}, drained {_time(receipt.drained_at)}" for receipt in known.waiting]
    lines += ["", "Assumptions"]
    for sentence in ASSUMPTIONS:
        lines += textwrap.wrap(sentence, _WIDTH - 4, initial_indent="  - ", subsequent_indent="    ")
    return "\n".join(map(printable, lines)) + "\n"


def _head(known: SavingsReport) -> Iterator[str]:
    if not known.total.node_seconds:
        yield f"Nothing was saved since {known.since} (UTC)."
        return
    yield f"Saved since {known.since} (UTC): {_amounts(known.total)}"
    cpu, memory = _hours(known.total.cpu_seconds / 1000), _hours(known.total.memory_seconds / 1024)
    yield f"  {cpu} vCPU-hours, {memory} GiB-hours"
    yield f"  {count(known.removed, 'machine')} removed in this period"


def _day(day: SavingsDay) -> Iterator[str]:
    yield f"{day.day}: {_amounts(day.savings)}"
    for share in day.receipts:
        yield from _lines(share)
    missing = day.savings.node_seconds - sum(share.savings.node_seconds for share in day.receipts)
    if missing > 0:
        yield f"  {_hours(missing)} node-hours of nodes whose receipts are no longer stored"


def _lines(share: ReceiptShare) -> Iterator[str]:
    receipt = share.receipt
    kind = ", ".join(filter(None, [receipt.instance_type, receipt.zone]))
    yield f"  {receipt.node}{f' ({kind})' if kind else ''}"
    yield f"    drained {_time(receipt.drained_at)}, machine gone {_time(receipt.gone_at)}"
    hours, ending = _hours(share.savings.node_seconds), _ENDINGS[receipt.ending]
    yield f"    {hours} h{_price(receipt)}: {_money(share.savings)}, {ending}"


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
        "waiting": [{"node": each.node, "drained_at": _stamp(each.drained_at)} for each in known.waiting],
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
    return None if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
