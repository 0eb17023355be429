"""Results on standard output as JSON, YAML or HTML, and a plan as an object for programs."""

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from predicates.texts import escaped
from rescheduler.cli.console import Line
from rescheduler.cli.go_flags import Option
from rescheduler.errors import UsageError
from rescheduler.planning.answers.losses import Homeless, PoolLoss
from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.forms import number
from rescheduler.planning.money.move_costs import MoveWorth, WorthCurve, WorthPoint
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.planning.severity import blocker_object, severity_of_verdict
from rescheduler.planning.what_if.overview import Lever, Overview, Point, Totals, Tradeoff, tried


def json_bytes(value: Any) -> bytes:
    """Return *value* as one line of JSON, in which characters that are not printable are escapes."""
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:  # a surrogate without its pair
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    return encoded if encoded.isascii() and b"\x7f" not in encoded else escaped(encoded.decode()).encode()


def print_json(value: Any) -> None:
    """Print *value* as one line of JSON."""
    sys.stdout.buffer.write(json_bytes(value) + b"\n")


def print_yaml(value: Any) -> None:
    """Print *value* as a YAML document that begins with ``---``.

    If it contains characters that are not printable, they are escapes, and so are all others that are not ASCII.
    """
    import yaml  # noqa: PLC0415 - imported on demand

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    plain = msgspec.to_builtins(value)
    dump = partial(yaml.dump, plain, Dumper=dumper, sort_keys=False, explicit_start=True, width=120)
    text = str(dump(allow_unicode=True))
    if not text.replace("\n", "").isprintable():
        text = str(dump(allow_unicode=False))
    sys.stdout.buffer.write(text.encode())


def print_html(overview: Overview, at: datetime) -> None:
    """Print the report of a plan that was made at the time *at*."""
    from rescheduler.pages.report import as_html  # noqa: PLC0415 - imported on demand

    sys.stdout.buffer.write(as_html(overview, at).encode())


output_file_option: Final = Option(
    "--output-file",
    metavar="FILE",
    default="-",
    help="Write the result to FILE, replacing an existing file once it is complete; - is standard output.",
)


def write_output(text: str, file: str) -> None:
    """Write *text* to *file*, which keeps its content if that fails. Raises UsageError if *file* cannot be written.

    A regular file is replaced by a complete one, so that nobody reads half of it.
    """
    if file == "-":
        sys.stdout.buffer.write(text.encode())
        return
    if not file:
        raise UsageError("--output-file: expected a file, or - for standard output")
    path = Path(file)
    new = path.with_name(f".{path.name}.new")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            path.write_text(text, encoding="utf-8")
            return
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise UsageError(f"--output-file {file}: cannot write there: {error.strerror}") from error


# A plan as an object for programs: ``plan -o json`` and ``plan -o yaml``.


