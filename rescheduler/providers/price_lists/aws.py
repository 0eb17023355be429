"""Prices of EC2: AWS Price List for on-demand instances, and the spot price history of the region. It is imported when
its cloud is asked.

Both are read with boto3, with the credentials that its chain finds. Permissions: ``pricing:GetProducts`` and
``ec2:DescribeSpotPriceHistory``.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from rescheduler.errors import BackendUnavailable, InputError, UsageError
from rescheduler.providers.price_lists import Price, Query

_LINUX: Final = "Linux/UNIX"
#: Shared machines with Linux without other software, used without a capacity reservation.
_FILTERS: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
_MOST_TYPES: Final = 100  #: instance types in one request


def read(query: Query) -> Iterator[Price]:
    """Yield the prices. Raises UsageError without boto3, and BackendUnavailable with the reason of a failed request."""
    try:
        import boto3  # noqa: PLC0415 - an extra
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
    except ImportError:
        raise UsageError("prices aws: boto3 is not installed: in a checkout, pip install '.[aws]'") from None
    config = Config(
        connect_timeout=10, read_timeout=60, retries={"mode": "standard", "total_max_attempts": 5}, tcp_keepalive=True
    )
    china = query.region.startswith("cn-")
    try:
        lists = boto3.client("pricing", region_name="cn-northwest-1" if china else "us-east-1", config=config)
        for name in query.types:
            yield from _on_demand(lists, query.region, name, "CNY" if china else "USD")
        ec2 = boto3.client("ec2", region_name=query.region, config=config)
        yield from _spot(ec2, query)
    except (BotoCoreError, ClientError) as error:
        raise BackendUnavailable(f"AWS: {' '.join(str(error).split())}") from error


def _on_demand(lists: Any, region: str, name: str, currency: str) -> Iterator[Price]:
    wanted = {**_FILTERS, "regionCode": region, "instanceType": name}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    pages = lists.get_paginator("get_products").paginate(
        ServiceCode="AmazonEC2", FormatVersion="aws_v1", Filters=filters
    )
    for page in pages:
        for text in page["PriceList"]:
            if (amount := _amount(text, currency)) is not None:
                yield Price(name, spot=False, amount=amount)


def _amount(text: str, currency: str) -> Decimal | None:
    """Return the price per hour in an entry of the price list; None if it has no hourly price. Raises InputError."""
    try:
        terms = json.loads(text)["terms"].get("OnDemand", {})
        rates = [rate for term in terms.values() for rate in term["priceDimensions"].values() if rate["unit"] == "Hrs"]
        amounts = [Decimal(rate["pricePerUnit"][currency]) for rate in rates if currency in rate["pricePerUnit"]]
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise InputError(f"AWS Price List: an entry has another form than expected: {error!r}") from error
    return max(amounts, default=None)


def _spot(ec2: Any, query: Query) -> Iterator[Price]:
    latest: dict[tuple[str, str], tuple[datetime, Decimal]] = {}
    for first in range(0, len(query.types), _MOST_TYPES):
        pages = ec2.get_paginator("describe_spot_price_history").paginate(
            InstanceTypes=list(query.types[first : first + _MOST_TYPES]),
            ProductDescriptions=[_LINUX, f"{_LINUX} (Amazon VPC)"],
            StartTime=query.now,  # the prices that are valid now, not those of the last 90 days
        )
        for entry in (each for page in pages for each in page["SpotPriceHistory"]):
            key, found = (entry["InstanceType"], entry["AvailabilityZone"]), (entry["Timestamp"], entry["SpotPrice"])
            if key not in latest or latest[key][0] < found[0]:
                latest[key] = found[0], Decimal(found[1])
    for (name, zone), (_, amount) in latest.items():
        if name in query.types and (not query.zones or zone in query.zones):
            yield Price(name, spot=True, amount=amount, zone=zone)
