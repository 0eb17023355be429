"""The option ``--buy`` of ``rescheduler plan``: its output. Separate from ``plan``, as ``--what-if`` is."""

from collections.abc import Iterator
from typing import Any, Final

from rescheduler.cli.go_flags import Bool, Option
from rescheduler.errors import UsageError
from rescheduler.pages.plan_facts import survival_facts
from rescheduler.pages.plan_tree import survival_text
from rescheduler.pages.tree import ChoiceRow, ChoiceTable, Content, Line, PagePart
from rescheduler.planning.forms import count, money, month_of, number, per_hour, shortened
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.room.additions import SpotOffer
from rescheduler.planning.room.purchases import Purchases, SpotPurchase
from rescheduler.planning.what_if.overview import tried, what_if_flags

#: The number of purchases that are shown.
SHOWN: Final = 5

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


def purchase_part(found: Purchases, prices: PriceList) -> PagePart:
    """Return a table of the purchases, each with the command that tries it, and what was not considered."""
    return PagePart("buy", "What to buy", tuple(_content(found, prices)))


def _content(found: Purchases, prices: PriceList) -> Iterator[Content]:
    lacking, unit = count(len(found.lacking), "node"), month_of(prices.currency)
    if not found.offers:
        yield Line("Nothing to buy: what creates spot nodes may create no more of a known price.")
    elif not found.lacking:
        yield Line("Nothing to buy: no node stays only because spot nodes lack room.")
    elif not found.best:
        yield Line(f"Nothing to buy: {lacking} only lack room, but no spot node pays off.")
    else:
        heading = f"What to buy for {lacking} that only lack room (to try it, add its --what-if)"
        columns = {"#": ">3", "frees": ">5", f"saves {unit}": ">14", f"costs {unit}": ">14", "buy": ""}
        purchases = enumerate(found.best, start=1)
        yield ChoiceTable(heading, columns, tuple(_choice(*each, prices.currency) for each in purchases))
    if not found.complete:
        yield Line("The time limit ended the search: there may be better purchases.")
    if found.limited:
        yield Line(
            "Considered: what NodePools, MachineSets and groups create within their limits, and nodes like spot nodes "
            "that none of them has created."
        )
    if found.unknown:
        yield Line(f"Not considered: {_unknown(found)}; add-spot N type=TYPE,cpu=…,memory=… tries one.")


def _choice(number: int, purchase: SpotPurchase, currency: str) -> ChoiceRow:
    unit, frees = month_of(currency), str(len(purchase.frees))
    saves, costs = money(purchase.net_per_month, ""), money(purchase.cost_per_month, "")
    cells = {"#": str(number), "frees": frees, f"saves {unit}": saves, f"costs {unit}": costs}
    what = tuple(_bought(offer, bought, currency) for offer, bought in purchase.parts)
    return ChoiceRow(cells, what, what_if_flags(purchase.changes), survival_text(purchase.survival))


def _bought(offer: SpotOffer, bought: int, currency: str) -> str:
    """Return what to buy, with what creates it: ``3 m5.2xlarge in eu-west-1a of spot, 0.1 per hour``."""
    kind = offer.facts.instance_type or (f"like {offer.change.like}" if offer.change.like else "nodes")
    where = f" in {offer.facts.zone}" if offer.facts.zone else ""
    group = f" of {offer.change.group}" if offer.change.group else ""
    price = "" if offer.price is None else f", {per_hour(offer.price, currency)}"
    return f"{bought} {kind}{where}{group}{price}"


def purchase_facts(found: Purchases, command: str) -> dict[str, Any]:
    """Return the facts of the field ``buy``. *command* makes the plan without a purchase."""
    return {
        "purchases": [_purchase(each, command) for each in found.best],
        "lacking_room": list(found.lacking),
        "offers": found.offers,
        "size_not_known": list(found.unknown),
        "limited": found.limited,
        "complete": found.complete,
    }


def _purchase(purchase: SpotPurchase, command: str) -> dict[str, Any]:
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
        "survival": purchase.survival and survival_facts(purchase.survival),
    }
