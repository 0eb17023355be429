"""The forms of values outside the program: timestamps of the API, amounts for people, and stored values."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeAlias, TypeVar

from rescheduler.errors import InputError

# Timestamps in the format of the Kubernetes API.


#: Other years are not read, so that sums with durations stay within the range of datetime. A pod's own grace period
#: decides until when it is deleted.
_YEARS: Final = range(1000, 9000)


def instant(text: str | None) -> datetime | None:
    """Parse an API timestamp. Return None if *text* is empty or none. Without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if moment is None or moment.year not in _YEARS:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def utc(moment: datetime) -> str:
    """Format *moment* in UTC, to the second: ``2026-03-01T12:00:00Z``."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


# Formatting of amounts for people: vCPU, GiB, money per month, ages, counts.

_MEMORY_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
#: Amounts of money of at least this much are written without decimals.
_WHOLE_FROM: Final = 100
#: Ages of at least twice a unit are written in that unit, as kubectl does.
_AGE_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))


def stamp(moment: datetime | None) -> str | None:
    """Return *moment* for JSON, as :func:`utc` writes it; None if there is none."""
    return None if moment is None else utc(moment)


def number(amount: Decimal | None) -> float | None:
    """Return *amount* for JSON; None if it is not known."""
    return None if amount is None else float(amount)


def plain(value: float) -> str:
    """Return *value* exactly, in digits without an exponent: ``1500000``, ``0.00001``, ``14``."""
    return format(Decimal(repr(value)).normalize(), "f")


def cpu(millicores: int) -> str:
    """Return an amount of CPU in cores, without the unit: ``7.5``, ``0.25``, ``1,200``."""
    cores = millicores / 1000
    return f"{cores:,.0f}" if cores >= _WHOLE_FROM else _decimal(cores, 1 if cores >= 1 else 3)


def memory(amount: int) -> str:
    """Return an amount of memory in bytes with a binary unit: ``12.3 GiB``, ``512 MiB``, ``1,024 PiB``."""
    value, unit = float(amount), 0
    while round(value, 1) >= _STEP and unit < len(_MEMORY_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    return f"{_decimal(value, 1)} {_MEMORY_UNITS[unit]}"


def money(amount: Decimal, currency: str) -> str:
    """Return an amount of money: ``2,803 $``, ``9.50 $``. Without a currency, return only the number."""
    number = f"{amount:,.0f}" if amount >= _WHOLE_FROM else f"{amount:,.2f}"
    return f"{number} {currency}" if currency else number


def per_month(amount: Decimal, currency: str) -> str:
    """Return a monthly price: ``280 $/month``, or ``280/month`` without a currency."""
    return f"{money(amount, currency)}/month"


def month_of(currency: str) -> str:
    """Return the head of a column with monthly amounts."""
    return f"{currency}/month" if currency else "a month"


def per_hour(amount: Decimal, currency: str) -> str:
    """Return an hourly price with two to four decimals: ``0.214 $ per hour``."""
    whole, _, decimals = f"{amount:,.4f}".partition(".")
    number = f"{whole}.{decimals[:2]}{decimals[2:].rstrip('0')}"
    return f"{number} {currency} per hour" if currency else f"{number} per hour"


def age(created: str | None, now: datetime) -> str:
    """Return how long ago *created* was: ``3d``, ``30h``, ``50m``, ``20s``. Return "" if it is unknown."""
    since = instant(created)
    if since is None:
        return ""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in _AGE_UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 pod``, ``3 pods``, ``1,200 nodes``."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def and_more(number: int, of: str = "", before: str = " ") -> str:
    """Return ``and 3 more`` after a list, with a space or what else comes *before*; "" if there are none."""
    return f"{before}and {number} more{of}" if number > 0 else ""


def shortened(texts: Sequence[str], most: int, *, separator: str = ", ", of: str = "", before: str = " ") -> str:
    """Return the first *most* of *texts*, and how many more there are: ``a, b and 3 more``."""
    return separator.join(texts[:most]) + and_more(len(texts) - most, of, before)


def sentence(text: str) -> str:
    """Return *text* as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


