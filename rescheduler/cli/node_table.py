"""A plan with one line for each node."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from rescheduler.cli.blockers import NodeNames
from rescheduler.pages.tree import GOOD, HEADING, Line, styled
from rescheduler.planning.forms import age, count, month_of, percent
from rescheduler.planning.money.prices import HOURS_PER_MONTH, NodeFacts
from rescheduler.planning.outcome import Rejected, Severity, Verdict
from rescheduler.planning.severity import rank, severity_of_verdict
from rescheduler.planning.what_if.overview import Overview

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
    styles = [HEADING, *(GOOD if severity is None else severity for severity in severities)]
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
