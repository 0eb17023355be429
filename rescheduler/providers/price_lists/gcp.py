"""Prices of Compute Engine: the Cloud Billing Catalog API, with an API key. It is imported when its cloud is asked.

The catalog has a price for a vCPU and for a GiB of memory of each machine family, in each region. The price of a
machine is their sum. Local SSDs, GPUs and licenses have prices of their own, which are not included.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from msgspec import Struct

from rescheduler.clock import Clock
from rescheduler.errors import InputError
from rescheduler.providers.price_lists import SECONDS, Price, Query, client

URL: Final = "https://cloudbilling.googleapis.com"
_PATH: Final = "/v1/services/6F81-5844-456A/skus"  #: Compute Engine
_PAGE: Final = 5000
_MOST_PAGES: Final = 50

#: By family: the begin of its entries in the catalog, and the GiB of memory per vCPU of its classes of machines.
_FAMILIES: Final = {
    "n1": ("N1 Predefined Instance", {"standard": "3.75", "highmem": "6.5", "highcpu": "0.9"}),
    "n2": ("N2 Instance", {"standard": "4", "highmem": "8", "highcpu": "1"}),
    "n2d": ("N2D AMD Instance", {"standard": "4", "highmem": "8", "highcpu": "1"}),
    "n4": ("N4 Instance", {"standard": "4", "highmem": "8", "highcpu": "2"}),
    "e2": ("E2 Instance", {"standard": "4", "highmem": "8", "highcpu": "1"}),
    "c2": ("Compute optimized", {"standard": "4"}),
    "c2d": ("C2D AMD Instance", {"standard": "4", "highmem": "8", "highcpu": "2"}),
    "c3": ("C3 Instance", {"standard": "4", "highmem": "8", "highcpu": "2"}),
    "t2d": ("T2D AMD Instance", {"standard": "4"}),
    "t2a": ("T2A Arm Instance", {"standard": "4"}),
}
_TYPE: Final = re.compile(r"([a-z0-9]+)-(standard|highmem|highcpu)-([0-9]{1,4})")
_SPOT: Final = "Spot Preemptible "


class _Money(Struct, rename="camel"):
    currency_code: str = ""
    units: int = 0
    nanos: int = 0


class _Rate(Struct, rename="camel"):
    unit_price: _Money


class _Expression(Struct, rename="camel"):
    usage_unit: str = ""
    tiered_rates: list[_Rate] = []


class _Info(Struct, rename="camel"):
    pricing_expression: _Expression


class _Category(Struct, rename="camel"):
    usage_type: str = ""


class _Entry(Struct, rename="camel"):
    description: str
    category: _Category
    service_regions: list[str] = []
    pricing_info: list[_Info] = []


class _Page(Struct, rename="camel"):
    skus: list[_Entry] = []
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class _Machine:
    family: str
    vcpu: Decimal
    gib: Decimal


def read(query: Query, clock: Clock, key: str) -> Iterator[Price]:
    """Yield the prices of the known machine types, with the API key *key*. Raises the errors of the HTTP client."""
    machines = {name: machine for name in query.types if (machine := _machine(name)) is not None}
    rates = _rates(query, clock, key)
    for name, machine in machines.items():
        for spot in (False, True):
            core, memory = (rates.get((machine.family, part, spot)) for part in ("Core", "Ram"))
            if core is not None and memory is not None:
                yield Price(name, spot=spot, amount=core * machine.vcpu + memory * machine.gib)


def _machine(name: str) -> _Machine | None:
    match = _TYPE.fullmatch(name)
    if match is None or match[2] not in _FAMILIES.get(match[1], ("", {}))[1]:
        return None
    vcpu = Decimal(match[3])
    return _Machine(match[1], vcpu, vcpu * Decimal(_FAMILIES[match[1]][1][match[2]]))


def _rates(query: Query, clock: Clock, key: str) -> dict[tuple[str, str, bool], Decimal]:
    """Return the prices per hour by family, part (``Core`` or ``Ram``), and whether they are those of spot machines."""
    http, deadline = client("Cloud Billing", URL, clock, key), clock.monotonic() + SECONDS
    rates: dict[tuple[str, str, bool], Decimal] = {}
    token = ""
    try:
        for _ in range(_MOST_PAGES):
            params = {"key": key, "pageSize": str(_PAGE), "currencyCode": query.currency}
            page, _answer = http.get(
                _PATH, _Page, deadline=deadline, params=params | ({"pageToken": token} if token else {}), strict=False
            )
            for entry in page.skus:
                if query.region in entry.service_regions and (found := _rate(entry)) is not None:
                    rates[found[0]] = found[1]
            if not (token := page.next_page_token):
                return rates
    finally:
        http.close()
    raise InputError(f"Cloud Billing: more than {_MOST_PAGES} pages")


def _rate(entry: _Entry) -> tuple[tuple[str, str, bool], Decimal] | None:
    """Return the family, the part and the price of *entry*, or None if it is not about a part of a machine."""
    spot = {"OnDemand": False, "Preemptible": True}.get(entry.category.usage_type)
    if spot is None or entry.description.startswith(_SPOT) != spot or not entry.pricing_info:
        return None
    text, unit = entry.description.removeprefix(_SPOT), entry.pricing_info[0].pricing_expression.usage_unit
    for family, (start, _) in _FAMILIES.items():
        for part, expected in (("Core", "h"), ("Ram", "GiBy.h")):
            if text.startswith(f"{start} {part} running in ") and unit == expected:
                rates = entry.pricing_info[0].pricing_expression.tiered_rates
                amounts = [rate.unit_price.units + Decimal(rate.unit_price.nanos) / 10**9 for rate in rates]
                return ((family, part, spot), max(amounts)) if amounts else None
    return None
