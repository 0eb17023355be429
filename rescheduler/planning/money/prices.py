"""Prices of nodes per hour: from a list by instance type, or from a price per vCPU and GiB; and files with prices."""

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

from predicates.nodes import CPU, MEMORY
from predicates.objects import Node, Taint
from predicates.requests import allocatable
from predicates.snapshot import Snapshot
from predicates.texts import shown
from rescheduler.errors import InputError
from rescheduler.planning.money.commitments import Commitment

#: Hours per month in all monthly amounts, as cloud providers count them.
HOURS_PER_MONTH: Final = 730

#: Labels that carry the instance type and the zone, the current name first.
INSTANCE_TYPE_LABELS: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

_GIB: Final = 1 << 30

#: Instance type, zone ("" for all zones), and whether it is spot capacity.
PriceKey: TypeAlias = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The properties of a node that determine its price, or that pages show."""

    name: str
    spot: bool
    instance_type: str  #: "" if no label states it
    zone: str  #: "" if no label states it
    cpu: int  #: allocatable, in millicores
    memory: int  #: allocatable, in bytes
    requested_cpu: int  #: by its pods, in millicores
    requested_memory: int  #: by its pods, in bytes
    created: str | None  #: API timestamp


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices per hour in one currency. The first source with a price for a node applies."""

    by_type: Mapping[PriceKey, Decimal] = field(default_factory=dict)
    by_node: Mapping[str, Decimal] = field(default_factory=dict)  #: prices of the cloud provider, by node name
    per_vcpu: Decimal | None = None  #: of on-demand capacity
    per_gib: Decimal | None = None  #: of on-demand capacity
    spot_per_vcpu: Decimal | None = None
    spot_per_gib: Decimal | None = None
    currency: str = ""  #: as the user gave it, "" if not given
    commitments: tuple[Commitment, ...] = ()  #: on-demand nodes that are paid anyway
    file: str = field(default="", compare=False)  #: the path of the source of *by_type*, which the daemon reads again

    @property
    def empty(self) -> bool:
        """Return whether no node has a price."""
        resources = (self.per_vcpu, self.per_gib, self.spot_per_vcpu, self.spot_per_gib)
        return not self.by_type and not self.by_node and all(price is None for price in resources)

    def on(self, today: date) -> "PriceList":
        """Return the prices without commitments that have ended; the same object if none has."""
        left = tuple(each for each in self.commitments if not each.has_ended(today))
        return self if len(left) == len(self.commitments) else replace(self, commitments=left)

    def next_end(self, today: date) -> datetime | None:
        """Return when the next commitment ends, or None if none will."""
        days = (each.until for each in self.commitments if each.until is not None and not each.has_ended(today))
        last = min(days, default=None)
        if last is None or last == date.max:
            return None
        return datetime.combine(last + timedelta(days=1), time(), tzinfo=UTC)

    @property
    def has_spot(self) -> bool:
        """Return whether spot nodes may have a price that is not a cloud provider's."""
        resources = (self.spot_per_vcpu, self.spot_per_gib)
        return any(spot for _, _, spot in self.by_type) or any(price is not None for price in resources)

    def per_hour(self, node: NodeFacts) -> Decimal | None:
        """Return the price of *node* per hour, or None if it is not known."""
        for zone in (node.zone, ""):
            if (price := self.by_type.get((node.instance_type, zone, node.spot))) is not None:
                return price
        if (price := self.by_node.get(node.name)) is not None:
            return price
        return self._by_resources(node)

    def _by_resources(self, node: NodeFacts) -> Decimal | None:
        per_vcpu, per_gib = (self.spot_per_vcpu, self.spot_per_gib) if node.spot else (self.per_vcpu, self.per_gib)
        if per_vcpu is None and per_gib is None:
            return None
        return Decimal(node.cpu) / 1000 * (per_vcpu or 0) + Decimal(node.memory) / _GIB * (per_gib or 0)


def node_facts(snapshot: Snapshot, name: str, *, spot: bool) -> NodeFacts:
    """Return the facts of the node *name*, which must be in *snapshot*."""
    table = snapshot.nodes
    row = table.row[name]
    node = table.nodes[row]
    assert node is not None
    return NodeFacts(
        name=name,
        spot=spot,
        instance_type=instance_type(node),
        zone=zone_of(node),
        cpu=int(table.allocatable[row, CPU]),
        memory=int(table.allocatable[row, MEMORY]),
        requested_cpu=int(table.allocatable[row, CPU] - table.free[row, CPU]),
        requested_memory=int(table.allocatable[row, MEMORY] - table.free[row, MEMORY]),
        created=shown(node.metadata.creation_timestamp or "") or None,
    )


def template_facts(template: Node) -> NodeFacts:
    """Return the facts of a new spot node like *template*, which is not in a snapshot."""
    amounts = allocatable(template.status.allocatable)
    return NodeFacts(
        name=template.name,
        spot=True,
        instance_type=instance_type(template),
        zone=zone_of(template),
        cpu=amounts.get("cpu", 0),
        memory=amounts.get("memory", 0),
        requested_cpu=0,
        requested_memory=0,
        created=None,
    )


def zone_of(node: Node) -> str:
    """Return the zone of *node*, or "" if no label states it."""
    return _label(node, ZONE_LABELS)


