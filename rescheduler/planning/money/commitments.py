"""Commitments: on-demand nodes that are paid whether they run or not. Their file, and their form in an option.

Reserved instances and committed-use discounts pay for a number of nodes, Savings Plans for an amount per hour.
"""

import csv
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from rescheduler.errors import InputError

#: What follows the region in the name of a zone: ``eu-west-1b``, ``europe-west1-b``, ``westeurope-2``.
_ZONE: Final = re.compile(r"-?[a-z]|-[0-9]{1,2}")
#: What follows the family in the name of an instance type: ``m5.large``, ``n2-standard-4``, ``Standard_D4s_v5``.
_AFTER_FAMILY: Final = (".", "-", "_")

_NODES: Final = re.compile(r"[0-9]{1,6}")
_AMOUNT: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,12})?")
_LONGEST: Final = 63


@dataclass(frozen=True, slots=True)
class Commitment:
    """A number of nodes, or an amount of money per hour, that is paid anyway."""

    instance: str = ""  #: an instance type or the family of several; "" for all
    region: str = ""  #: "" for all
    nodes: int = 0
    per_hour: Decimal = Decimal(0)
    until: date | None = None  #: the last day (UTC); None: no end
    of_each_type: bool = False  #: *nodes* is the number for each instance type

    def has_ended(self, today: date) -> bool:
        """Return whether the last day is over."""
        return self.until is not None and today > self.until

    def covers(self, instance_type: str, zone: str, today: date) -> bool:
        """Return whether a node can be paid by this commitment. A node without a zone may be in any region."""
        if self.has_ended(today):
            return False
        if self.region and zone and zone != self.region:
            rest = zone.removeprefix(self.region)
            if rest == zone or not _ZONE.fullmatch(rest):
                return False
        return (
            not self.instance
            or instance_type == self.instance
            or instance_type.startswith(tuple(self.instance + end for end in _AFTER_FAMILY))
        )


def from_nodes(text: str) -> Commitment:
    """Parse ``TYPE=N``, or ``N`` for each instance type. Raises ValueError."""
    instance, equals, number = text.rpartition("=")
    if not _NODES.fullmatch(number) or (equals and not instance) or "=" in instance or len(instance) > _LONGEST:
        raise ValueError(f"{text[:_LONGEST]!r}: expected a number of nodes, or TYPE=N such as m5.2xlarge=4")
    return Commitment(instance=instance, nodes=int(number), of_each_type=not instance)


def idle(commitments: Iterable[Commitment], nodes: Collection[tuple[str, str]], today: date) -> Iterator[str]:
    """Yield a sentence for each commitment that pays for none of *nodes*, given as instance types and zones."""
    for each in commitments:
        if any(each.covers(kind, zone, today) for kind, zone in nodes):
            continue
        what = f"of {each.instance}" if each.instance else "for all instance types"
        where = f" in {each.region}" if each.region else ""
        why = f"it ended on {each.until}" if each.has_ended(today) else "no on-demand node has this type and region"
        yield f"the commitment {what}{where} pays for no node: {why}"


#: By column: its other names.
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "instance": ("instance_type", "family", "instance_family", "type"),
    "region": (),
    "count": ("nodes", "instances"),
    "per_hour": ("$/hour", "price_per_hour", "hourly"),
    "until": ("end",),
}
_EXPECTED: Final = f"expected the columns {','.join(_COLUMNS)} (count or per_hour; the others may be empty)"


def parse(text: str) -> tuple[Commitment, ...]:
    """Parse the content of a file of commitments: CSV with a header.

    Raises InputError with the line, the column and the expected value.
    """
    lines = csv.reader(text.removeprefix("\ufeff").splitlines(), strict=True)
    header: list[str] | None = None
    found: list[Commitment] = []
    for row in _rows(lines):
        where = f"line {lines.line_num}"
        if header is None:
            header = _header(where, row)
        elif len(row) != len(header):
            raise InputError(f"{where}: {len(row)} columns: expected {len(header)}, as in the header")
        else:
            found.append(_commitment(where, dict(zip(header, row, strict=True))))
    if not found:
        raise InputError(f"it has no commitments: {_EXPECTED} and at least one line")
    return tuple(found)


def _rows(lines: Any) -> Iterator[list[str]]:
    try:
        for row in lines:
            if any(cells := [cell.strip() for cell in row]):
                yield cells
    except csv.Error as error:
        raise InputError(f"line {lines.line_num}: expected CSV: {error}") from error


def _header(where: str, row: list[str]) -> list[str]:
    names = {other: name for name, others in _COLUMNS.items() for other in (name, *others)}
    columns = []
    for cell in row:
        name = names.get(cell.lower())
        if name is None:
            raise InputError(f"{where}: unknown column {cell[:_LONGEST]!r}: {_EXPECTED}")
        if name in columns:
            raise InputError(f"{where}: column {name} occurs twice: {_EXPECTED}")
        columns.append(name)
    if not {"count", "per_hour"} & set(columns):
        raise InputError(f"{where}: no column count and no column per_hour: {_EXPECTED}")
    return columns


def _commitment(where: str, cells: Mapping[str, str]) -> Commitment:
    count, amount = cells.get("count", ""), cells.get("per_hour", "")
    if bool(count) == bool(amount):
        raise InputError(f"{where}: expected either count or per_hour")
    if count and not _NODES.fullmatch(count):
        raise InputError(f"{where}: count: {count[:_LONGEST]!r}: expected a number of nodes such as 4")
    if amount and not _AMOUNT.fullmatch(amount):
        raise InputError(f"{where}: per_hour: {amount[:_LONGEST]!r}: expected an amount such as 1.25")
    instance = cells.get("instance", "")
    return Commitment(
        instance="" if instance == "*" else instance,
        region=cells.get("region", ""),
        nodes=int(count or 0),
        per_hour=Decimal(amount or 0),
        until=_day(where, cells.get("until", "")),
    )


def _day(where: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text[:10]) if len(text) == len("2027-01-31") or text[10:11] in ("T", " ") else _bad()
    except ValueError:
        raise InputError(f"{where}: until: {text[:_LONGEST]!r}: expected a day such as 2027-01-31") from None


def _bad() -> date:
    raise ValueError
