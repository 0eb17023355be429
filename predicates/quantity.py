"""Kubernetes quantities: parsing, and conversion to the integers that the scheduler computes with.

Source: ``k8s.io/apimachinery/pkg/api/resource`` (``quantity.go``, ``amount.go``, ``scale_int.go``). Go stores an amount
as ``int64Amount`` (a 64-bit mantissa and a power of ten) if it fits, and otherwise as ``infDecAmount`` (a decimal of
any length). The two forms convert extreme values differently: beyond 64 bits the first yields 0 or wraps around, the
second wraps around, and they round negative fractions differently. The scheduler decides with these integers, so
:class:`Quantity` reproduces both forms.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from predicates.texts import LONGEST_AMOUNT

NANO: Final = 10**9
MAX_INT64: Final = 2**63 - 1

_MIN_INT64: Final = -(2**63)
_QUANTITY: Final = re.compile(r"([+-]?)(0*+)(\d*+)(?:\.(\d*+))?([eEinumkKMGTP]*+[-+]?\d*+)", re.ASCII)
_POWER_OF_TEN: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWER_OF_TWO: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT: Final = re.compile(r"[eE][+-]?\d+", re.ASCII)
_MIN_POWER: Final = -9  #: the smallest power of ten; finer fractions are rounded away from zero
_INT64_DIGITS: Final = 18  #: the most digits that Go parses into a 64-bit mantissa
_MAX_POWER: Final = 1000  #: our limit for exponents; Go has none, at unbounded cost

#: Go multiplies by these powers of ten in one step, which wraps around on overflow. For all others it multiplies
#: step by step, and returns 0 on overflow.
_SINGLE_STEP_POWERS: Final = (1, 2, 3, 6, 9)


class QuantityError(ValueError):
    """Raised for a text that is not a valid quantity."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount: ``mantissa`` x 10^``power``."""

    mantissa: int
    power: int
    wide: bool = False  #: Go stores it as ``infDecAmount``

    @property
    def units(self) -> int:
        """The amount as an integer, rounded up (``Value``). Wraps around at 64 bits as in Go."""
        return self._scale(0)

    @property
    def millis(self) -> int:
        """The amount in thousandths, rounded up (``MilliValue``). Wraps around at 64 bits as in Go."""
        return self._scale(-3)

    def plus(self, other: "Quantity") -> "Quantity":
        """Return the exact sum of this quantity and *other*."""
        if not (self.wide or other.wide):
            if other.mantissa == 0:
                return self
            if self.mantissa == 0:
                return other
        power = min(self.power, other.power)
        left, right = _mantissa_at(self, power), _mantissa_at(other, power)
        total = left + right
        narrow = not (self.wide or other.wide) and all(map(_fits_int64, (left, right, total)))
        return Quantity(total, power, wide=not narrow)

    def larger(self, other: "Quantity") -> "Quantity":
        """Return the larger of this quantity and *other*."""
        power = min(self.power, other.power)
        if _mantissa_at(other, power) <= _mantissa_at(self, power):
            return self
        return Quantity(other.mantissa, other.power, wide=self.wide or other.wide)

    def __lt__(self, other: "Quantity") -> bool:
        power = min(self.power, other.power)
        return _mantissa_at(self, power) < _mantissa_at(other, power)

    def _scale(self, power: int) -> int:
        shift = self.power - power
        if self.wide:
            return _scale_wide(self.mantissa, shift)
        if shift < 0:
            whole, rest = divmod(abs(self.mantissa), int(10**-shift))
            rounded = whole + (rest != 0)
            return -rounded if self.mantissa < 0 else rounded
        scaled = self.mantissa * int(10**shift)
        if _fits_int64(scaled):
            return scaled
        return _wrap_int64(scaled) if shift in _SINGLE_STEP_POWERS and self.mantissa != _MIN_INT64 else 0


ZERO: Final = Quantity(0, 0)


