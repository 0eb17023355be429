"""Parse durations in the format of Go's ``time.ParseDuration``."""

import re
from typing import Final

#: The longest duration in seconds: ten years. Dates plus durations stay within the range of datetime.
LONGEST: Final = 10.0 * 365 * 24 * 3600
#: The longest wait in seconds. System calls take milliseconds as a 32-bit integer.
LONGEST_WAIT: Final = 2_000_000.0

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,  # the micro sign
    "μs": 1e-6,  # the Greek letter
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def seconds(text: str) -> float:
    """Parse a duration such as ``2m30s``, ``1.5h``, ``500ms`` or ``0`` and return it in seconds.

    Raises ValueError, with the expected format, for anything else: also for negative durations and for those longer
    than :data:`LONGEST`.
    """
    if text == "0":
        return 0.0
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("expected a duration such as 10s, 2m30s, 1h or 500ms")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > LONGEST:
        raise ValueError(f"expected a duration of at most {LONGEST / 3600:.0f}h")
    return total
