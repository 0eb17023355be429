"""A plan at a glance: at most 40 lines for any cluster; and the same plan with one line for each node."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from rescheduler.cli.blockers import NodeNames
from rescheduler.cli.console import BLANK, GOOD, HEADING, Line, rendered, styled
from rescheduler.cli.go_flags import ARGUMENTS
from rescheduler.planning.forms import age, count, money, percent
from rescheduler.planning.money.prices import HOURS_PER_MONTH, NodeFacts
from rescheduler.planning.outcome import Rejected, Verdict
from rescheduler.planning.what_if.overview import Lever, Overview

#: Maximum number of lines of the page, after long lines are wrapped.
LINES: Final = 40

_DEFAULT: Final = "rescheduler plan"


@dataclass(frozen=True, slots=True)
class Shown:
    """How many rows of each part are shown."""

    types: int
    reasons: int
    notes: int
    levers: int


#: From the most to the least. The first with which the page has at most :data:`LINES` lines is used.
_AMOUNTS: Final = (
    Shown(8, 8, 4, 8),
    Shown(5, 6, 3, 6),
    Shown(4, 5, 2, 5),
    Shown(4, 4, 2, 4),
    Shown(3, 4, 1, 4),
    Shown(3, 3, 1, 3),
    Shown(2, 3, 1, 2),
    Shown(1, 2, 0, 1),
    Shown(0, 1, 0, 0),
)


def fitted(page: Callable[[Shown], Iterator[Line]], width: int) -> Iterator[Line]:
    """Yield the lines of *page* with as many rows as fit. Names that are extremely long are cut off at the end."""
    lines: list[Line] = []
    for shown in _AMOUNTS:
        lines = list(page(shown))
        if _height(lines, width) <= LINES:
            yield from lines
            return
    height = 0
    for line in lines:
        height += len(line.wrapped(width))
        if height >= LINES:
            yield Line("(-o wide shows everything)")
            return
        yield line


def _height(lines: Sequence[Line], width: int) -> int:
    return len(rendered(lines, width).splitlines())


def command_to_try(changes: Sequence[str], *, typed: bool) -> str:
    """Return the command that tries *changes*; with the flags that the user *typed*, except those of this command."""
    context = click.get_current_context(silent=True)
    program = context.command_path if context is not None else _DEFAULT
    given = context.meta.get(ARGUMENTS, ()) if context is not None and typed else ()
    return " ".join([program, *map(shlex.quote, _kept(given)), *(f"--what-if {_quoted(text)}" for text in changes)])


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else shlex.quote(text)


#: Flags that choose the output of a plan, and whether each takes a value.
_OF_THE_OUTPUT: Final = {
    "-o": True, "--output": True, "--lever": True, "--sort-by": True, "--patch": False, "--watch": False,
    "--nodes": False, "--strict": False,
}  # fmt: skip


def _kept(given: Sequence[str]) -> Iterator[str]:
    rest = iter(given)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in _OF_THE_OUTPUT or (name == "--nodes" and value):
            yield word
        elif _OF_THE_OUTPUT[name] and not equals:
            next(rest, None)


def first_step(overview: Overview, names: NodeNames) -> Line | None:
    """Return the line with what to do first, or None if no change frees a node."""
    lever = next((lever for lever in overview.levers if lever.to_try and lever.gain[0]), None)
    if lever is None:
        return None
    nodes, worth = lever.gain
    month = worth.net_per_month if worth.net_per_month is not None else worth.gross_per_month
    amount = "" if month is None else f", {money(month, overview.prices.currency)}/month"
    command = names.shorten_in(command_to_try(lever.to_try, typed=False))
    return Line(f"First: {command} (frees {len(nodes)} more{amount})")


def lever_table(overview: Overview, names: NodeNames, shown: int, width: int) -> Iterator[Line]:
    """Yield the levers, ranked: what each is, what it frees and saves, and the command that tries it.

    The part to change is left out where the line would be longer than *width*.
    """
    if not overview.levers or not shown:
        return
    yield BLANK
    yield styled("What would free more (try each with the flags of this command)", HEADING)
    priced = not overview.prices.empty
    listed = overview.levers[:shown]
    yield Line(f"  #  {'frees':>5}  " + (f"{'$/month':>8}  " if priced else "") + "what, and how to try it")
    for number, lever in enumerate(listed, start=1):
        yield from _lever_rows(number, lever, names, width, priced=priced)
    if len(listed) < len(overview.levers):
        yield Line(f"{len(overview.levers) - len(listed)} more with -o wide.", 1)
    if not overview.levers_complete:
        yield Line("Some levers were not tried before --levers-timeout.", 1)


def _lever_rows(number: int, lever: Lever, names: NodeNames, width: int, *, priced: bool) -> Iterator[Line]:
    nodes, worth = lever.gain
    month = worth.net_per_month if worth.net_per_month is not None else worth.gross_per_month
    amount = f"{'' if month is None else money(month, ''):>8}  " if priced else ""
    frees = str(len(nodes)) if nodes or lever.tried else "?"
    together = f" with {len(lever.together_with)} more" if lever.together_with and not lever.frees else ""
    start = f"{number:>3}  {frees:>5}  {amount}{names.shorten_in(lever.controller)}"
    text = f"{start}: {lever.obstacle}{together}"
    shorter = (text, f"{start}: {lever.reason}{together}", f"{start}{together}")
    yield Line(next((each for each in shorter if len(each) <= width), start))
    if lever.to_try:
        yield Line(names.shorten_in(command_to_try(lever.to_try, typed=False)), 3)


# One line for each node.

#: By name of ``--sort-by``: the key, smallest first.
SORT_KEYS: Final[dict[str, Callable[[NodeFacts, float], Any]]] = {
    "name": lambda node, _: node.name,
    "type": lambda node, _: (node.instance_type, node.name),
    "zone": lambda node, _: (node.zone, node.name),
    "cpu": lambda node, _: (node.requested_cpu / max(node.cpu, 1), node.name),
    "memory": lambda node, _: (node.requested_memory / max(node.memory, 1), node.name),
    "age": lambda node, _: (node.created or "~", node.name),
    "price": lambda node, price: (-price, node.name),
}


_HEAD: Final = ("node", "type", "zone", "age", "cpu", "memory", "$/month", "verdict")
_SPACE: Final = "  "
#: The columns that are left out on a narrow page, the first one first.
_OPTIONAL: Final = ("zone", "age", "memory", "type")


def node_table(
    overview: Overview, names: NodeNames, now: datetime, width: int, sort_by: str | None = None
) -> Iterator[Line]:
    """Yield one line for each on-demand node, in drain order or sorted by one of :data:`SORT_KEYS`.

    Columns are left out if the lines would be longer than *width*.
    """
    verdicts = list(overview.planning.verdicts)
    if sort_by:
        key = SORT_KEYS[sort_by]
        verdicts.sort(key=lambda verdict: key(overview.nodes[verdict.node], _month(overview, verdict.node) or 0.0))
    rows = [_HEAD, *(_node_row(verdict, overview, names, now) for verdict in verdicts)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    for name in _OPTIONAL:
        if sum(max(map(len, column)) + len(_SPACE) for column in columns) - len(_SPACE) > width:
            columns = [column for column in columns if column[0] != name]
    widths = [max(map(len, column)) for column in columns]
    if names.note:
        yield Line(names.note)
    for number, row in enumerate(zip(*columns, strict=True)):
        text = _SPACE.join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        yield styled(text, HEADING if number == 0 else GOOD if row[-1].startswith("drain") else {})


def _node_row(verdict: Verdict, overview: Overview, names: NodeNames, now: datetime) -> tuple[str, ...]:
    facts, month = overview.nodes[verdict.node], _month(overview, verdict.node)
    return (
        names.short(verdict.node),
        facts.instance_type,
        facts.zone,
        age(facts.created, now),
        f"{percent(facts.requested_cpu, facts.cpu)}%",
        f"{percent(facts.requested_memory, facts.memory)}%",
        "" if month is None else f"{month:,.0f}",
        _verdict(verdict),
    )


def _verdict(verdict: Verdict) -> str:
    if not isinstance(verdict, Rejected):
        return f"drainable: {count(len(verdict.placements), 'pod')}" if verdict.placements else "drainable: empty"
    reasons = list(dict.fromkeys(blocker.reason for blocker in verdict.blockers))
    return f"{reasons[0]}{f' +{len(reasons) - 1}' if reasons[1:] else ''}"


def _month(overview: Overview, node: str) -> float | None:
    price = overview.prices.per_hour(overview.nodes[node])
    return None if price is None else float(price * HOURS_PER_MONTH)
