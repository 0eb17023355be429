"""Kubernetes quantities: every form that the API accepts, and the integers that the scheduler makes of them.

Source: ``k8s.io/apimachinery/pkg/api/resource`` (``quantity.go``, ``amount.go``, ``scale_int.go``). Go keeps an amount
as a 64-bit mantissa and a power of ten as long as it can, and as a decimal of any length past that. The two differ
where a number is absurd: beyond 64 bits the first reads as 0 or wraps around, the second wraps around, and negative
fractions are rounded up, down or away from zero. The scheduler's verdict follows from what its integers are, so
:class:`Quantity` keeps to the same two forms.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
MAX_INT64: Final = 2**63 - 1

_MIN_INT64: Final = -(2**63)
_FORM: Final = re.compile(r"([+-]?)(0*)(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)", re.ASCII)
_POWER_OF_TEN: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWER_OF_TWO: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT: Final = re.compile(r"[eE][+-]?\d+", re.ASCII)
_FINEST: Final = -9  #: finer fractions are rounded away from zero
_DIGITS: Final = 18  #: of a decimal that Go keeps as a 64-bit mantissa
_WIDEST: Final = 1000  #: digits and power of ten; Go takes any, at any price

#: Go multiplies by these at once and so wraps around; by any other power of ten step by step, and gives up with 0.
_AT_ONCE: Final = (1, 2, 3, 6, 9)


class QuantityError(ValueError):
    """A text that is no quantity."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount: ``mantissa`` x 10^``power``."""

    mantissa: int
    power: int
    wide: bool = False  #: Go keeps it as a decimal of any length

    @property
    def units(self) -> int:
        """As a whole number, rounded up (``Value``): 64 bits, wrapped around as in Go."""
        return self._scaled(0)

    @property
    def millis(self) -> int:
        """In whole thousandths, rounded up (``MilliValue``): 64 bits, wrapped around as in Go."""
        return self._scaled(-3)

    def plus(self, other: "Quantity") -> "Quantity":
        """The exact sum."""
        if not (self.wide or other.wide):
            if other.mantissa == 0:
                return self
            if self.mantissa == 0:
                return other
        power = min(self.power, other.power)
        mine, theirs = _at(self, power), _at(other, power)
        total = mine + theirs
        narrow = not (self.wide or other.wide) and all(map(_fits, (mine, theirs, total)))
        return Quantity(total, power, wide=not narrow)

    def larger(self, other: "Quantity") -> "Quantity":
        """*other* if it is more, else this one."""
        power = min(self.power, other.power)
        if _at(other, power) <= _at(self, power):
            return self
        return Quantity(other.mantissa, other.power, wide=self.wide or other.wide)

    def __lt__(self, other: "Quantity") -> bool:
        power = min(self.power, other.power)
        return _at(self, power) < _at(other, power)

    def _scaled(self, power: int) -> int:
        shift = self.power - power
        if self.wide:
            return _wide_scaled(self.mantissa, shift)
        if shift < 0:
            whole, rest = divmod(abs(self.mantissa), int(10**-shift))
            rounded = whole + (rest != 0)
            return -rounded if self.mantissa < 0 else rounded
        scaled = self.mantissa * int(10**shift)
        if _fits(scaled):
            return scaled
        return _wrapped(scaled) if shift in _AT_ONCE and self.mantissa != _MIN_INT64 else 0


ZERO: Final = Quantity(0, 0)


@lru_cache(maxsize=65536)
def parse(text: str | float) -> Quantity:
    """*text* as a quantity; JSON numbers are read as their text.

    As in Go, what lacks digits altogether is 0 (``"+"``, ``"m"``), and spaces around do not matter.
    Raises :class:`QuantityError`.
    """
    stripped = str(text).strip(" ")
    form = _FORM.fullmatch(stripped)
    if form is None or not stripped:
        raise _error(text)
    sign, zeros, whole, fraction, suffix = form.group(1, 2, 3, 4, 5)
    digits = (whole or "0") + (fraction or "")
    binary = _POWER_OF_TWO.get(suffix)
    power = 0 if binary is not None else _power(suffix, text)
    if len(digits) > _WIDEST or (abs(power) > _WIDEST and digits.strip("0")):
        raise QuantityError(f"quantity {_shown(text)}: expected at most {_WIDEST} digits and e{_WIDEST}")
    power = max(-_WIDEST, min(power, _WIDEST))
    amount = -int(digits) if sign == "-" else int(digits)
    if binary is not None and not fraction and _is_narrow_binary(whole or "0", binary):
        return Quantity(amount << binary, 0)
    places = len(fraction or "")
    if binary is None and len(digits) <= _DIGITS and power - places >= _FINEST:
        return Quantity(amount, power - places)
    if not (zeros or whole or fraction):
        raise _error(text)
    return _wide(amount << (binary or 0), power - places, capped=binary is not None)


def _at(quantity: Quantity, power: int) -> int:
    """The mantissa that the quantity has at a lower *power*."""
    return quantity.mantissa * int(10 ** (quantity.power - power)) if quantity.mantissa else 0


def _error(text: str | float) -> QuantityError:
    return QuantityError(f"quantity {_shown(text)}: expected a number such as 250m, 1.5Gi or 1e3")


def _shown(text: str | float) -> str:
    return repr(text) if len(str(text)) <= 2 * _DIGITS else f"{str(text)[: 2 * _DIGITS]!r}…"


def _power(suffix: str, text: str | float) -> int:
    if (power := _POWER_OF_TEN.get(suffix)) is not None:
        return power
    if not _EXPONENT.fullmatch(suffix):
        raise _error(text)
    return int(suffix[1 : 2 * _DIGITS])


def _is_narrow_binary(whole: str, power: int) -> bool:
    """Whether Go expects the number to fit 64 bits: by its digits, and three for each factor of 1024."""
    return len(whole) + power * 3 // 10 <= 14  # noqa: PLR2004


def _wide(amount: int, power: int, *, capped: bool) -> Quantity:
    """To whole billionths away from zero; binary forms stop at the largest 64-bit number."""
    if amount == 0:
        return Quantity(0, power, wide=True)
    if power >= _FINEST:
        nanos = abs(amount) * int(10 ** (power - _FINEST))
    else:
        nanos = -(-abs(amount) // int(10 ** (_FINEST - power)))
    if capped and nanos > MAX_INT64 * NANO:
        return Quantity(-MAX_INT64 if amount < 0 else MAX_INT64, 0, wide=True)
    return Quantity(-nanos if amount < 0 else nanos, _FINEST, wide=True)


def _wide_scaled(unscaled: int, shift: int) -> int:
    if shift >= 0:
        # 10^19 and more turn into the smallest integer on the way through a float.
        factor = int(10**shift) if shift <= _DIGITS else _MIN_INT64
        return _wrapped(_wrapped(unscaled) * factor)
    divisor = int(10**-shift)
    if unscaled < MAX_INT64 and -shift <= _DIGITS:
        small = _wrapped(unscaled)
        whole = abs(small) // divisor
        return (-whole if small < 0 else whole) + (small % divisor != 0)
    whole, rest = divmod(unscaled, divisor)
    return _wrapped(_wrapped(whole) + (rest != 0))


def _fits(number: int) -> bool:
    return _MIN_INT64 <= number <= MAX_INT64


def _wrapped(number: int) -> int:
    """The lowest 64 bits, read as a signed integer."""
    return (number + 2**63) % 2**64 - 2**63
