"""The options for prices, and the price file."""

from decimal import Decimal
from pathlib import Path
from typing import Final

from rescheduler.cli.go_flags import FILE, Option, Parsed
from rescheduler.cli.options import group
from rescheduler.errors import InputError, UsageError
from rescheduler.net import files
from rescheduler.planning.money import price_files
from rescheduler.planning.money.prices import PriceKey, PriceList

_PRICE: Final = Parsed(price_files.price, "price")
_LONGEST_CURRENCY: Final = 16


def read_prices(path: Path) -> dict[PriceKey, Decimal]:
    """Return the prices in the file *path*. Raises UsageError that names the file and the line."""
    try:
        return price_files.parse(files.read_text(path))
    except OSError as error:
        raise UsageError(f"--prices {files.printable(path)}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--prices {files.printable(path)}: expected UTF-8 text") from error
    except InputError as error:
        raise UsageError(f"--prices {files.printable(path)}: {error}") from error


def _currency(text: str) -> str:
    if len(text) > _LONGEST_CURRENCY or not text.isprintable():
        raise ValueError(f"{text!r}: expected at most {_LONGEST_CURRENCY} printable characters, such as USD")
    return text.strip()


def _price_list(
    prices: Path | None,
    currency: str,
    price_per_vcpu: Decimal | None,
    price_per_gib: Decimal | None,
    spot_price_per_vcpu: Decimal | None,
    spot_price_per_gib: Decimal | None,
) -> PriceList:
    return PriceList(
        by_type=read_prices(prices) if prices is not None else {},
        per_vcpu=price_per_vcpu,
        per_gib=price_per_gib,
        spot_per_vcpu=spot_price_per_vcpu,
        spot_per_gib=spot_price_per_gib,
        currency=currency,
    )


#: Passes ``prices: PriceList`` to the command. The file is read when the command starts.
price_options = group(
    "prices",
    _price_list,
    (
        Option(
            "--prices",
            FILE,
            metavar="FILE",
            help="Prices per hour: CSV with the columns instance_type,zone,capacity_type,price (zone is optional; "
            "capacity_type is on-demand or spot), or a JSON array of objects with the same keys.",
        ),
        Option(
            "--price-per-vcpu",
            _PRICE,
            help="Price per hour of a vCPU of on-demand nodes, for nodes that have no other price.",
        ),
        Option("--price-per-gib", _PRICE, help="Price per hour of a GiB of memory of on-demand nodes, likewise."),
        Option("--spot-price-per-vcpu", _PRICE, help="Price per hour of a vCPU of spot nodes, likewise."),
        Option("--spot-price-per-gib", _PRICE, help="Price per hour of a GiB of memory of spot nodes, likewise."),
        Option(
            "--currency",
            Parsed(_currency, "text"),
            default="",
            metavar="TEXT",
            help="The currency of all prices, such as USD. It is shown as given.",
        ),
    ),
)
