"""The summary of a report: what a plan frees, by instance type, and the levers that would free more."""

from collections.abc import Iterator

from rescheduler.pages.element import Markup, element
from rescheduler.pages.tables import table
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.units import count, cpu, memory, money
from rescheduler.planning.what_if.overview import Lever, Overview, Totals


def headline(overview: Overview) -> str:
    """Return a summary of the plan in one sentence."""
    freed = overview.freed
    start = f"{freed.nodes:,} of {overview.on_demand.nodes:,} on-demand nodes can be freed"
    return f"{start}: {', '.join(_amounts(freed, overview.prices))}." if freed.nodes else f"{start}."


def _amounts(totals: Totals, prices: PriceList) -> Iterator[str]:
    yield f"{cpu(totals.cpu)} vCPU"
    yield memory(totals.memory)
    if totals.per_month is not None:
        have = "has" if totals.unpriced == 1 else "have"
        unpriced = f" ({totals.unpriced} of these nodes {have} no known price)" if totals.unpriced else ""
        yield f"{money(totals.per_month, prices.currency)} per month{unpriced}"


def by_type(overview: Overview) -> Markup:
    """Return the table of the freed nodes by instance type, with the totals of all on-demand nodes."""
    rows = [_row(kind or "unknown", totals, overview.prices) for kind, totals in overview.freed_by_type.items()]
    rows += [
        _row("All freed nodes", overview.freed, overview.prices),
        _row("All on-demand nodes", overview.on_demand, overview.prices),
    ]
    head = ("Instance type", "Nodes", "CPU", "Memory", "Price per month")
    columns = 4 if overview.prices.empty else 5
    cells = [row[:columns] for row in rows]
    return table("Freed nodes by instance type", head[:columns], cells, frozenset(range(1, columns)))


def _row(name: str, totals: Totals, prices: PriceList) -> tuple[str, ...]:
    price = "unknown" if totals.per_month is None else money(totals.per_month, prices.currency)
    return name, f"{totals.nodes:,}", f"{cpu(totals.cpu)} vCPU", memory(totals.memory), price


def levers(overview: Overview) -> Markup:
    """Return the changes that would free more nodes, the most useful first."""
    head = ("Change", "Nodes with this obstacle", "Frees alone", "Frees in combination")
    rows = [_lever(lever, overview) for lever in overview.levers]
    listed = table("Changes that would free more nodes", head, rows, frozenset({1}))
    if overview.levers_complete:
        return listed
    note = element("p", "The time limit ended the search for levers. There may be more.", class_="notice")
    return element("div", note, listed)


def _lever(lever: Lever, overview: Overview) -> tuple[Markup | str, ...]:
    change = element("span", element("b", lever.controller), f": {lever.obstacle} ", element("code", lever.reason))
    combined = f"with {'; '.join(lever.together_with)}: {_freed(lever.frees_together, overview)}"
    together = combined if lever.together_with else ""
    alone = _freed(lever.frees, overview) if lever.tried or lever.frees else "not tried"
    return change, str(len(lever.nodes)), alone, together


def _freed(nodes: tuple[str, ...], overview: Overview) -> str:
    if not nodes:
        return "none"
    price = overview.per_month(nodes)
    amount = f", {money(price, overview.prices.currency)} per month" if price is not None else ""
    return f"{count(len(nodes), 'node')}{amount} ({', '.join(nodes)})"