#: Longer percentages are not valid.
_PERCENT_DIGITS: Final = 9


def scaled(value: int | str, total: int, *, up: bool = False) -> int:
    """Return *value*, or its percentage of *total* (``intstr.GetScaledValueFromIntOrPercent``); 0 if it is invalid."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    percent = int(digits) if digits.isdecimal() and len(digits) <= _PERCENT_DIGITS and value.endswith("%") else 0
    return math.ceil(percent * total / 100) if up else percent * total // 100


def fenceposts(max_surge: int | str, max_unavailable: int | str, replicas: int) -> tuple[int, int]:
    """Return how many pods a rolling update adds, and how many it leaves out (``deploymentutil.ResolveFenceposts``)."""
    surge, unavailable = scaled(max_surge, replicas, up=True), scaled(max_unavailable, replicas)
    return surge, unavailable or int(not surge)


def percent(part: int, whole: int) -> int:
    """Return the share of *part* in percent, from 0 to 100; 0 if *whole* is 0."""
    return max(0, min(100, round(100 * part / whole))) if whole > 0 else 0


def _decimal(value: float, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# The packed form of stored values: gzip, limited in size.

#: Maximum size of the packed form in bytes. With base64 encoding and a summary, a ConfigMap stays below 256 KiB.
LIMIT: Final = 180 * 1024

#: Maximum size of the unpacked form in bytes.
_UNPACKED: Final = 64 << 20

_GZIP: Final = 31  #: zlib's ``wbits`` value for the gzip format

#: The number of entries to drop is determined to within one part in this many of all entries.
_FINENESS: Final = 64


def pack(content: bytes) -> bytes:
    """Compress *content*. Equal contents give equal bytes."""
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(content) + packer.flush()


def unpack(content: bytes) -> bytes:
    """Decompress the output of :func:`pack`. Raises InputError if it is not one complete gzip member."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unpacker.decompress(content, _UNPACKED)
    except zlib.error as error:
        raise InputError(f"expected gzip: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise InputError(f"expected one whole gzip member of at most {_UNPACKED >> 20} MiB")
    return text


def packed_within(limit: int, entries: int, without: Callable[[int], bytes]) -> bytes:
    """Return ``without(n)``, the packed form without the *n* least important of all *entries*, for a small *n*.

    The result has at most *limit* bytes, unless it is larger even without all entries.
    """
    whole = without(0)
    if len(whole) <= limit:
        return whole
    low, high = 0, entries  # dropping `low` entries is too few, dropping `high` is enough
    best = without(entries)
    while high - low > max(1, entries // _FINENESS):
        middle = (low + high) // 2
        packed = without(middle)
        if len(packed) <= limit:
            high, best = middle, packed
        else:
            low = middle
    return best


# The merge of what two processes made of a stored value that both have read: neither loses what the other noted.

_T = TypeVar("_T")

#: Decides what becomes of a value that both have changed. It gets the value, that of the other, and that of the base.
Both: TypeAlias = Callable[[_T, _T, _T | None], _T]


def mine_first(mine: _T, _: _T, __: _T | None) -> _T:
    """Return *mine*: for values of which only the last is of use."""
    return mine


def merged_value(mine: _T, remote: _T, base: _T | None, both: Both[_T]) -> _T:
    """Return the value that was changed since *base*. If both have changed it, *both* decides."""
    if mine in (base, remote):
        return remote
    return mine if remote == base else both(mine, remote, base)


def merged_entries(
    mine: Mapping[str, _T],
    remote: Mapping[str, _T],
    base: Mapping[str, _T],
    both: Both[_T],
) -> dict[str, _T]:
    """Return the entries with the changes of both since *base*.

    If both have changed an entry, *both* decides. An entry that one has removed stays if the other has changed it.
    """
    merged = {}
    for key in sorted(mine.keys() | remote.keys()):
        ours, theirs, before = mine.get(key), remote.get(key), base.get(key)
        if ours is not None and theirs is not None:
            merged[key] = merged_value(ours, theirs, before, both)
        elif (left := theirs if ours is None else ours) is not None and left != before:
            merged[key] = left
    return merged
