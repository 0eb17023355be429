"""A plan as a page of text: all of it, at a glance with at most 40 lines, or with one line for each node."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.cli.blockers import NodeBlocks, NodeNames
from rescheduler.cli.console import rendered, wrapped
from rescheduler.cli.node_table import node_table
from rescheduler.cli.tree_lines import page_lines, part_lines
from rescheduler.pages.plan_tree import first, plan_parts
from rescheduler.pages.tree import BLANK, HEADING, Line, styled
from rescheduler.planning.controllers import controllers_in
from rescheduler.planning.what_if.overview import Overview

#: Maximum number of levers shown without ``-o wide``.
_LEVERS_SHOWN: Final = 10

#: Maximum number of lines at a glance, after long lines are wrapped.
LINES: Final = 40

#: How many rows of each part are shown at a glance, from the most to the least. The first with which the page has at
#: most :data:`LINES` lines is used.
_SHOWN: Final = [
    {"sums": types, "reasons": reasons, "notes": notes, "survival": 2 if notes else 0, "levers": levers}
    for types, reasons, notes, levers in (
        *((8, 8, 4, 8), (5, 6, 3, 6), (4, 5, 2, 5), (4, 4, 2, 4), (3, 4, 1, 4), (3, 3, 1, 3), (2, 3, 1, 2)),
        *((1, 2, 0, 1), (0, 1, 0, 0)),
    )
]


def page(overview: Overview, cluster: Snapshot, now: datetime, *, wide: bool = False) -> Iterator[Line]:
    """Yield the lines of the page for *overview*, which was made from *cluster* at the time *now*."""
    names = NodeNames.of(overview.nodes)
    shown = {} if wide else {"levers": _LEVERS_SHOWN}
    yield from page_lines(plan_parts(overview, names.shorten_in, wide=wide), shown, details=True)
    if overview.planning.verdicts:
        yield BLANK
        yield styled("Nodes in drain order", HEADING)
        if names.note:
            yield Line(names.note)
        yield from NodeBlocks(overview, names, controllers_in(cluster), now, wide).lines()


def glance(overview: Overview, width: int) -> Iterator[Line]:
    """Yield the lines of the page for *overview* at a glance: at most 40 for any cluster.

    Names that are extremely long are cut off at the end.
    """
    parts = plan_parts(overview, NodeNames.of(overview.nodes).shorten_in, wide=False)
    lines: list[Line] = []
    for shown in _SHOWN:
        lines = list(page_lines(parts, shown))
        if len(rendered(lines, width).splitlines()) <= LINES:
            yield from lines
            return
    height = 0
    for line in lines:
        height += len(wrapped(line, width))
        if height >= LINES:
            yield Line("(-o wide shows everything)")
            return
        yield line


def nodes_page(overview: Overview, now: datetime, width: int, sort_by: str | None) -> Iterator[Line]:
    """Yield the headline and one line for each node."""
    names = NodeNames.of(overview.nodes)
    yield from part_lines(first(overview, names.shorten_in))
    yield BLANK
    yield from node_table(overview, names, now, width, sort_by)