def as_json(overview: Overview, seconds: float) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning alone."""
    planning, moves = overview.planning, overview.moves()
    return {
        "nodes": [_node(verdict, overview, moves.worths.get(verdict.node)) for verdict in planning.verdicts],
        "summary": {
            "on_demand_nodes": planning.on_demand_nodes,
            "spot_nodes": planning.spot_nodes,
            "drainable_nodes": len(planning.plans),
            "pods_to_move": planning.moved_pods,
            "pending_pods": planning.pending.pods,
            "buffer_pods": planning.pending.buffered,
            "pending_cpu": planning.pending.cpu / 1000,
            "pending_memory": planning.pending.memory,
            "seconds": round(seconds, 6),
            "timed_out": planning.timed_out,
            "upper_bound": planning.upper_bound,
            "freed": _totals(overview.freed)
            | _money(overview.freed.worth if overview.freed.nodes or overview.prices.empty else _NOTHING)
            | {
                "by_instance_type": {
                    name: _totals(totals) | _money(totals.worth) for name, totals in overview.freed_by_type.items()
                }
            },
            "on_demand": _totals(overview.on_demand),
            "currency": overview.prices.currency,
            "levers": [_plan_json_lever(lever, overview.command) for lever in overview.levers],
            "levers_complete": overview.levers_complete,
            "assumptions": list(overview.assumptions),
            "incomplete": overview.incomplete or None,
            "without_claims": overview.without_claims or None,
            "survival": overview.survival
            and {**survival_json(overview.survival), "seconds": round(overview.survival_seconds, 6)},
            "fallback": _totals(overview.fallback) | _money(overview.fallback.worth)
            if overview.fallback.nodes
            else None,
            "move_cost": round(moves.cost, 3),
            "worth_curve": overview.curve and _worth_curve(overview.curve),
            "tradeoff": overview.tradeoff and _tradeoff(overview.tradeoff),
            "held": overview.held or None,
            "returning": overview.returning or None,
        },
    }


def _node(verdict: Verdict, overview: Overview, moves: MoveWorth | None) -> dict[str, Any]:
    plan = verdict if isinstance(verdict, Plan) else None
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    landing = plan.landing if plan else None
    facts = overview.nodes[verdict.node]
    price = overview.prices.per_hour(facts)
    per_move = None if moves is None or moves.per_move is None or not moves.cost else round(moves.per_move, 4)
    return {
        "node": verdict.node,
        "drainable": plan is not None,
        "placements": [{"pod": str(item.pod), "node": item.node} for item in plan.placements] if plan else [],
        "surges": [surge.form() for surge in plan.surges] if plan else [],
        "preempts": [str(pod) for pod in plan.preempts] if plan else [],
        "blockers": [blocker_object(blocker) for blocker in blockers],
        "severity": severity_of_verdict(verdict),
        "left_by_daemon": overview.left.get(verdict.node),
        "robust": plan.robust if plan else None,
        "landing": {"spot": landing.spot, "on_demand": landing.on_demand, "leftovers": landing.leftovers}
        if landing
        else None,
        **(plan.leftovers_form("makes_room") if plan else {"leftovers": [], "makes_room": []}),
        "instance_type": facts.instance_type,
        "zone": facts.zone,
        "created": facts.created,
        "cpu": facts.cpu / 1000,
        "memory": facts.memory,
        "requested_cpu": facts.requested_cpu / 1000,
        "requested_memory": facts.requested_memory,
        "price_per_hour": None if price is None else float(price),
        "move_cost": None if moves is None else round(moves.cost, 3),
        "worth_per_move": per_move,
    }


def _worth_curve(curve: WorthCurve) -> dict[str, Any]:
    return {
        "points": [_worth_point(point) for point in curve.points],
        "recommended": curve.recommended and _worth_point(curve.recommended),
    }


def _worth_point(point: WorthPoint) -> dict[str, Any]:
    return {
        "min_worth": point.min_worth,
        "nodes": point.nodes,
        "pods": point.pods,
        "move_cost": round(point.cost, 3),
        "saved_per_month": number(point.per_month),
    }


def _totals(totals: Totals) -> dict[str, Any]:
    return {
        "nodes": totals.nodes,
        "cpu": totals.cpu / 1000,
        "memory": totals.memory,
        "price_per_hour": None if totals.per_hour is None else float(totals.per_hour),
        "price_per_month": None if totals.per_month is None else float(totals.per_month),
        "nodes_without_price": totals.unpriced,
    }


def _tradeoff(tradeoff: Tradeoff) -> dict[str, Any]:
    return {
        "survive": str(tradeoff.survive),
        "losses": tradeoff.losses,
        "points": [_point(point) for point in tradeoff.points],
        "plan": _point(tradeoff.plan),
    }


def _point(point: Point) -> dict[str, Any]:
    return {
        "nodes": point.nodes,
        "per_month": number(point.per_month),
        "survived": point.survived,
        "homeless": point.homeless,
        "room": None if point.room is None else round(point.room, 4),
    }


#: What no node saves.
_NOTHING: Final = Worth.of(Decimal(0), Decimal(0), Decimal(0))


def _money(worth: Worth) -> dict[str, Any]:
    """Return what freed nodes save per month, without what commitments pay and without their share of spot nodes.

    Without prices, it is empty.
    """
    if worth.gross is None:
        return {}
    return {
        "net_per_month": number(worth.net_per_month),
        "committed_per_month": number(worth.committed_per_month),
        "spot_share_per_month": number(worth.spot_per_month),
    }


def _plan_json_lever(lever: Lever, command: str) -> dict[str, Any]:
    return {
        "controller": lever.controller,
        "reason": str(lever.reason),
        "obstacle": lever.obstacle,
        "nodes": list(lever.nodes),
        "frees": list(lever.frees),
        "together_with": list(lever.together_with),
        "frees_together": list(lever.frees_together),
        "tried": lever.tried,
        "what_if": list(lever.to_try),
        "try": tried(command, lever.to_try) if lever.to_try else None,
        "risk": lever.risk,
        "severity": lever.severity,
        "price_per_month": number(lever.worth.gross_per_month),
        **_money(lever.worth),
        "net_per_month_together": number(lever.worth_together.net_per_month),
    }


def survival_json(certificate: Certificate) -> dict[str, Any]:
    """Return the object of a certificate."""
    return {
        "survive": str(certificate.survive),
        "holds": certificate.holds,
        "pools": [_pool_json(pool) for pool in certificate.pools],
    }


def _pool_json(pool: PoolLoss) -> dict[str, Any]:
    needed = pool.needed
    return {
        "pool": pool.pool,
        "nodes": pool.nodes,
        "pods": pool.pods,
        "survived": pool.survived,
        "added": pool.added,
        "judged": pool.judged,
        "not_recreated": len(pool.not_recreated),
        "homeless": _homeless_json(pool.homeless),
        "needed": needed
        and {"cpu": needed.cpu / 1000, "memory": needed.memory, "nodes": needed.nodes, "like": needed.like},
    }


def _homeless_json(homeless: Iterable[Homeless]) -> list[dict[str, Any]]:
    return [
        {"controller": str(each.controller), "priority": each.priority, "pods": list(each.pods), "why": each.why}
        for each in homeless
    ]


# Lines of a page as an HTML document, for ``explain -o html``.


def lines_as_html(title: str, lines: Iterable[Line]) -> str:
    """Return *lines* as a document. A styled line begins a section; indented lines become items of a list."""
    from rescheduler.pages.element import document, element  # noqa: PLC0415 - imported on demand

    content = element("main", element("h1", title), _elements(lines))
    return document(title, element("div", content))


def _elements(lines: Iterable[Line]) -> Iterator[Any]:
    from rescheduler.pages.element import element  # noqa: PLC0415

    items: list[Any] = []
    for line in lines:
        if line.level:
            items.append(element("li", line.text, class_=f"level-{line.level}"))
            continue
        if items:
            yield element("ul", items)
            items = []
        if line.text:
            yield element("h2" if line.style else "p", line.text)
    if items:
        yield element("ul", items)
