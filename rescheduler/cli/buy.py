"""The option ``--buy`` of ``rescheduler plan``: its output. Separate from ``plan``, as ``--what-if`` is."""

from collections.abc import Iterator
from typing import Any, Final

from rescheduler.cli.console import HEADING, Line, styled
from rescheduler.cli.glance import month_of
from rescheduler.cli.go_flags import Bool, Option
from rescheduler.cli.output import survival_json
from rescheduler.cli.plan_page import survival_lines
from rescheduler.errors import UsageError
from rescheduler.planning.forms import count, money, number, per_hour, shortened
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.room.purchases import Purchases, SpotPurchase
from rescheduler.planning.what_if.overview import tried, what_if_flags

#: The number of purchases that are shown.
SHOWN: Final = 5

_ROW: Final = "{:>3}  {:>5}  {:>14}  {:>14}  {}"

#: At most so many types are named whose size is not known.
_TYPES: Final = 5

buy_option: Final = Option(
    "--buy",
    Bool(),
    default=False,
    help="Show which spot nodes to buy: the five purchases that save the most, of what NodePools, MachineSets and "
    "groups create and of nodes like other spot nodes, or of the types and zones of --prices and nodes, with what each "
    "frees and the --what-if that tries it.",
)


def check_purchases(found: Purchases) -> None:
    """Raise UsageError if there was nothing to choose from because prices or sizes are not known."""
    if not found.offers and not found.limited:
        why = f"; {_unknown(found)}" if found.unknown else ""
        raise UsageError(f"--buy: expected a spot price of an instance type whose size is known{why}")


def _unknown(found: Purchases) -> str:
    return f"no node or MachineSet tells the size of {shortened(found.unknown, _TYPES, of=' types')}"


def purchase_lines(found: Purchases, prices: PriceList) -> Iterator[Line]:
    """Yield the lines of the page: a table of the purchases, each with the command that tries it."""
    lacking = count(len(found.lacking), "node")
    if not found.offers:
        yield Line("Nothing to buy: what creates spot nodes may create no more of a known price.")
    elif not found.lacking:
        yield Line("Nothing to buy: no node stays only because spot nodes lack room.")
    elif not found.best:
        yield Line(f"Nothing to buy: {lacking} only lack room, but no spot node pays off.")
    else:
        yield styled(f"What to buy for {lacking} that only lack room (to try it, add its --what-if)", HEADING)
        unit = month_of(prices.currency)
        yield Line(_ROW.format("#", "frees", f"saves {unit}", f"costs {unit}", "buy"))
    for index, purchase in enumerate(found.best, start=1):
        yield from _purchase(index, purchase, prices)
    if not found.complete:
        yield Line("The time limit ended the search: there may be better purchases.")
    if found.limited:
        yield Line(
            "Considered: what NodePools, MachineSets and groups create within their limits, and nodes like spot nodes "
            "that none of them has created."
        )
    if found.unknown:
        yield Line(f"Not considered: {_unknown(found)}; add-spot N type=TYPE,cpu=…,memory=… tries one.")


def _purchase(index: int, purchase: SpotPurchase, prices: PriceList) -> Iterator[Line]:
    """Yield what to buy, with what creates it: ``3 m5.2xlarge in eu-west-1a of spot, 0.1 per hour``."""
    amounts = money(purchase.net_per_month, ""), money(purchase.cost_per_month, "")
    start = _ROW.format(index, len(purchase.frees), *amounts, "")
    for offer, bought in purchase.parts:
        kind = offer.facts.instance_type or (f"like {offer.change.like}" if offer.change.like else "nodes")
        where = f" in {offer.facts.zone}" if offer.facts.zone else ""
        group = f" of {offer.change.group}" if offer.change.group else ""
        price = f", {per_hour(offer.price, prices.currency)}" if offer.price else ""
        yield Line(f"{start}{bought} {kind}{where}{group}{price}", hang=len(start))
        start = " " * len(start)
    yield Line(what_if_flags(purchase.changes), 3, command=True)
    if purchase.survival is not None:
        first, *worst = (line.text for line in survival_lines(purchase.survival))
        yield Line(f"Would not survive the loss of {worst[0].split('; they')[0]}." if worst else first, 3)


def purchases_json(found: Purchases, command: str) -> dict[str, Any]:
    """Return the object of the field ``buy``. *command* makes the plan without a purchase."""
    return {
        "purchases": [_purchase_json(each, command) for each in found.best],
        "lacking_room": list(found.lacking),
        "offers": found.offers,
        "size_not_known": list(found.unknown),
        "limited": found.limited,
        "complete": found.complete,
    }


def _purchase_json(purchase: SpotPurchase, command: str) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "count": bought,
                "instance_type": offer.facts.instance_type or None,
                "zone": offer.facts.zone or None,
                "group": offer.change.group or None,
                "price_per_hour": number(offer.price),
                "cpu": offer.facts.cpu / 1000,
                "memory": offer.facts.memory,
            }
            for offer, bought in purchase.parts
        ],
        "frees": list(purchase.frees),
        "cost_per_month": number(purchase.cost_per_month),
        "net_per_month": number(purchase.net_per_month),
        "what_if": list(purchase.changes),
        "try": tried(command, purchase.changes),
        "survival": purchase.survival and survival_json(purchase.survival),
    }
