"""The report: a plan as one HTML file that needs no network."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from rescheduler.pages import sums
from rescheduler.pages.document import document
from rescheduler.pages.element import Markup, element
from rescheduler.pages.nodes import NodeEntry, node_list, search_tools
from rescheduler.pages.picture import NodeBox, picture
from rescheduler.planning.overview import NO_PRICE, Overview
from rescheduler.planning.prices import NodeFacts
from rescheduler.planning.units import count, percent


def as_html(overview: Overview, at: datetime | None = None) -> str:
    """Return the report. All values from the cluster are escaped. *at* is the time of the plan, in UTC."""
    time = f"{at:%Y-%m-%d %H:%M UTC}" if at else ""
    header = element(
        "header",
        element("a", "Skip to the nodes", href="#nodes", class_="skip"),
        element("h1", "On-demand nodes that spot nodes can replace"),
        element("p", sums.headline(overview), class_="first"),
        element("p", f"Plan of {time}. Nothing was changed." if time else "Nothing was changed.", class_="soft"),
    )
    entries = [NodeEntry(verdict, overview.nodes.get(verdict.node)) for verdict in overview.planning.verdicts]
    main = element(
        "main",
        _section("sums", "Sums", sums.by_type(overview), _notes(overview)),
        _section("levers", "Levers", sums.levers(overview)) if overview.levers else None,
        _section("picture", "Nodes before and after", before_and_after(overview)),
        _section("nodes", "On-demand nodes", search_tools(), node_list(entries, overview.prices, at)),
    )
    footer = element("footer", element("p", "Made by spot-rescheduler."))
    return document("spot-rescheduler report", element("div", header, main, footer))


def _section(name: str, heading: str, *content: Markup) -> Markup:
    return element(
        "section", element("h2", heading, id=f"{name}-heading"), content, id=name, aria_labelledby=f"{name}-heading"
    )


def _notes(overview: Overview) -> Markup:
    return element("div", [element("p", text, class_="notice") for text in _texts(overview)])


def _texts(overview: Overview) -> Iterator[str]:
    planning = overview.planning
    if not planning.spot_nodes:
        yield "The cluster has no spot node that could take pods."
    if planning.timed_out:
        yield f"The search timed out. At most {count(planning.upper_bound or 0, 'node')} can be freed."
    if overview.unpriced:
        yield NO_PRICE
    yield from overview.assumptions


def before_and_after(overview: Overview) -> Markup:
    """Return the pictures of all on-demand nodes and of the spot nodes that the plan uses, before and after."""
    facts = list(overview.nodes.values())
    freed = frozenset(plan.node for plan in overview.planning.plans)
    before = [_box(node) for node in facts]
    after = [_box(node, overview, freed=node.name in freed) for node in facts]
    legend = element(
        "p",
        "Each box is a node, filled by the requests of its pods: CPU on the left, memory on the right. ",
        element("b", "On-demand", class_="demand"),
        " nodes come first, then the ",
        element("b", "spot", class_="spot"),
        " nodes that get pods. A dashed box is a freed node.",
        class_="legend soft",
    )
    pictures = chain.from_iterable(_pictures(name, boxes) for name, boxes in (("Before", before), ("After", after)))
    return element("div", legend, element("div", pictures, class_="pictures"))


def _pictures(heading: str, boxes: Sequence[NodeBox]) -> Iterable[Markup]:
    spot = sum(1 for box in boxes if box.spot)
    freed = sum(1 for box in boxes if box.freed)
    rest = count(len(boxes) - spot - freed, "on-demand node")
    label = f"{heading}: {rest}, {count(spot, 'spot node')}{f', {freed} freed' if freed else ''}"
    yield element("figure", element("figcaption", element("h3", label)), picture(boxes, label))


def _box(node: NodeFacts, overview: Overview | None = None, *, freed: bool = False) -> NodeBox:
    added = overview.added.get(node.name) if overview else None
    cpu = node.requested_cpu + (added.cpu if added else 0)
    memory = node.requested_memory + (added.memory if added else 0)
    return NodeBox(node.name, node.spot, percent(cpu, node.cpu), percent(memory, node.memory), freed)
