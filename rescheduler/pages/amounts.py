"""Amounts as text: CPU, memory, money, and ages."""

from datetime import timedelta
from decimal import Decimal
from typing import Final

_GIB: Final = 1 << 30
_TENTHS_BELOW: Final = 10
_DAY: Final = 86400
_HOUR: Final = 3600


def vcpu(millicores: int) -> str:
    """Return CPU in vCPU, such as ``7.9 vCPU``."""
    return f"{_rounded(millicores / 1000)} vCPU"


def gib(amount: int) -> str:
    """Return memory, given in bytes, in GiB, such as ``31 GiB``."""
    return f"{_rounded(amount / _GIB)} GiB"


def money(amount: Decimal, currency: str) -> str:
    """Return *amount*, without decimals from 10 on, with its currency if that is known."""
    rounded = f"{amount:,.0f}" if abs(amount) >= _TENTHS_BELOW else f"{amount:.2f}"
    return f"{rounded} {currency}".rstrip()


def count(number: int, noun: str) -> str:
    """Return *number* with *noun*, which gets an s unless the number is 1."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(part: int, whole: int) -> int:
    """Return the share of *part* in percent, from 0 to 100; 0 if *whole* is 0."""
    return max(0, min(100, round(100 * part / whole))) if whole > 0 else 0


def age(span: timedelta) -> str:
    """Return a time span in its largest unit, such as ``12d``, ``3h`` or ``5m``."""
    seconds = max(0, int(span.total_seconds()))
    if seconds >= _DAY:
        return f"{seconds // _DAY}d"
    return f"{seconds // _HOUR}h" if seconds >= _HOUR else f"{seconds // 60}m"


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= _TENTHS_BELOW else f"{number:.1f}".removesuffix(".0")