def instance_type(node: Node) -> str:
    """Return the instance type of *node*, or "" if no label states it."""
    return _label(node, INSTANCE_TYPE_LABELS)


NodeKind: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], frozenset[Taint]]


def kind(node: Node) -> NodeKind:
    """Return the properties that nodes of one group share, regardless of the autoscaler that defines the groups."""
    sizes = tuple(sorted((name, str(amount)) for name, amount in node.status.allocatable.items()))
    return instance_type(node), zone_of(node), sizes, frozenset(node.spec.taints)


def cost_on(node: NodeFacts, cpu: int, memory: int, prices: PriceList) -> Decimal | None:
    """Return the price per hour of a pod's share of *node*, or None if the price of the node is not known.

    *cpu* (millicores) and *memory* (bytes) are the pod's requests. The larger of their two shares of the node counts.
    """
    price = prices.per_hour(node)
    if price is None:
        return None
    shares = [Decimal(asked) / total for asked, total in ((cpu, node.cpu), (memory, node.memory)) if total > 0]
    return price * min(max(shares, default=Decimal(0)), Decimal(1))


def with_added(prices: PriceList, added: Iterable[NodeFacts], spot: Iterable[NodeFacts]) -> PriceList:
    """Return *prices* with one for each of the spot nodes *added*, which do not exist, where one can be found.

    A node without a price of its own gets that of a spot node of the same instance type. Otherwise its size gets the
    lowest price of the existing nodes *spot*: the larger of its ratios of CPU and memory counts.
    """
    known = [(node, price) for node in spot if (price := prices.per_hour(node)) is not None]
    found: dict[str, Decimal] = {}
    for new in added:
        if (price := prices.per_hour(new)) is None:
            alike = [price for node, price in known if node.instance_type == new.instance_type]
            price = min(alike or [price * _times(new, node) for node, price in known], default=None)
            found |= {} if price is None else {new.name: price}
    return replace(prices, by_node={**prices.by_node, **found}) if found else prices


def _times(node: NodeFacts, unit: NodeFacts) -> Decimal:
    """Return how many nodes like *unit* have the CPU and the memory of *node*."""
    sizes = ((node.cpu, unit.cpu), (node.memory, unit.memory))
    return max((Decimal(size) / of for size, of in sizes if of > 0), default=Decimal(1))


def _label(node: Node, keys: tuple[str, ...]) -> str:
    return next((node.metadata.labels[key] for key in keys if key in node.metadata.labels), "")


# Price files: CSV with a header, or JSON with the same keys. Prices are per hour.

_REQUIRED: Final = ("instance_type", "capacity_type", "price")
_COLUMNS: Final = ("instance_type", "zone", "capacity_type", "price")

#: The names of capacity types in clouds' APIs, price lists and labels of nodes: in lower case, with dashes.
_CAPACITY: Final = {
    **dict.fromkeys(("on-demand", "ondemand", "od", "standard", "regular", "normal", "consumption"), False),
    **dict.fromkeys(("spot", "ec2spot", "preemptible", "low", "low-priority"), True),
}

_NUMBER: Final = re.compile(r"([0-9]+)(?:\.([0-9]+))?")

#: The most digits of a price before and after the point; and of money for a moved pod: any that such prices result in.
_PRICE: Final = (9, 12)
_PER_MOVE: Final = (12, 24)

#: A line with its line ending. Other Unicode line separators are part of the text.
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

#: An error message quotes at most this many characters of an invalid price.
_SHOWN: Final = 40

#: The position of an entry in the file, and the columns of the entry as text.
_Entry: TypeAlias = tuple[str, Mapping[str, str]]


def price(text: str) -> Decimal:
    """Parse a price such as ``0.0832``. Raises ValueError for anything but a plain number of at least 0."""
    return _amount(text, "a price per hour such as 0.0832", *_PRICE)


def per_move(text: str) -> Decimal:
    """Parse money per month for a moved pod. Raises ValueError for anything but a plain number of at least 0."""
    return _amount(text, "an amount per month such as 2.50", *_PER_MOVE)


def _amount(text: str, expected: str, before: int, after: int) -> Decimal:
    """Parse a plain number with at most so many digits *before* and *after* the point."""
    number = _NUMBER.fullmatch(text)
    if number and len(number[1]) <= before and len(number[2] or "") <= after:
        return Decimal(text)
    quoted = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    bound = f", with at most {before} digits before and {after} after the point" if number else ""
    raise ValueError(f"{quoted!r}: expected {expected}{bound}")


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
    capacity = entry["capacity_type"].lower().replace("_", "-").replace(" ", "-")
    if capacity not in _CAPACITY:
        raise InputError(f"{where}: capacity_type: {entry['capacity_type']!r}: expected on-demand or spot")
    try:
        amount = price(entry["price"])
    except ValueError as error:
        raise InputError(f"{where}: price: {error}") from error
    return (entry["instance_type"], entry.get("zone", ""), _CAPACITY[capacity]), amount


def _named(entry: Mapping[str, str]) -> str:
    zone = f" in zone {entry['zone']}" if entry.get("zone") else ""
    return f"{entry['instance_type']}{zone} ({entry['capacity_type']})"
