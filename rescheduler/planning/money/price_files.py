"""Price files: CSV with a header, or JSON with the same keys. Prices are per hour."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, TypeAlias

from rescheduler.errors import InputError
from rescheduler.planning.money.prices import PriceKey

_REQUIRED: Final = ("instance_type", "capacity_type", "price")
_COLUMNS: Final = ("instance_type", "zone", "capacity_type", "price")

#: By capacity type: whether it is spot capacity.
_CAPACITY: Final = {"on-demand": False, "spot": True}

_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?")

#: A line with its line ending. Other Unicode line separators are part of the text.
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

#: An error message quotes at most this many characters of an invalid price.
_SHOWN: Final = 40

#: The position of an entry in the file, and the columns of the entry as text.
_Entry: TypeAlias = tuple[str, Mapping[str, str]]


def price(text: str) -> Decimal:
    """Parse a price such as ``0.0832``. Raises ValueError for anything but a plain number of at least 0."""
    if not _NUMBER.fullmatch(text):
        quoted = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise ValueError(f"{quoted!r}: expected a price per hour such as 0.0832")
    return Decimal(text)


def parse(text: str) -> dict[PriceKey, Decimal]:
    """Parse the content of a price file: JSON if it starts with a bracket or brace, otherwise CSV.

    Raises InputError with the place (``line 3``, ``entry 2``), the column and the expected value.
    """
    text = text.removeprefix("\ufeff")
    prices: dict[PriceKey, Decimal] = {}
    for where, entry in _json(text) if text.lstrip()[:1] in ("[", "{") else _csv(text):
        key, amount = _priced(where, entry)
        if prices.setdefault(key, amount) != amount:
            raise InputError(f"{where}: {_named(entry)} already has another price, {prices[key]}")
    if not prices:
        raise InputError("it has no prices: expected a header and at least one line, or a JSON array with entries")
    return prices


def _csv(text: str) -> Iterator[_Entry]:
    lines = csv.reader(_LINE.findall(text), strict=True)
    header: list[str] | None = None
    for row in _rows(lines):
        cells = [cell.strip() for cell in row]
        where = f"line {lines.line_num}"
        if header is None:
            header = cells
            _check_columns(where, header)
        elif len(cells) != len(header):
            raise InputError(f"{where}: {len(cells)} columns: expected {len(header)}, as in the header")
        else:
            yield where, dict(zip(header, cells, strict=True))


def _rows(lines: Any) -> Iterator[list[str]]:
    """Yield the rows of the CSV file that are not empty."""
    try:
        yield from (row for row in lines if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise InputError(f"line {lines.line_num}: expected CSV: {error}") from error


def _check_columns(where: str, columns: Iterable[str]) -> None:
    names = list(columns)
    expected = f"expected the columns {','.join(_COLUMNS)} (zone is optional)"
    for name in names:
        if name not in _COLUMNS:
            raise InputError(f"{where}: unknown column {name!r}: {expected}")
        if names.count(name) > 1:
            raise InputError(f"{where}: column {name} occurs twice: {expected}")
    if missing := [name for name in _REQUIRED if name not in names]:
        raise InputError(f"{where}: no column {missing[0]}: {expected}")


def _json(text: str) -> Iterator[_Entry]:
    try:
        # Objects become tuples of pairs, so that duplicate keys are detected.
        document = json.loads(text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=tuple)
    except json.JSONDecodeError as error:
        raise InputError(f"line {error.lineno}: expected JSON: {error.msg} in column {error.colno}") from error
    except RecursionError as error:
        raise InputError("expected JSON: it is nested too deeply") from error
    if not isinstance(document, list):
        raise InputError(f"expected a JSON array of objects with the keys {', '.join(_COLUMNS)}")
    for number, entry in enumerate(document, start=1):
        where = f"entry {number}"
        if not isinstance(entry, tuple):
            raise InputError(f"{where}: expected an object with the keys {', '.join(_COLUMNS)}")
        _check_columns(where, [column for column, _ in entry])
        cells = {column: "" if (column, content) == ("zone", None) else content for column, content in entry}
        for column, content in cells.items():
            if not isinstance(content, str):
                raise InputError(f"{where}: {column}: expected a {'number' if column == 'price' else 'text'}")
        yield where, cells


def _priced(where: str, entry: Mapping[str, str]) -> tuple[PriceKey, Decimal]:
    if not entry["instance_type"]:
        raise InputError(f"{where}: instance_type: expected a name such as m5.xlarge")
    capacity = entry["capacity_type"]
    if capacity not in _CAPACITY:
        raise InputError(f"{where}: capacity_type: {capacity!r}: expected on-demand or spot")
    try:
        amount = price(entry["price"])
    except ValueError as error:
        raise InputError(f"{where}: price: {error}") from error
    return (entry["instance_type"], entry.get("zone", ""), _CAPACITY[capacity]), amount


def _named(entry: Mapping[str, str]) -> str:
    zone = f" in zone {entry['zone']}" if entry.get("zone") else ""
    return f"{entry['instance_type']}{zone} ({entry['capacity_type']})"
