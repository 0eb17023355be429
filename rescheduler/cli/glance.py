"""A plan at a glance: at most 40 lines for any cluster; and the same plan with one line for each node."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from rescheduler.cli.blockers import STYLES, NodeNames
from rescheduler.cli.console import BLANK, GOOD, HEADING, Line, rendered, styled
from rescheduler.planning.forms import age, count, money, per_month, percent
from rescheduler.planning.money.prices import HOURS_PER_MONTH, NodeFacts
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Rejected, Severity, Verdict
from rescheduler.planning.severity import rank, severity_of_verdict
from rescheduler.planning.what_if.overview import NOT_ALL_TRIED, Lever, Overview, tried, what_if_flags

#: Maximum number of lines of the page, after long lines are wrapped.
LINES: Final = 40


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
        if len(rendered(lines, width).splitlines()) <= LINES:
            yield from lines
            return
    height = 0
    for line in lines:
        height += len(line.wrapped(width))
        if height >= LINES:
            yield Line("(-o wide shows everything)")
            return
        yield line


def first_step(overview: Overview) -> Iterator[Line]:
    """Yield what to do first, and what comes of it; nothing if no change frees a node."""
    lever = next((lever for lever in overview.levers if lever.to_try and lever.gain[0]), None)
    if change := overview.first_spot:
        yield Line(f"First: {tried(overview.command, [change])}", command=True)
        return
    if lever is None:
        return
    nodes, worth = lever.gain
    month = worth.saved_per_month
    amount = "" if month is None else f", {money(month, overview.prices.currency)}/month"
    risk = "" if lever.risk is None else f"; {lever.risk.text}"
    yield Line(f"First: {tried(overview.command, lever.to_try)}", command=True)
    yield Line(f"frees {len(nodes)} more{amount}{risk}", 1)


def lever_table(overview: Overview, names: NodeNames, shown: int, *, details: bool = False) -> Iterator[Line]:
    """Yield the levers, ranked: what each is, what it frees and saves, its risk, and the command that tries it.

    With *details*, also the nodes that each concerns, and what it frees alone and together with others.
    """
    listed = overview.levers[:shown]
    if listed:
        yield BLANK
        yield styled("What would free more (to try one, add its --what-if to this command)", HEADING)
        risks = {lever.risk: lever.risk.text for lever in overview.levers if lever.risk is not None}
        columns = _Columns(overview, names, risks=bool(risks))
        yield Line(columns.row("#", "frees", columns.unit, "risk", "what"))
        for number, lever in enumerate(listed, start=1):
            yield from columns.lever(number, lever)
            if details:
                yield Line(names.shorten_in(lever_details(lever, overview, names)), 3)
        if risks:
            yield Line(f"Risk: {'; '.join(f'{risk} = {text}' for risk, text in risks.items())}.", 1)
        if len(listed) < len(overview.levers):
            yield Line(f"{len(overview.levers) - len(listed)} more with -o wide.", 1)
    if not overview.levers_complete:
        yield Line(NOT_ALL_TRIED, 1)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of the table of levers. Those of money and risk are left out if they would be empty."""

    overview: Overview
    names: NodeNames
    risks: bool

    @property
    def unit(self) -> str:
        return month_of(self.overview.prices.currency)

    def row(self, number: str, frees: str, month: str, risk: str, what: str) -> str:
        amount = "" if self.overview.prices.empty else f"{month:>{max(8, len(self.unit))}}  "
        return f"{number:>3}  {frees:>5}  {amount}{f'{risk:<4}  ' if self.risks else ''}{what}"

    def lever(self, number: int, lever: Lever) -> Iterator[Line]:
        nodes, worth = lever.gain
        month = "" if worth.saved_per_month is None else money(worth.saved_per_month, "")
        frees = str(len(nodes)) if nodes or lever.tried else "?"
        start = self.row(str(number), frees, month, str(lever.risk or ""), "")
        yield Line(start + self.names.shorten_in(lever.what), hang=len(start))
        if lever.to_try:
            yield Line(self.names.shorten_in(what_if_flags(lever.to_try)), 3, command=True)


def lever_details(lever: Lever, overview: Overview, names: NodeNames) -> str:
    """Return a sentence part about *lever*: the nodes it concerns, and what it frees, alone and with others."""
    keeps = f"{lever.reason} ({lever.severity}) keeps {count(len(lever.nodes), 'node')}"
    alone = f"alone it frees {'' if lever.tried else 'at least '}{_gain(lever.frees, lever.worth, overview, names)}"
    if not lever.tried and not lever.frees:
        alone = "not tried"
    if not lever.together_with:
        return f"{keeps}; {alone}"
    together = f"with {'; '.join(lever.together_with)} it frees"
    return f"{keeps}; {alone}; {together} {_gain(lever.frees_together, lever.worth_together, overview, names)}"


