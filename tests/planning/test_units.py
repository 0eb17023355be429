"""Tests of the formatting of amounts for people."""

import datetime as dt
from decimal import Decimal

import pytest

from rescheduler.planning.forms import age, and_more, count, cpu, memory, money, per_hour, per_month, percent, shortened
from tests.planning.builders import NOW

GIB = 1 << 30


@pytest.mark.parametrize(
    ("millicores", "text"),
    [
        (0, "0"),
        (50, "0.05"),
        (125, "0.125"),
        (999, "0.999"),
        (1000, "1"),
        (7500, "7.5"),
        (7910, "7.9"),
        (1_200_000, "1,200"),
    ],
)
def test_cpu_is_written_in_cores(millicores: int, text: str) -> None:
    assert cpu(millicores) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1 << 20, "1 MiB"),
        (512 << 20, "512 MiB"),
        (1023 << 20, "1,023 MiB"),
        (GIB - 1, "1 GiB"),
        (int(12.3 * GIB), "12.3 GiB"),
        (1536 * GIB, "1.5 TiB"),
        (2000 << 50, "2,000 PiB"),
    ],
)
def test_memory_is_written_with_a_binary_unit(amount: int, text: str) -> None:
    assert memory(amount) == text


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("280.32", "$", "280 $"),
        ("99.999", "$", "100.00 $"),
        ("9.5", "EUR", "9.50 EUR"),
        ("0", "", "0.00"),
        ("12345.6", "", "12,346"),
    ],
)
def test_money_is_written_with_its_currency(amount: str, currency: str, text: str) -> None:
    assert money(Decimal(amount), currency) == text


def test_a_monthly_price_is_rounded() -> None:
    assert per_month(Decimal("280.32"), "$") == "280 $/month"
    assert per_month(Decimal("280.32"), "") == "280/month"


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (dt.timedelta(seconds=20), "20s"),
        (dt.timedelta(seconds=119), "119s"),
        (dt.timedelta(minutes=50), "50m"),
        (dt.timedelta(hours=30), "30h"),
        (dt.timedelta(days=3, hours=5), "3d"),
        (dt.timedelta(days=400), "400d"),
        (dt.timedelta(minutes=-5), "0s"),
    ],
    ids=str,
)
def test_an_age_has_one_unit(ago: dt.timedelta, text: str) -> None:
    assert age((NOW - ago).isoformat(), NOW) == text


@pytest.mark.parametrize("created", [None, "", "yesterday"])
def test_an_unknown_age_is_left_out(created: str | None) -> None:
    assert age(created, NOW) == ""


def test_counts_are_written_with_their_noun() -> None:
    assert [count(number, "pod") for number in (0, 1, 2, 1200)] == ["0 pods", "1 pod", "2 pods", "1,200 pods"]


@pytest.mark.parametrize(("part", "whole", "share"), [(1, 3, 33), (4, 3, 100), (-1, 3, 0), (4, 0, 0)])
def test_shares_are_limited_to_100_percent(part: int, whole: int, share: int) -> None:
    assert percent(part, whole) == share


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [
        ("0.0042", "USD", "0.0042 USD per hour"),
        ("0.214", "", "0.214 per hour"),
        ("0.1", "EUR", "0.10 EUR per hour"),
        ("1234", "$", "1,234.00 $ per hour"),
        ("0", "$", "0.00 $ per hour"),
    ],
)
def test_hourly_prices_have_up_to_four_decimals(amount: str, currency: str, text: str) -> None:
    assert per_hour(Decimal(amount), currency) == text


@pytest.mark.parametrize(
    ("texts", "fields", "expected"),
    [
        ([], {}, ""),
        (["a", "b"], {}, "a, b"),
        (["a", "b", "c"], {}, "a, b and 1 more"),
        (["a", "b", "c", "d"], {"before": ", ", "of": " pools"}, "a, b, and 2 more pools"),
        (["a", "b", "c"], {"separator": "; ", "before": "; "}, "a; b; and 1 more"),
    ],
)
def test_a_list_is_shortened(texts: list[str], fields: dict[str, str], expected: str) -> None:
    assert shortened(texts, 2, **fields) == expected


def test_what_is_left_out_is_counted() -> None:
    assert [and_more(number) for number in (-1, 0, 2)] == ["", "", " and 2 more"]
    assert and_more(2, ")", " (") == " (and 2 more)"
