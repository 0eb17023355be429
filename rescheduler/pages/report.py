"""The report: a plan as one self-contained HTML file."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final

from rescheduler.pages.element import Markup, document, element, joined, table
from rescheduler.pages.nodes import NodeBox, NodeEntry, node_list, picture, search_tools, severity_mark
from rescheduler.planning.forms import count, cpu, memory, money, per_month, percent, plain, sentence
from rescheduler.planning.money.move_costs import WorthCurve, WorthPoint, min_worth_flag
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.money.worth import Worth, saves
from rescheduler.planning.outcome import Planning
from rescheduler.planning.severity import reasons_of
from rescheduler.planning.what_if.overview import (
    NO_PRICE,
    NOT_ALL_TRIED,
    Lever,
    Overview,
    Point,
    Totals,
    Tradeoff,
    tried,
    what_if_flags,
)

# The curve of what drains save against the losses of spot nodes that are survived after them, as SVG and table.

_WIDTH: Final = 560
_HEIGHT: Final = 220
_LEFT: Final = 44
_RIGHT: Final = 12
_TOP: Final = 12
_BOTTOM: Final = 36
_RADIUS: Final = 4

#: Room is drawn up to this share of what the pods on spot nodes request.
_MOST_ROOM: Final = 2.0


def tradeoff_picture(tradeoff: Tradeoff, prices: PriceList) -> Markup:
    """Return the picture and the table of *tradeoff*."""
    what = f"{tradeoff.survive}s"
    legend = element(
        "p",
        "Drains in their order: ",
        element("b", f"{what} whose loss is survived", class_="demand"),
        ", and ",
        element("b", "room for lost pods", class_="spot"),
        ", as a share of what the pods on spot nodes request. The ring is the plan.",
        class_="legend soft",
    )
    rows = [_point_row(point, tradeoff.losses, prices) for point in tradeoff.points]
    head = ("Drained nodes", "Saved", f"{what.capitalize()} survived", "Pods without a place", "Room")
    listed = table("What further drains save, and what is survived after them", head, rows, frozenset(range(5)))
    return element("figure", legend, _curve(tradeoff, prices), _folded(listed))


def _folded(listed: Markup) -> Markup:
    """Return the table of a picture, which the reader unfolds: on a telephone, it is longer than the picture."""
    return element("details", element("summary", "As a table"), listed)


def _point_row(point: Point, losses: int, prices: PriceList) -> tuple[str, ...]:
    saved = "unknown" if point.per_month is None else per_month(point.per_month, prices.currency)
    room = "no pods" if point.room is None else f"{point.room:.0%}"
    return f"{point.nodes:,}", saved, f"{point.survived} of {losses}", f"{point.homeless:,}", room


def _curve(tradeoff: Tradeoff, prices: PriceList) -> Markup:
    points, losses = tradeoff.points, tradeoff.losses
    known = all(point.per_month is not None for point in points) and bool(points[-1].per_month)
    most = float(points[-1].per_month or 0) if known else points[-1].nodes

    def across(point: Point) -> float:
        amount = float(point.per_month or 0) if known else point.nodes
        return _LEFT + min(amount / most, 1) * (_WIDTH - _LEFT - _RIGHT)

    rooms = [_MOST_ROOM if point.room is None else min(point.room, _MOST_ROOM) for point in points]
    top = max(1.0, *rooms)

    def survived(point: Point) -> float:
        return point.survived / losses / top

    def room(point: Point) -> float:
        return rooms[points.index(point)] / top

    saved = points[-1].per_month
    unit = per_month(saved, prices.currency) if known and saved is not None else count(points[-1].nodes, "node")
    label = (
        f"After {count(points[0].nodes, 'drain')}, the loss of {points[0].survived} of {losses} is survived; after "
        f"{count(points[-1].nodes, 'drain')} of {points[-1].survived}."
    )
    return element(
        "svg",
        _axes(unit, "saves" if known else "drains", top),
        _line(points, across, room, "spot"),
        _line(points, across, survived, "demand"),
        [_dot(point, across(point), survived(point), losses, prices) for point in points],
        element(
            "circle", cx=f"{across(tradeoff.plan):.1f}", cy=f"{_down(survived(tradeoff.plan)):.1f}", r=9, class_="ring"
        ),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=label,
        class_="curve",
    )


def _down(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _axes(unit: str, verb: str, top: float) -> Markup:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    return joined(
        (
            element("path", d=f"M{_LEFT} {_TOP}V{bottom}H{right}", class_="axis"),
            *(
                element("text", f"{share * top:.0%}", x=_LEFT - 6, y=f"{_down(share) + 4:.0f}", text_anchor="end")
                for share in (0.0, 0.5, 1.0)
            ),
            element("text", "0", x=_LEFT, y=bottom + 16),
            element("text", f"{verb} {unit}", x=right, y=bottom + 16, text_anchor="end"),
        )
    )


def _line(
    points: Sequence[Point], across: Callable[[Point], float], share: Callable[[Point], float], kind: str
) -> Markup:
    corners = " ".join(f"{across(point):.1f},{_down(share(point)):.1f}" for point in points)
    return element("polyline", points=corners, class_=f"line {kind}")


def _dot(point: Point, x: float, share: float, losses: int, prices: PriceList) -> Markup:
    saved = "" if point.per_month is None else f", {per_month(point.per_month, prices.currency)}"
    room = "" if point.room is None else f", room for {point.room:.0%}"
    title = f"{count(point.nodes, 'drained node')}{saved}: {point.survived} of {losses} survived{room}"
    return element(
        "circle", element("title", title), cx=f"{x:.1f}", cy=f"{_down(share):.1f}", r=_RADIUS, class_="dot demand"
    )


# What is saved with fewer moves: the plans with rising values of ``--min-worth``.


def worth_picture(curve: WorthCurve, prices: PriceList) -> Markup:
    """Return the picture and the table of *curve*."""
    points, whole = curve.points, curve.points[0]
    legend = element(
        "p",
        "Plans with rising values of ",
        element("code", "--min-worth"),
        ", which leaves nodes that save less per month for a moved pod: ",
        element("b", "what they save", class_="demand"),
        " and the pods that they move.",
        f" The ring: {curve.text}." if curve.text else "",
        class_="legend soft",
    )
    places = [
        (_LEFT + point.pods / whole.pods * (_WIDTH - _LEFT - _RIGHT), _down(float(point.per_month / whole.per_month)))
        for point in points
    ]
    ring = [place for place, point in zip(places, points, strict=True) if point == curve.recommended]
    drawn = element(
        "svg",
        _axes(count(whole.pods, "pod"), "moves", 1.0),
        element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places), class_="line demand"),
        [
            element(
                "circle", element("title", _said(point, prices)), cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_="dot demand"
            )
            for point, (x, y) in zip(points, places, strict=True)
        ],
        [element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=9, class_="ring") for x, y in ring],
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"From {_said(points[0], prices)} to {_said(points[-1], prices)}.",
        class_="curve",
    )
    head = ("--min-worth", "Freed nodes", "Moved pods", "Cost in moves", "Saved")
    rows = [
        (plain(each.min_worth), f"{each.nodes:,}", f"{each.pods:,}", f"{each.cost:,.1f}", _saved(each, prices))
        for each in points
    ]
    listed = table("What fewer moves save", head, rows, frozenset(range(5)))
    return element("figure", legend, drawn, _folded(listed))


def _said(point: WorthPoint, prices: PriceList) -> str:
    return f"{count(point.pods, 'moved pod')} for {_saved(point, prices)}, with {min_worth_flag(point.min_worth)}"


def _saved(point: WorthPoint, prices: PriceList) -> str:
    return per_month(point.per_month, prices.currency)


# The summary of a report: what a plan frees, by instance type, and the levers that would free more.


def headline(overview: Overview) -> str:
    """Return a summary of the plan in one sentence."""
    freed = overview.freed
    start = f"{freed.nodes:,} of {count(overview.on_demand.nodes, 'on-demand node')} can be freed"
    return f"{start}: {', '.join(_amounts(freed, overview.prices))}." if freed.nodes else f"{start}."


def _amounts(totals: Totals, prices: PriceList) -> Iterator[str]:
    yield f"{cpu(totals.cpu)} vCPU"
    yield memory(totals.memory)
    if saved := saves(totals.worth, prices.currency):
        have = "has" if totals.unpriced == 1 else "have"
        unpriced = f" ({totals.unpriced} of these nodes {have} no known price)" if totals.unpriced else ""
        yield f"{saved}{unpriced}"


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


def levers(overview: Overview) -> Markup | None:
    """Return the changes that would free more nodes in their order, each with its bar, its risk and its command.

    Each is shown by itself, with the amounts of ``plan``. Bars show what is saved if that is known of all, otherwise
    the number of freed nodes. The first bar is the plan.
    """
    if change := overview.first_spot:
        return element("p", "There is no spot node. To try some: ", element("code", tried(overview.command, [change])))
    gains = [lever.gain for lever in overview.levers]
    priced = all(worth.saved is not None for nodes, worth in gains if nodes)
    priced = priced and overview.freed.worth.saved is not None

    def length(nodes: int, worth: Worth) -> float:
        return float(worth.saved or 0) if priced else nodes

    plan = length(overview.freed.nodes, overview.freed.worth)
    lengths = [length(len(nodes), worth) for nodes, worth in gains]
    total = max([plan, *lengths], default=0) or 1.0
    rows = [
        element("li", _lever(lever, overview), _bar(amount, total), _trial(lever))
        for lever, amount in zip(overview.levers, lengths, strict=True)
    ]
    note = None if overview.levers_complete else element("p", NOT_ALL_TRIED, class_="notice")
    buying = _what_to_buy(overview)
    if not rows:
        return note if buying is None else element("div", note, buying)
    what = "what is saved" if priced else "the number of freed nodes"
    last = ", and then changes that free nodes only together" if any(map(_is_joint, overview.levers)) else ""
    words = f"Each change by itself, by {what}{last}. To try one, add its --what-if to "
    legend = element("p", words, element("code", overview.command), class_="legend soft")
    this = element("b", "This plan"), f": {_gain(overview.freed.nodes, overview.freed.worth, overview)}"
    drawn = element("div", element("p", this), _bar(plan, total), class_="step")
    return element("div", note, buying, element("figure", legend, drawn, element("ol", rows, class_="steps")))


def _what_to_buy(overview: Overview) -> Markup | None:
    if not (lacking := overview.lacking_room):
        return None
    what = f"What to buy for {count(lacking, 'node')} without room on spot nodes: "
    return element("p", what, element("code", f"{overview.command} --buy"))


def _is_joint(lever: Lever) -> bool:
    return bool(lever.frees_together) and not lever.frees


def _lever(lever: Lever, overview: Overview) -> Markup:
    nodes, worth = lever.gain
    frees = f"frees {_gain(len(nodes), worth, overview)}" if nodes else "frees no node" if lever.tried else "not tried"
    keeps = f": {frees}; keeps {count(len(lever.nodes), 'node')}. "
    risk = element("span", f"Risk: {lever.risk.text}.", class_="no") if lever.risk is not None else None
    what = element("b", lever.controller), f": {lever.part} "
    return element("p", what, element("code", lever.reason), " ", severity_mark(lever.severity), keeps, risk)


def _trial(lever: Lever) -> Markup | None:
    return element("code", what_if_flags(lever.to_try)) if lever.to_try else None


def _gain(nodes: int, worth: Worth, overview: Overview) -> str:
    month = worth.saved_per_month
    amount = "" if month is None else f", {per_month(month, overview.prices.currency)}"
    return f"{count(nodes, 'node')}{amount}"


def _bar(amount: float, total: float) -> Markup:
    """Return a bar of the length *amount*, beside the longest, which is *total*."""
    whole = element("rect", width=100, height=10, class_="whole")
    part = element("rect", width=f"{100 * amount / total:.1f}", height=10, class_="part")
    return element(
        "svg", whole, part, viewBox="0 0 100 10", class_="fill", aria_hidden="true", preserveAspectRatio="none"
    )


def reasons(planning: Planning) -> Markup:
    """Return the table of the nodes that stay, by reason."""
    rows = [(reason, severity_mark(severity), f"{number:,}") for reason, severity, number in reasons_of(planning)]
    head = ("Reason", "Severity", "Nodes")
    return table("Nodes that stay (a node can have several reasons)", head, rows, frozenset({2}))


def as_html(overview: Overview, at: datetime | None = None) -> str:
    """Return the report. All values from the cluster are escaped. *at* is the time of the plan, in UTC."""
    time = f"{at:%Y-%m-%d %H:%M UTC}" if at else ""
    header = element(
        "header",
        element("a", "Skip to the nodes", href="#nodes", class_="skip"),
        element("h1", "On-demand nodes that spot nodes can replace"),
        element("p", overview.incomplete, class_="notice") if overview.incomplete else None,
        element("p", sentence(overview.without_claims), class_="notice") if overview.without_claims else None,
        element("p", headline(overview), class_="first"),
        element("p", f"Plan of {time}. Nothing was changed." if time else "Nothing was changed.", class_="soft"),
    )
    entries = [
        NodeEntry(
            verdict,
            overview.nodes.get(verdict.node),
            f"The daemon would not drain it: {reason}." if (reason := overview.left.get(verdict.node)) else "",
        )
        for verdict in overview.planning.verdicts
    ]
    found = levers(overview)
    main = element(
        "main",
        _section("sums", "Summary", by_type(overview), _notes(overview)),
        _section("reasons", "What stands in the way", reasons(overview.planning))
        if overview.planning.rejected
        else None,
        _section("levers", "Levers", found) if found is not None else None,
        _survival(overview),
        _section("worth", "What the moves are worth", worth_picture(overview.curve, overview.prices))
        if overview.curve is not None
        else None,
        _section("picture", "Nodes before and after", before_and_after(overview)),
        _section("nodes", "On-demand nodes", search_tools(), node_list(entries, overview.prices, at)),
    )
    footer = element("footer", element("p", "Generated by spot-rescheduler."))
    return document("spot-rescheduler report", element("div", header, main, footer))


def _section(name: str, heading: str, *content: Markup | None) -> Markup:
    return element(
        "section",
        element("h2", heading, id=f"{name}-heading"),
        filter(None, content),
        id=name,
        aria_labelledby=f"{name}-heading",
    )


def _survival(overview: Overview) -> Markup | None:
    certificate = overview.survival
    if certificate is None or not certificate.pools:
        return None
    what, number = str(certificate.survive), len(certificate.pools)
    worst = certificate.worst
    text = f"After the plan, the loss of any one {what} of spot nodes is survived ({count(number, what)})."
    if worst:
        first = f"{worst[0].pool}, {count(worst[0].homeless_pods, 'pod')}"
        text = (
            f"After the plan, the loss of {len(worst)} of {count(number, what)} of spot nodes would leave pods without "
            f"a place; the worst is {first}."
        )
    curve = None if overview.tradeoff is None else tradeoff_picture(overview.tradeoff, overview.prices)
    return _section("survival", "Loss of spot nodes", element("p", text, class_="notice" if worst else None), curve)


def _notes(overview: Overview) -> Markup:
    return element("div", [element("p", text, class_="notice") for text in _limitation_texts(overview)])


def _limitation_texts(overview: Overview) -> Iterator[str]:
    planning = overview.planning
    if overview.returning:
        yield sentence(overview.returning)
    if not planning.spot_nodes:
        yield "The cluster has no spot node that accepts pods."
    if str(planning.pending):
        yield f"{planning.pending}."
    if planning.timed_out:
        yield f"The search timed out. At most {count(planning.upper_bound or 0, 'node')} can be freed."
    if overview.fallback_text:
        yield sentence(overview.fallback_text)
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
        " nodes that receive pods. A dashed box is a freed node.",
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
