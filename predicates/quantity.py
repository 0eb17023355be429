"""Kubernetes quantities, exactly: every form that the API accepts, as whole billionths.

Source: ``k8s.io/apimachinery/pkg/api/resource/quantity.go``. What is finer than a billionth is rounded away
from zero, as there.
"""

import re
from typing import Final

NANO: Final = 10**9
MILLI: Final = 10**6  #: nanos in a thousandth
MAX_INT64: Final = 2**63 - 1

_FORM: Final = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?\Z", re.ASCII)
_SUFFIX: Final = {
    "n": 1,
    "u": 10**3,
    "m": 10**6,
    "k": 10**12,
    "M": 10**15,
    "G": 10**18,
    "T": 10**21,
    "P": 10**24,
    "E": 10**27,
} | {f"{letter}i": NANO << 10 * power for power, letter in enumerate("KMGTPE", 1)}


class QuantityError(ValueError):
    """A text that is no quantity."""


def nanos(text: str | float) -> int:
    """*text* in billionths: ``"100m"`` is 100,000,000. JSON numbers are read as their text.

    Raises :class:`QuantityError`.
    """
    form = _FORM.match(str(text))
    if form is None or not (form[2] or form[3]):
        raise QuantityError(f"quantity {text!r}: expected a number such as 250m, 1.5Gi or 1e3")
    sign, whole, fraction, exponent, suffix = form[1], form[2], form[3] or "", form[4], form[5]
    digits = int((whole + fraction) or "0")
    scale = _SUFFIX[suffix] if suffix else NANO
    shift = (int(exponent[1:]) if exponent else 0) - len(fraction)
    scaled: int = digits * scale * int(10 ** max(shift, 0))
    value = min(-(-scaled // int(10 ** max(-shift, 0))), MAX_INT64 * NANO)
    return -value if sign == "-" else value


def ceil_units(amount: int) -> int:
    """Billionths as whole units, rounded up (Go's ``Quantity.Value``)."""
    return min(-(-amount // NANO), MAX_INT64)


def ceil_millis(amount: int) -> int:
    """Billionths as thousandths, rounded up (Go's ``Quantity.MilliValue``)."""
    return min(-(-amount // MILLI), MAX_INT64)
