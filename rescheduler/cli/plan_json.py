"""A plan as an object for programs: ``plan -o json`` and ``plan -o yaml``."""

from typing import Any

from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.planning.what_if.overview import Lever, Overview, Totals


def as_json(overview: Overview, seconds: float) -> dict[str, Any]:
    """Return the object for ``-o json``. *seconds* is the duration of planning alone."""
    planning = overview.planning
    return {
        "nodes": [_node(verdict, overview) for verdict in planning.verdicts],
        "summary": {
            "on_demand_nodes": planning.on_demand_nodes,
            "spot_nodes": planning.spot_nodes,
            "drainable_nodes": len(planning.plans),
            "pods_to_move": sum(len(plan.placements) for plan in planning.plans),
            "seconds": round(seconds, 6),
            "timed_out": planning.timed_out,
            "upper_bound": planning.upper_bound,
            "freed": _totals(overview.freed)
            | {"by_instance_type": {name: _totals(totals) for name, totals in overview.freed_by_type.items()}},
            "on_demand": _totals(overview.on_demand),
            "currency": overview.prices.currency,
            "levers": [_lever(lever) for lever in overview.levers],
            "levers_complete": overview.levers_complete,
            "assumptions": list(overview.assumptions),
        },
    }


def _node(verdict: Verdict, overview: Overview) -> dict[str, Any]:
    plan = verdict if isinstance(verdict, Plan) else None
    blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
    landing = plan.landing if plan else None
    facts = overview.nodes[verdict.node]
    price = overview.prices.per_hour(facts)
    return {
        "node": verdict.node,
        "drainable": plan is not None,
        "placements": [{"pod": str(item.pod), "node": item.node} for item in plan.placements] if plan else [],
        "blockers": [{"pod": item.pod, "reason": item.reason, "detail": item.detail} for item in blockers],
        "robust": plan.robust if plan else None,
        "landing": {"spot": landing.spot, "on_demand": landing.on_demand} if landing else None,
        "instance_type": facts.instance_type,
        "zone": facts.zone,
        "created": facts.created,
        "cpu": facts.cpu / 1000,
        "memory": facts.memory,
        "requested_cpu": facts.requested_cpu / 1000,
        "requested_memory": facts.requested_memory,
        "price_per_hour": None if price is None else float(price),
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


def _lever(lever: Lever) -> dict[str, Any]:
    return {
        "controller": lever.controller,
        "reason": str(lever.reason),
        "obstacle": lever.obstacle,
        "nodes": list(lever.nodes),
        "frees": list(lever.frees),
        "together_with": list(lever.together_with),
        "frees_together": list(lever.frees_together),
        "tried": lever.tried,
    }