def _gain(nodes: tuple[str, ...], worth: Worth, overview: Overview, names: NodeNames) -> str:
    """Return the number of nodes with their type and what they save: ``1 (m5.2xlarge, 280 $/month)``."""
    if not nodes:
        return "none"
    price = worth.saved_per_month
    kinds = sorted({overview.nodes[name].instance_type for name in nodes} - {""})
    parts = [", ".join(kinds) if kinds else names.short(nodes[0]) if len(nodes) == 1 else ""]
    parts += [per_month(price, overview.prices.currency)] if price is not None else []
    text = ", ".join(filter(None, parts))
    return f"{len(nodes)} ({text})" if text else str(len(nodes))


def month_of(currency: str) -> str:
    """Return the head of a column with monthly amounts."""
    return f"{currency}/month" if currency else "a month"


# One line for each node.

#: By name of ``--sort-by``: the key, smallest first.
SORT_KEYS: Final[dict[str, Callable[[NodeFacts, float, Severity | None], Any]]] = {
    "name": lambda node, *_: node.name,
    "type": lambda node, *_: (node.instance_type, node.name),
    "zone": lambda node, *_: (node.zone, node.name),
    "cpu": lambda node, *_: (node.requested_cpu / max(node.cpu, 1), node.name),
    "memory": lambda node, *_: (node.requested_memory / max(node.memory, 1), node.name),
    "age": lambda node, *_: (node.created or "~", node.name),
    "price": lambda node, price, _: (-price, node.name),
    "severity": lambda node, _, severity: (rank(severity), node.name),
}


_HEAD: Final = ("node", "type", "zone", "age", "cpu", "memory", "use", "month", "severity", "verdict")
_SPACE: Final = "  "
#: The columns that are left out on a narrow page, the first one first.
_OPTIONAL: Final = ("use", "zone", "age", "memory", "severity", "type")
#: The characters of a bar that is full.
_BAR: Final = 10


def node_table(
    overview: Overview, names: NodeNames, now: datetime, width: int, sort_by: str | None = None
) -> Iterator[Line]:
    """Yield one line for each on-demand node, in drain order or sorted by one of :data:`SORT_KEYS`.

    Columns are left out if the lines would be longer than *width*.
    """
    verdicts = list(overview.planning.verdicts)
    if sort_by:
        key = SORT_KEYS[sort_by]
        verdicts.sort(
            key=lambda verdict: key(
                overview.nodes[verdict.node], _month(overview, verdict.node) or 0.0, severity_of_verdict(verdict)
            )
        )
    head = tuple(month_of(overview.prices.currency) if name == "month" else name for name in _HEAD)
    rows = [head, *(_node_row(verdict, overview, names, now) for verdict in verdicts)]
    columns = [column for column in zip(*rows, strict=True) if any(column[1:])]
    for name in _OPTIONAL:
        if sum(max(map(len, column)) + len(_SPACE) for column in columns) - len(_SPACE) > width:
            columns = [column for column in columns if column[0] != name]
    widths = [max(map(len, column)) for column in columns]
    if names.note:
        yield Line(names.note)
    severities = map(severity_of_verdict, verdicts)
    styles = [HEADING, *(GOOD if severity is None else STYLES[severity] for severity in severities)]
    for row, style in zip(zip(*columns, strict=True), styles, strict=True):
        text = _SPACE.join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        yield styled(text, style)


def _node_row(verdict: Verdict, overview: Overview, names: NodeNames, now: datetime) -> tuple[str, ...]:
    facts, month = overview.nodes[verdict.node], _month(overview, verdict.node)
    return (
        names.short(verdict.node),
        facts.instance_type,
        facts.zone,
        age(facts.created, now),
        f"{percent(facts.requested_cpu, facts.cpu)}%",
        f"{percent(facts.requested_memory, facts.memory)}%",
        _bar(max(percent(facts.requested_cpu, facts.cpu), percent(facts.requested_memory, facts.memory))),
        "" if month is None else f"{month:,.0f}",
        severity_of_verdict(verdict) or "",
        _verdict(verdict, overview),
    )


def _bar(share: int) -> str:
    """Return a bar that shows *share*, in percent."""
    full = min(round(share * _BAR / 100), _BAR)
    return "█" * full + "░" * (_BAR - full)


def _verdict(verdict: Verdict, overview: Overview) -> str:
    if not isinstance(verdict, Rejected):
        left = f", but {reason}" if (reason := overview.left.get(verdict.node)) else ""
        pods = f"{count(len(verdict.placements), 'pod')}{left}"
        return f"drainable: {pods}" if verdict.placements else "drainable: empty"
    reasons = list(dict.fromkeys(blocker.reason for blocker in verdict.blockers))
    return f"{reasons[0]}{f' +{len(reasons) - 1}' if reasons[1:] else ''}"


def _month(overview: Overview, node: str) -> float | None:
    price = overview.prices.per_hour(overview.nodes[node])
    return None if price is None else float(price * HOURS_PER_MONTH)
