"""The charts of a plan: what drains save against the losses that are survived, and what fewer moves save. Pure."""

from typing import Final

from rescheduler.pages.tree import Chart, Span
from rescheduler.planning.forms import count, per_month, plain
from rescheduler.planning.money.move_costs import WorthCurve, WorthPoint, min_worth_flag
from rescheduler.planning.what_if.overview import Point, Tradeoff

#: Room is drawn up to this share of what the pods on spot nodes request.
_MOST_ROOM: Final = 2.0


def tradeoff_chart(tradeoff: Tradeoff, currency: str) -> Chart:
    """Return what further drains save, and which losses of spot nodes are survived after them."""
    points, losses, what = tradeoff.points, tradeoff.losses, f"{tradeoff.survive}s"
    begin, end = points[0], points[-1]
    known = all(point.per_month is not None for point in points) and bool(end.per_month)
    most = float(end.per_month or 0) if known else end.nodes
    rooms = [_MOST_ROOM if point.room is None else min(point.room, _MOST_ROOM) for point in points]
    top = max(1.0, *rooms)

    def across(point: Point) -> float:
        return (float(point.per_month or 0) if known else point.nodes) / most

    def survived(point: Point) -> tuple[float, float]:
        return across(point), point.survived / losses / top

    return Chart(
        (
            *("Drains in their order: ", Span(f"{what} whose loss is survived", "demand")),
            *(", and ", Span("room for lost pods", "spot")),
            ", as a share of what the pods on spot nodes request. The ring is the plan.",
        ),
        f"After {count(begin.nodes, 'drain')}, the loss of {begin.survived} of {losses} is survived; after "
        f"{count(end.nodes, 'drain')} of {end.survived}.",
        f"saves {_saved(end, currency)}" if known else f"drains {count(end.nodes, 'node')}",
        top,
        {
            "spot": tuple((across(point), room / top) for point, room in zip(points, rooms, strict=True)),
            "demand": tuple(map(survived, points)),
        },
        tuple(_title(point, losses, currency) for point in points),
        (survived(tradeoff.plan),),
        "What further drains save, and what is survived after them",
        ("Drained nodes", "Saved", f"{what.capitalize()} survived", "Pods without a place", "Room"),
        tuple(
            (
                *(f"{point.nodes:,}", _saved(point, currency) or "unknown", f"{point.survived} of {losses}"),
                *(f"{point.homeless:,}", "no pods" if point.room is None else f"{point.room:.0%}"),
            )
            for point in points
        ),
    )


def _title(point: Point, losses: int, currency: str) -> str:
    saved = f", {text}" if (text := _saved(point, currency)) else ""
    room = "" if point.room is None else f", room for {point.room:.0%}"
    return f"{count(point.nodes, 'drained node')}{saved}: {point.survived} of {losses} survived{room}"


def _saved(point: Point | WorthPoint, currency: str) -> str:
    return "" if point.per_month is None else per_month(point.per_month, currency)


def worth_chart(curve: WorthCurve, currency: str) -> Chart:
    """Return what is saved with fewer moves: the plans with rising values of ``--min-worth``."""
    points, whole = curve.points, curve.points[0]
    places = tuple((point.pods / whole.pods, float(point.per_month / whole.per_month)) for point in points)

    def said(point: WorthPoint) -> str:
        return f"{count(point.pods, 'moved pod')} for {_saved(point, currency)}, with {min_worth_flag(point.min_worth)}"

    return Chart(
        (
            *("Plans with rising values of ", Span("--min-worth", "code")),
            ", which leaves nodes that save less per month for a moved pod: ",
            *(Span("what they save", "demand"), " and the pods that they move."),
            f" The ring: {curve.text}." if curve.text else "",
        ),
        f"From {said(whole)} to {said(points[-1])}.",
        f"moves {count(whole.pods, 'pod')}",
        1.0,
        {"demand": places},
        tuple(map(said, points)),
        tuple(place for place, point in zip(places, points, strict=True) if point == curve.recommended),
        "What fewer moves save",
        ("--min-worth", "Freed nodes", "Moved pods", "Cost in moves", "Saved"),
        tuple(
            (plain(each.min_worth), f"{each.nodes:,}", f"{each.pods:,}", f"{each.cost:,.1f}", _saved(each, currency))
            for each in points
        ),
    )
