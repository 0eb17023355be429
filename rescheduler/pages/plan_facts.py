"""A plan as a tree: its facts by their keys, for programs, as ``plan -o json`` and ``plan -o yaml`` show them. Pure.

Values with units are those of the tables for people.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from rescheduler.pages.tree import Amount
from rescheduler.planning.answers.losses import Homeless, PoolLoss
from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.forms import count, cpu, memory, money, number, per_month
from rescheduler.planning.money.move_costs import MoveWorth, WorthCurve, WorthPoint
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.planning.severity import blocker_object, severity_of_verdict
from rescheduler.planning.what_if.overview import Lever, Overview, Point, Totals, Tradeoff, tried


def plan_facts(overview: Overview, seconds: float) -> dict[str, Any]:
    """Return the facts of a plan. *seconds* is the duration of planning alone."""
    planning, moves, currency = overview.planning, overview.moves(), overview.prices.currency
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
            "freed": amounts(overview.freed, currency)
            | _money(overview.freed.worth if overview.freed.nodes or overview.prices.empty else _NOTHING)
            | {
                "by_instance_type": {name: _priced(totals, currency) for name, totals in overview.freed_by_type.items()}
            },
            "on_demand": amounts(overview.on_demand, currency),
            "currency": currency,
            "levers": [_lever(lever, overview.command) for lever in overview.levers],
            "levers_complete": overview.levers_complete,
            "assumptions": list(overview.assumptions),
            "incomplete": overview.incomplete or None,
            "without_claims": overview.without_claims or None,
            "survival": overview.survival
            and {**survival_facts(overview.survival), "seconds": round(overview.survival_seconds, 6)},
            "fallback": _priced(overview.fallback, currency) if overview.fallback.nodes else None,
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
        "price_per_hour": number(price),
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


def amounts(totals: Totals, currency: str) -> dict[str, Any]:
    """Return the values of a group of nodes. People read how many have no price only if the others have one."""
    month, lacking = totals.per_month, f"{count(totals.unpriced, 'node')} without a price"
    price = ("", "unknown") if month is None else (per_month(month, currency), money(month, currency))
    return {
        "nodes": Amount.count(totals.nodes, "node"),
        "cpu": Amount(totals.cpu / 1000, f"{cpu(totals.cpu)} vCPU"),
        "memory": Amount(totals.memory, memory(totals.memory)),
        "price_per_hour": number(totals.per_hour),
        "price_per_month": Amount(number(month), *price),
        "nodes_without_price": Amount(totals.unpriced, lacking if totals.unpriced and month is not None else ""),
    }


def _priced(totals: Totals, currency: str) -> dict[str, Any]:
    return amounts(totals, currency) | _money(totals.worth)


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


def _lever(lever: Lever, command: str) -> dict[str, Any]:
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


def survival_facts(certificate: Certificate) -> dict[str, Any]:
    """Return the facts of a certificate."""
    return {
        "survive": str(certificate.survive),
        "holds": certificate.holds,
        "pools": [_pool(pool) for pool in certificate.pools],
    }


def _pool(pool: PoolLoss) -> dict[str, Any]:
    needed = pool.needed
    return {
        "pool": pool.pool,
        "nodes": pool.nodes,
        "pods": pool.pods,
        "survived": pool.survived,
        "added": pool.added,
        "judged": pool.judged,
        "not_recreated": len(pool.not_recreated),
        "homeless": _homeless(pool.homeless),
        "needed": needed
        and {"cpu": needed.cpu / 1000, "memory": needed.memory, "nodes": needed.nodes, "like": needed.like},
    }


def _homeless(homeless: Iterable[Homeless]) -> list[dict[str, Any]]:
    return [
        {"controller": str(each.controller), "priority": each.priority, "pods": list(each.pods), "why": each.why}
        for each in homeless
    ]
