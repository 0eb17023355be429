"""Prices per hour from the public price lists of clouds, for given instance types: `rescheduler prices`.

Each module has a function ``read``, which yields the prices it finds and raises the errors of its requests.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

from rescheduler.clock import Clock
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http import JsonClient

#: Seconds for all requests of one command.
SECONDS: Final = 300.0

#: Prices have at most this many digits after the point in a price file.
_PLACES: Final = Decimal("1e-12")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one instance for an hour; an empty *zone* stands for all zones of the region."""

    instance_type: str
    spot: bool
    amount: Decimal
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: the prices of *types* in a region."""

    region: str
    types: tuple[str, ...]
    now: datetime
    currency: str = "USD"
    zones: frozenset[str] = field(default_factory=frozenset)  #: zones of interest; empty: all


def client(system: str, url: str, clock: Clock, secret: str = "") -> JsonClient:
    """Return a client of the API at *url*, which verifies the certificate. No error message contains *secret*."""

    def text(body: bytes) -> str:
        plain = body.decode("utf-8", "replace")
        return plain.replace(secret, "…") if secret else plain

    return JsonClient(system, Endpoint(url=url, max_answer_bytes=256 << 20), Path(), clock, text)


def csv_lines(prices: Iterable[Price]) -> Iterator[str]:
    """Yield the lines of a price file, sorted, without duplicates."""
    found: Mapping[tuple[str, bool, str], Decimal] = {
        (price.instance_type, price.spot, price.zone): price.amount for price in prices
    }
    yield "instance_type,zone,capacity_type,price"
    for (name, spot, zone), amount in sorted(found.items()):
        plain = f"{amount.quantize(_PLACES):f}".rstrip("0").rstrip(".")
        yield f"{name},{zone},{'spot' if spot else 'on-demand'},{plain}"
