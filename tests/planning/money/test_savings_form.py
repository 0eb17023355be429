"""The stored form of the ledger of savings: round trip, size, broken content, and the summary."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from rescheduler.errors import InputError
from rescheduler.planning.forms import LIMIT, pack, unpack
from rescheduler.planning.money.savings import Receipt, Savings, SavingsLedger
from rescheduler.planning.money.savings_form import bounded, dump_ledger, load_ledger, summary

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)


def receipt(number: int, *, ended: bool = False) -> Receipt:
    drained_at = NOW - timedelta(hours=number + 1)
    return Receipt(
        node=f"ip-10-0-{number}.internal",
        uid=f"{number * 7919 % 999983:012d}",
        instance_type="m5.large",
        zone="a",
        cpu=2000,
        memory=8 << 30,
        drained_at=drained_at,
        nodes_before=9,
        price=Decimal("0.107"),
        spot_cost=Decimal("0.03"),
        move_cost=2.5,
        currency="USD",
        gone_at=drained_at + timedelta(minutes=5),
        ended_at=NOW if ended else None,
        ending="replaced" if ended else "",
    )


FULL = SavingsLedger(
    receipts=(receipt(0), receipt(1, ended=True), msgspec.structs.replace(receipt(2), gone_at=None)),
    level=9,
    days={date(2026, 1, 1): Savings(3600, 7200, 8192, {"USD": Decimal("0.077"), "": Decimal(1)})},
    earlier=Savings(600),
)


@pytest.mark.parametrize("ledger", [SavingsLedger(), FULL], ids=["empty", "full"])
def test_a_stored_ledger_is_loaded_unchanged(ledger: SavingsLedger) -> None:
    assert load_ledger(dump_ledger(ledger)) == ledger
    assert dump_ledger(load_ledger(dump_ledger(ledger))) == dump_ledger(ledger)


def test_fields_of_newer_versions_are_ignored() -> None:
    document = msgspec.json.decode(unpack(dump_ledger(FULL)))
    document["new"] = document["savings"]["new"] = document["savings"]["receipts"][0]["new"] = [1]
    assert load_ledger(pack(msgspec.json.encode(document))) == FULL


def test_a_receipt_of_an_older_version_has_no_cost_of_moves() -> None:
    document = msgspec.json.decode(unpack(dump_ledger(FULL)))
    del document["savings"]["receipts"][0]["move_cost"]
    costs = [each.move_cost for each in load_ledger(pack(msgspec.json.encode(document))).receipts]
    assert costs == [None, 2.5, 2.5]


def changed(**fields: object) -> bytes:
    """Return the stored form with changed fields of the first receipt."""
    document = msgspec.json.decode(unpack(dump_ledger(FULL)))
    document["savings"]["receipts"][0] |= fields
    return pack(msgspec.json.encode(document))


BROKEN = {
    "not gzip": (b"broken", "expected gzip: "),
    "a part": (dump_ledger(FULL)[:-9], "expected one whole gzip member of at most 64 MiB"),
    "not JSON": (pack(b"{"), "expected the savings as JSON: "),
    "another document": (pack(b'{"version": 1, "memory": {}}'), "expected the savings as JSON: "),
    "no amount": (changed(price="NaN"), "expected the savings as JSON: an amount is out of range"),
    "a huge amount": (changed(spot_cost="1e99"), "expected the savings as JSON: an amount is out of range"),
    "a negative cost": (changed(move_cost=-1), "expected the savings as JSON: "),
    "a distant time": (changed(gone_at="9999-12-31T23:59:59Z"), "expected the savings as JSON: a time is out of range"),
    "no time zone": (changed(gone_at="2026-01-01T00:00:00"), "expected the savings as JSON: "),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_content_is_rejected(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as error:
        load_ledger(content)
    assert str(error.value).startswith(message)


def test_a_ledger_that_fits_is_kept() -> None:
    assert bounded(FULL) is FULL


def test_the_oldest_ended_receipts_are_dropped_first() -> None:
    large = SavingsLedger(
        receipts=tuple(receipt(number, ended=number % 2 == 0) for number in range(1000)), days=FULL.days
    )
    limit = len(dump_ledger(large)) * 4 // 5
    smaller = bounded(large, limit)
    assert len(dump_ledger(smaller)) <= limit
    dropped = [known for known in large.receipts if known not in smaller.receipts]
    ended = [known for known in large.receipts if known.ended_at is not None]
    assert 0 < len(dropped) < len(ended)
    assert dropped == ended[-len(dropped) :]
    assert smaller.days == large.days


def test_years_of_many_drains_fit() -> None:
    days = {date(2025, 1, 1) + timedelta(days=number): FULL.days[date(2026, 1, 1)] for number in range(400)}
    many = SavingsLedger(receipts=tuple(receipt(number, ended=True) for number in range(9000)), days=days)
    smaller = bounded(many)
    assert (len(dump_ledger(smaller)) <= LIMIT, smaller.days) == (True, days)
    assert len(smaller.receipts) > 1000


def test_the_summary_is_readable_text() -> None:
    assert summary(FULL, NOW) == (
        "node-hours of on-demand nodes saved until 2026-01-02T12:00:00Z: 4.0\n"
        "money saved: 1.00, 0.30 USD\n"
        "nodes that are gone and still count: 1\n"
        "drained nodes that still exist: 1\n"
        "receipts: rescheduler savings\n"
    )
    assert "money saved: unknown, because no prices are known" in summary(SavingsLedger(), NOW)