@lru_cache(maxsize=65536)
def parse(text: str | float) -> Quantity:
    """Parse *text* as a quantity. JSON numbers are parsed as their text.

    As in Go, a text without digits is 0 (``"+"``, ``"m"``), and surrounding spaces are ignored.
    Raises :class:`QuantityError`.
    """
    written = str(text)
    if len(written) > LONGEST_AMOUNT:
        raise QuantityError(f"quantity {_abbreviated(text)}: expected at most {LONGEST_AMOUNT} characters")
    stripped = written.strip(" ")
    match = _QUANTITY.fullmatch(stripped)
    if match is None or not stripped:
        raise _error(text)
    sign, zeros, whole, fraction, suffix = match.group(1, 2, 3, 4, 5)
    digits = (whole or "0") + (fraction or "")
    binary = _POWER_OF_TWO.get(suffix)
    power = 0 if binary is not None else _suffix_power(suffix, text)
    if abs(power) > _MAX_POWER and digits.strip("0"):
        raise QuantityError(f"quantity {_abbreviated(text)}: expected at most e{_MAX_POWER}")
    power = max(-_MAX_POWER, min(power, _MAX_POWER))
    amount = -int(digits) if sign == "-" else int(digits)
    if binary is not None and not fraction and _is_narrow_binary(whole or "0", binary):
        return Quantity(amount << binary, 0)
    places = len(fraction or "")
    if binary is None and len(digits) <= _INT64_DIGITS and power - places >= _MIN_POWER:
        return Quantity(amount, power - places)
    if not (zeros or whole or fraction):
        raise _error(text)
    return _round_to_nanos(amount << (binary or 0), power - places, capped=binary is not None)


def _mantissa_at(quantity: Quantity, power: int) -> int:
    """Return the mantissa of *quantity* scaled to *power*, which must not be larger than its own."""
    return quantity.mantissa * int(10 ** (quantity.power - power)) if quantity.mantissa else 0


def _error(text: str | float) -> QuantityError:
    return QuantityError(f"quantity {_abbreviated(text)}: expected a number such as 250m, 1.5Gi or 1e3")


def _abbreviated(text: str | float) -> str:
    return repr(text) if len(str(text)) <= 2 * _INT64_DIGITS else f"{str(text)[: 2 * _INT64_DIGITS]!r}…"


def _suffix_power(suffix: str, text: str | float) -> int:
    if (power := _POWER_OF_TEN.get(suffix)) is not None:
        return power
    if not _EXPONENT.fullmatch(suffix):
        raise _error(text)
    return int(suffix[1 : 2 * _INT64_DIGITS])


def _is_narrow_binary(whole: str, power: int) -> bool:
    """Return whether Go expects the number to fit 64 bits, counting three digits per factor of 1024."""
    return len(whole) + power * 3 // 10 <= 14  # noqa: PLR2004


def _round_to_nanos(amount: int, power: int, *, capped: bool) -> Quantity:
    """Round to billionths, away from zero. Amounts with a binary suffix are capped at the largest 64-bit integer."""
    if amount == 0:
        return Quantity(0, power, wide=True)
    if power >= _MIN_POWER:
        nanos = abs(amount) * int(10 ** (power - _MIN_POWER))
    else:
        nanos = -(-abs(amount) // int(10 ** (_MIN_POWER - power)))
    if capped and nanos > MAX_INT64 * NANO:
        return Quantity(-MAX_INT64 if amount < 0 else MAX_INT64, 0, wide=True)
    return Quantity(-nanos if amount < 0 else nanos, _MIN_POWER, wide=True)


def _scale_wide(unscaled: int, shift: int) -> int:
    if shift >= 0:
        # Go converts the factor through a float: 10^19 and more become the smallest 64-bit integer.
        factor = int(10**shift) if shift <= _INT64_DIGITS else _MIN_INT64
        return _wrap_int64(_wrap_int64(unscaled) * factor)
    divisor = int(10**-shift)
    if unscaled < MAX_INT64 and -shift <= _INT64_DIGITS:
        small = _wrap_int64(unscaled)
        whole = abs(small) // divisor
        return (-whole if small < 0 else whole) + (small % divisor != 0)
    whole, rest = divmod(unscaled, divisor)
    return _wrap_int64(_wrap_int64(whole) + (rest != 0))


def _fits_int64(number: int) -> bool:
    return _MIN_INT64 <= number <= MAX_INT64


def _wrap_int64(number: int) -> int:
    """Return the lowest 64 bits of *number* as a signed integer."""
    return (number + 2**63) % 2**64 - 2**63
