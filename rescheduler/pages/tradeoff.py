"""The curve of what drains save against the losses of spot nodes that are survived after them, as SVG and table."""

from collections.abc import Callable, Sequence
from typing import Final

from rescheduler.pages.element import Markup, element, joined, table
from rescheduler.planning.forms import count, per_month
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.what_if.overview import Point, Tradeoff

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
    rows = [_row(point, tradeoff.losses, prices) for point in tradeoff.points]
    head = ("Drained nodes", "Saved", f"{what.capitalize()} survived", "Pods without a place", "Room")
    listed = table("What further drains save, and what is survived after them", head, rows, frozenset(range(5)))
    return element("figure", legend, _curve(tradeoff, prices), listed)


def _row(point: Point, losses: int, prices: PriceList) -> tuple[str, ...]:
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
