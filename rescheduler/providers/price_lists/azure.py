"""Prices of Azure's virtual machines: the Retail Prices API, which needs no account. It is imported when its
cloud is asked.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from rescheduler.clock import Clock
from rescheduler.errors import InputError
from rescheduler.providers.price_lists import SECONDS, Price, Query, client

URL: Final = "https://prices.azure.com"
_PATH: Final = "/api/retail/prices"
_VERSION: Final = "2023-01-01-preview"
_MOST_TYPES: Final = 10  #: machine types in one request, because the filter is part of the address
_MOST_PAGES: Final = 100  #: of one request; a page has 100 entries


class _Entry(Struct, rename="camel"):
    arm_sku_name: str
    sku_name: str
    product_name: str
    unit_of_measure: str
    retail_price: Decimal
    currency_code: str
    type: str


class _Page(Struct, rename="pascal"):
    items: list[_Entry]
    next_page_link: str | None = None


def read(query: Query, clock: Clock) -> Iterator[Price]:
    """Yield the prices of machines with Linux. Raises the errors of :class:`~rescheduler.net.http.JsonClient`."""
    http, deadline = client("Azure Retail Prices", URL, clock), clock.monotonic() + SECONDS
    try:
        for first in range(0, len(query.types), _MOST_TYPES):
            names = query.types[first : first + _MOST_TYPES]
            params: dict[str, str] | None = _asked(query, names)
            for _ in range(_MOST_PAGES):
                if params is None:
                    break
                page, _answer = http.get(_PATH, _Page, deadline=deadline, params=params, strict=False)
                yield from (price for entry in page.items if (price := _price(entry, query)) is not None)
                params = _next(page.next_page_link)
            else:
                raise InputError(f"Azure Retail Prices: more than {_MOST_PAGES} pages for {len(names)} machine types")
    finally:
        http.close()


def _asked(query: Query, names: tuple[str, ...]) -> dict[str, str]:
    types = " or ".join(f"armSkuName eq '{name}'" for name in names)
    scope = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq '{query.region}'"
    return {"api-version": _VERSION, "currencyCode": f"'{query.currency}'", "$filter": f"{scope} and ({types})"}


def _next(link: str | None) -> dict[str, str] | None:
    """Return the parameters of the next page. The request goes to the same address, whatever host the link names."""
    return dict(parse_qsl(urlsplit(link).query)) if link else None


def _price(entry: _Entry, query: Query) -> Price | None:
    """Return the price in *entry*, or None if it is not that of a machine with Linux for an hour."""
    hourly = entry.type == "Consumption" and entry.unit_of_measure == "1 Hour"
    other = "Windows" in entry.product_name or "Low Priority" in entry.sku_name or entry.arm_sku_name not in query.types
    if not hourly or other or entry.currency_code != query.currency or entry.retail_price <= 0:
        return None
    return Price(entry.arm_sku_name, spot=entry.sku_name.endswith(" Spot"), amount=entry.retail_price)
