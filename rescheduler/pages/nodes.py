"""The list of nodes with their verdicts, and the picture of the nodes with their free room."""

import functools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rescheduler.pages.element import Markup, element, joined
from rescheduler.pages.plan_tree import drain_notes, making_room
from rescheduler.pages.tree_html import bar
from rescheduler.planning.forms import age, and_more, count, cpu, memory, per_hour, percent, sentence
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.outcome import Blocker, Plan, Rejected, Severity, Verdict
from rescheduler.planning.severity import worst_of

# A picture of nodes: one box per node, filled from the bottom by the requests of its pods, CPU left, memory right.

#: Width of the picture, in the units of the boxes.
_WIDTH: Final = 640
#: Maximum number of nodes, and the width of their boxes; the last width is for any larger number.
_WIDTHS: Final = ((60, 36), (300, 18), (None, 7))
_GAP: Final = 3


@dataclass(frozen=True, slots=True)
class NodeBox:
    """One node of a picture."""

    name: str
    spot: bool
    cpu: int  #: requested CPU in percent of the allocatable CPU
    memory: int  #: requested memory in percent of the allocatable memory
    freed: bool = False  #: drawn as an empty box with a dashed border


def picture(boxes: Sequence[NodeBox], label: str) -> Markup:
    """Return the picture as SVG. *label* is its text for screen readers."""
    width = next(width for limit, width in _WIDTHS if limit is None or len(boxes) <= limit)
    height = width * 3 // 2
    columns = _WIDTH // (width + _GAP)
    rows = -(-len(boxes) // columns)
    corners = [
        (1 + index % columns * (width + _GAP), 1 + index // columns * (height + _GAP)) for index in range(len(boxes))
    ]
    placed = list(zip(boxes, corners, strict=True))
    outlines = [_outline(box, x, y, width, height) for box, (x, y) in placed]
    fills: dict[bool, list[str]] = {False: [], True: []}
    for box, (x, y) in placed:
        fills[box.spot].append(_bars(box, x, y + height, width, height))
    paths = [element("path", d="".join(bars), class_=f"bars {_kind(spot=spot)}") for spot, bars in fills.items()]
    size = f"0 0 {_WIDTH} {rows * (height + _GAP) + 1}"
    return element("svg", outlines, paths, viewBox=size, role="img", aria_label=label, class_="picture")


def _kind(*, spot: bool) -> str:
    return "spot" if spot else "demand"


def _outline(box: NodeBox, x: int, y: int, width: int, height: int) -> Markup:
    title = element("title", f"{box.name}: {'freed' if box.freed else f'CPU {box.cpu} %, memory {box.memory} %'}")
    kind = "freed" if box.freed else f"box {_kind(spot=box.spot)}"
    return element("path", title, d=f"M{x} {y}h{width}v{height}h-{width}z", class_=kind)


def _bars(box: NodeBox, x: int, bottom: int, width: int, height: int) -> str:
    if box.freed:
        return ""
    half = width / 2
    return _bar(x, bottom, half, height * box.cpu / 100) + _bar(x + half, bottom, half, height * box.memory / 100)


def _bar(x: float, bottom: float, width: float, height: float) -> str:
    return f"M{x:g} {bottom:g}v{-height:.1f}h{width:g}V{bottom:g}z" if height else ""


@functools.lru_cache(maxsize=4096)
def fill(share: int, label: str) -> Markup:
    """Return a bar that shows *share*, in percent, of the resource named by *label*."""
    return element("span", f"{label} ", bar(share), f" {share} %", class_="share")


# The list of nodes with their verdicts, and a search field. Each node is a line that expands to pods or reasons.

#: In a list of more nodes than this, browsers lay out only the visible ones.
_MANY: Final = 100


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node of the list."""

    verdict: Verdict
    facts: NodeFacts | None = None  #: None if they are not known
    note: str = ""  #: a further sentence, for example that the node cools down
    draining: bool = False  #: whether it is being drained now


def search_tools() -> Markup:
    """Return the search field and the buttons that open and close all nodes. Without JavaScript they are hidden."""
    return element(
        "div",
        element("label", "Search nodes, pods and reasons", for_="search"),
        element("input", type="search", id="search", autocomplete="off"),
        element("button", "Open all", type="button", id="open-all"),
        element("button", "Close all", type="button", id="close-all"),
        element("span", id="count", role="status", aria_live="polite"),
        id="tools",
        class_="tools",
        role="search",
        hidden=True,
    )


def node_list(
    entries: Iterable[NodeEntry], prices: PriceList, now: datetime | None, unjudged: Iterable[str] = ()
) -> Markup:
    """Return the nodes in the order of *entries*, then those without a verdict. Without *now*, ages are left out."""
    rows = [_node(entry, prices, now) for entry in entries]
    rows += [_unjudged(name) for name in unjudged]
    kind = "nodes many" if len(rows) > _MANY else "nodes"
    return element("div", rows, class_=kind) if rows else element("p", "No on-demand nodes.")


def _node(entry: NodeEntry, prices: PriceList, now: datetime | None) -> Markup:
    verdict = entry.verdict
    content = joined(
        (
            element("summary", _line(entry, prices, now)),
            element("p", entry.note, class_="notice") if entry.note else None,
            _drain(verdict) if isinstance(verdict, Plan) else _blockers(verdict),
        )
    )
    version = f"{zlib.crc32(content.encode()):x}"
    return element("details", content, id=f"node-{verdict.node}", class_="node", data_version=version)


def _unjudged(name: str) -> Markup:
    line = element("span", name, class_="name"), element("span", "not judged yet", class_="soft")
    why = "The last round found a node to drain before it reached this node."
    content = joined((element("summary", line), element("p", why)))
    return element("details", content, id=f"node-{name}", class_="node", data_version="unjudged")


def _line(entry: NodeEntry, prices: PriceList, now: datetime | None) -> Iterator[Markup]:
    yield element("span", entry.verdict.node, class_="name")
    yield element("span", "being drained", class_="yes") if entry.draining else _verdict(entry.verdict)
    if (facts := entry.facts) is None:
        return
    node_age = age(facts.created, now) if now else ""
    details = [facts.instance_type, facts.zone, f"age {node_age}" if node_age else ""]
    if (price := prices.per_hour(facts)) is not None:
        details.append(per_hour(price, prices.currency))
    yield element("span", ", ".join(filter(None, details)), class_="soft")
    yield fill(percent(facts.requested_cpu, facts.cpu), f"{cpu(facts.cpu)} vCPU")
    yield fill(percent(facts.requested_memory, facts.memory), memory(facts.memory))


def _verdict(verdict: Verdict) -> Markup:
    if isinstance(verdict, Rejected):
        further = len({blocker.reason for blocker in verdict.blockers}) - 1
        severity = worst_of(verdict.blockers)
        text = f"not drained: {verdict.reason}{and_more(further)} ({severity})"
        return element("span", text, class_=severity)
    pods = len(verdict.placements)
    ways = f"{verdict.with_surge}{verdict.with_leftovers}"
    text = f"can be drained{ways}: {count(pods, 'pod')} to move" if pods else "empty: no pods to move"
    return element("span", text, class_="yes")


def _drain(plan: Plan) -> Markup:
    notes = [element("p", sentence(note)) for note in drain_notes(plan)]
    before = [joined((element("p", sentence(making_room(each))), _moves(each))) for each in plan.first]
    return joined((notes, before, _moves(plan) if plan.placements else None))


def _moves(plan: Plan) -> Markup:
    rows = [
        element("tr", element("td", str(placement.pod)), element("td", placement.node), class_="pod")
        for placement in plan.placements
    ]
    head = element("tr", element("th", "Pod", scope="col"), element("th", "Moves to", scope="col"))
    return element("div", element("table", element("thead", head), element("tbody", rows)), class_="scroll")


def _blockers(rejected: Rejected) -> Markup:
    return element("ul", [_blocker(blocker) for blocker in rejected.blockers])


def _blocker(blocker: Blocker) -> Markup:
    mark = severity_mark(blocker.reason.severity)
    return element("li", element("code", blocker.reason), " ", mark, " ", blocker.text, class_="pod")


def severity_mark(severity: Severity) -> Markup:
    """Return the name of *severity* in its color."""
    return element("span", severity, class_=severity)
