"""Tests of amounts as text."""

from datetime import timedelta
from decimal import Decimal

import pytest

from rescheduler.pages import amounts

CASES = {
    "less than ten vCPU": (amounts.vcpu(7910), "7.9 vCPU"),
    "a whole vCPU": (amounts.vcpu(4000), "4 vCPU"),
    "many vCPU": (amounts.vcpu(1_234_500), "1,234 vCPU"),
    "memory": (amounts.gib(31 << 30), "31 GiB"),
    "half a GiB": (amounts.gib(1 << 29), "0.5 GiB"),
    "a small price": (amounts.money(Decimal("0.192"), "$"), "0.19 $"),
    "a large price without currency": (amounts.money(Decimal("1234.5"), ""), "1,234"),
    "one": (amounts.count(1, "node"), "1 node"),
    "many": (amounts.count(1200, "node"), "1,200 nodes"),
    "a share": (str(amounts.percent(1, 3)), "33"),
    "more than there is": (str(amounts.percent(4, 3)), "100"),
    "of nothing": (str(amounts.percent(4, 0)), "0"),
    "minutes": (amounts.age(timedelta(minutes=5, seconds=59)), "5m"),
    "hours": (amounts.age(timedelta(hours=23)), "23h"),
    "days": (amounts.age(timedelta(days=12, hours=3)), "12d"),
    "a time in the future": (amounts.age(timedelta(hours=-1)), "0m"),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_the_text_of_an_amount(text: str, expected: str) -> None:
    assert text == expected
