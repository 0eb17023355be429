"""The plans before and after ``--what-if``, side by side."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Final

from rescheduler.cli.console import BLANK, HEADING, Line, styled
from rescheduler.planning.outcome import Planning
from rescheduler.planning.units import count
from rescheduler.planning.what_if.comparison import LostSpot, Rehearsal
from rescheduler.planning.what_if.lost_spot import UnplacedPod
from rescheduler.planning.what_if.overview import Overview, Totals

_GIB: Final = 1 << 30

#: Maximum number of nodes, or of controllers, that are listed.
_LISTED: Final = 20

#: The widths of the title column and of the amount columns.
_TITLE: Final = 26
_AMOUNT: Final = 16


def comparison(
    changes: Sequence[str], before: Overview, after: Overview, lost: LostSpot | None, rehearsal: Rehearsal | None = None
) -> Iterator[Line]:
    """Yield the lines of the page that compares the plans *before* and *after* the *changes*."""
    yield styled(f"What if: {'; '.join(changes)}", HEADING)
    yield BLANK
    yield styled(_row("", ("before", "after", "difference")), HEADING)
    for title, old, new, places in _rows(before, after):
        difference = "" if old is None or new is None or old == new else f"{new - old:+,.{places}f}"
        amounts = ("" if amount is None else f"{amount:,.{places}f}" for amount in (old, new))
        yield Line(_row(title, (*amounts, difference)))
    for title, names in _differences(before.planning, after.planning):
        yield from _listed(title, names)
    if rehearsal is not None:
        yield from _rehearsal_lines(rehearsal)
    if lost is not None:
        yield from _lost_spot_lines(lost)


def _row(title: str, amounts: Iterable[str]) -> str:
    return (f"{title:{_TITLE}}" + "".join(f"{amount:>{_AMOUNT}}" for amount in amounts)).rstrip()


def _rows(before: Overview, after: Overview) -> Iterator[tuple[str, Decimal | None, Decimal | None, int]]:
    """Yield rows: a title, the amounts before and after, and the number of decimal places to show."""

    def row(title: str, old: float, new: float, places: int = 0) -> tuple[str, Decimal, Decimal, int]:
        return title, Decimal(old), Decimal(new), places

    old, new = before.planning, after.planning
    yield row("on-demand nodes", old.on_demand_nodes, new.on_demand_nodes)
    yield row("spot nodes", old.spot_nodes, new.spot_nodes)
    yield row("nodes that can be drained", len(old.plans), len(new.plans))
    yield row("pods that move", _moves(old), _moves(new))
    yield row("vCPU freed", before.freed.cpu / 1000, after.freed.cpu / 1000, 1)
    yield row("memory freed (GiB)", before.freed.memory / _GIB, after.freed.memory / _GIB, 1)
    if not before.prices.empty:
        currency = f" ({before.prices.currency})" if before.prices.currency else ""
        yield f"freed per month{currency}", _price(before.freed), _price(after.freed), 2


def _price(freed: Totals) -> Decimal | None:
    """Return the monthly price of the freed nodes; 0 if there are none, even if no price is known."""
    return freed.per_month if freed.nodes else Decimal(0)


def _moves(planning: Planning) -> int:
    return sum(len(plan.placements) for plan in planning.plans)


def _differences(before: Planning, after: Planning) -> list[tuple[str, list[str]]]:
    old, new = ({plan.node: None for plan in planning.plans} for planning in (before, after))
    gained = [node for node in new if node not in old]
    fewer = [node for node in old if node not in new]
    return [("Can also be drained:", gained), ("Can no longer be drained:", fewer)]


def _listed(title: str, lines: Sequence[str]) -> Iterator[Line]:
    if not lines:
        return
    yield BLANK
    yield Line(title)
    yield from (Line(line, 1) for line in lines[:_LISTED])
    if len(lines) > _LISTED:
        yield Line(f"and {len(lines) - _LISTED} more", 1)


def _rehearsal_lines(rehearsal: Rehearsal) -> Iterator[Line]:
    """Yield what the other scheduler changes, and why. A node is listed with its first blocker."""
    if not rehearsal.nodes and not rehearsal.pods:
        yield BLANK
        yield Line("The verdicts on all pods and nodes are the same by these rules.")
    stay = [f"{node.node}: {node.why[0]}" for node in rehearsal.nodes if not node.drains]
    drain = [f"{node.node}: today {node.why[0]}" for node in rehearsal.nodes if node.drains]
    yield from _listed(f"Nodes that stay by these rules: {len(stay)}", stay)
    yield from _listed(f"Nodes that drain by these rules: {len(drain)}", drain)
    lost = [_of_pod(pod.pod, pod.rejected, "fewer") for pod in rehearsal.pods if pod.rejected]
    gained = [_of_pod(pod.pod, pod.accepted, "more") for pod in rehearsal.pods if pod.accepted]
    yield from _listed(f"Pods that fewer spot nodes accept: {len(lost)}", lost)
    yield from _listed(f"Pods that more spot nodes accept: {len(gained)}", gained)


def _of_pod(pod: str, nodes: Mapping[str, str], how: str) -> str:
    node, why = next(iter(nodes.items()))
    return f"{pod}: {count(len(nodes), f'{how} spot node')}, such as {node} ({why})"


def _lost_spot_lines(lost: LostSpot) -> Iterator[Line]:
    for when, unplaced in (("now", lost.unplaced), ("after the plan's drains", lost.unplaced_after_drains)):
        start = f"With {count(len(lost.nodes), 'spot node')} lost {when}"
        if unplaced:
            yield from _listed(f"{start}, pods without a place: {len(unplaced)}", _grouped(unplaced))
        else:
            yield BLANK
            yield Line(f"{start}, all their pods fit elsewhere.")


def _grouped(unplaced: Iterable[UnplacedPod]) -> list[str]:
    """Return a line for each priority and controller. *unplaced* is sorted by both."""
    lines = []
    for (priority, controller), group in groupby(unplaced, key=lambda pod: (pod.priority, pod.controller)):
        pods = list(group)
        lines.append(f"priority {priority}, {controller}: {count(len(pods), 'pod')}: {pods[0].why}")
    return lines
