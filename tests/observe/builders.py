"""Builders of events of rounds and drains."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from rescheduler.draining.state import Failure, Why
from rescheduler.observe.events import DrainEnded, InvolvedNode, Observed, Planned
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Blocker, Placement, Plan, Planning, PodRef, Reason, Rejected, Verdict

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WEB = PodRef("default", "web-1", "uid-web-1")
OD = InvolvedNode("od-1", "uid-od-1")
PLAN = Plan("od-1", (Placement(WEB, "spot-1"),))
BLOCKED = Rejected(
    "od-2",
    (
        Blocker(Reason.NO_CONTROLLER, "no <b>controller</b> recreates it", "default/bare"),
        Blocker(Reason.BUDGET, "0 of 1", "default/db-1"),
    ),
)
WORKER, SPOT = "node-role.kubernetes.io/worker", "node-role.kubernetes.io/spot-worker"


def planned(*verdicts: Verdict, complete: bool = True) -> Planned:
    nodes = {verdict.node: InvolvedNode(verdict.node, f"uid-{verdict.node}") for verdict in verdicts}
    return Planned(NOW, Planning(verdicts, len(verdicts), 2), nodes, 0.2, complete)


def valued(price: str, spot: str | None) -> Planned:
    """Return a round whose only plan is of a node with this price and pods with this share of the spot nodes."""
    worth = Worth.of(Decimal(price), Decimal(0), None if spot is None else Decimal(spot))
    return replace(planned(PLAN), worths={PLAN.node: worth}, currency="USD")


def observed(*nodes: str, at: datetime = NOW) -> Observed:
    return Observed(at, {WORKER: dict.fromkeys(nodes, 3), SPOT: {"spot-1": 0}}, frozenset({*nodes, "spot-1"}), {})


def ended(why: Why | None = None, node: InvolvedNode = OD, *, landing: float | None = None) -> DrainEnded:
    failure = Failure(why, "it took too long", (WEB,)) if why else None
    return DrainEnded(NOW, node, PLAN.placements, (WEB,), failure, 12.5, landing_seconds=landing)
