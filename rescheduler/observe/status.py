"""The content of the status page, also as JSON: the latest plan for every node, recent drains, and current waits."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from predicates.texts import escaped
from rescheduler.observe.events import (
    Compared,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    Event,
    Held,
    LeadershipChanged,
    Observed,
    Overviewed,
    Planned,
    SavingsCounted,
    Started,
    Surveyed,
)
from rescheduler.planning.forms import number, stamp, utc
from rescheduler.planning.money.prices import NodeFacts, PriceKey, PriceList
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected, TakenRoom, Verdict, nodes_by_reason
from rescheduler.planning.severity import blocker_object, severity_of_verdict
from rescheduler.planning.what_if.overview import Lever

#: Number of recent drains that are kept.
DRAINS: Final = 50


@dataclass(frozen=True, slots=True)
class Board:
    """The displayed state. It is replaced as a whole, so that other threads read a consistent state."""

    started: Started | None = None
    leading: bool | None = None  #: None without leader election
    observed: Observed | None = None
    held: Held | None = None
    planned: Planned | None = None
    overviewed: Overviewed | None = None  #: all drains in sequence; None if nobody looked at the page before
    draining: DrainStarted | None = None
    drains: tuple[DrainEnded, ...] = ()  #: the most recent first
    progress: DrainProgressed | None = None  #: of the running drain
    landings: Mapping[tuple[str, datetime], Compared] = field(default_factory=dict)  #: by node and end of the drain
    prices: PriceList = field(default_factory=PriceList)
    savings: Savings | None = None  #: None if they are not known


class Status:
    """A listener that updates :attr:`board`, which may be read by any thread."""

    def __init__(self, prices: PriceList | None = None) -> None:
        self.board = Board(prices=prices or PriceList())
        self._drains: deque[DrainEnded] = deque(maxlen=DRAINS)

    def show_prices(self, by_node: Mapping[str, Decimal]) -> None:
        """Replace the prices of the cloud provider, by node name."""
        self.board = replace(self.board, prices=replace(self.board.prices, by_node=by_node))

    def list_prices(self, by_type: Mapping[PriceKey, Decimal]) -> None:
        """Replace the prices of the user's price file."""
        self.board = replace(self.board, prices=replace(self.board.prices, by_type=by_type))

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self.board = replace(self.board, started=event)
            case LeadershipChanged(leading):
                self.board = replace(self.board, leading=leading)
            case Observed():
                self.board = replace(self.board, observed=event)
            case Held():
                self.board = replace(self.board, held=event)
            case Planned():
                planned = event if event.complete or self.board.planned is None else self.board.planned
                self.board = replace(self.board, planned=planned, held=None)
            case Surveyed(planned):
                self.board = replace(self.board, planned=planned)
            case Overviewed():
                self.board = replace(self.board, overviewed=event)
            case SavingsCounted(total):
                self.board = replace(self.board, savings=total)
            case DrainStarted() | DrainProgressed() | Compared() | DrainEnded():
                self._of_drain(event)
            case _:
                pass  # not shown

    def _of_drain(self, event: DrainStarted | DrainProgressed | Compared | DrainEnded) -> None:
        match event:
            case DrainStarted():
                self.board = replace(self.board, draining=event, progress=None)
            case DrainProgressed():
                self.board = replace(self.board, progress=event)
            case Compared(node):  # follows the end of the drain
                ends = [drain.at for drain in self._drains if drain.node.name == node][:1]
                self.board = replace(self.board, landings={**self.board.landings, **{(node, at): event for at in ends}})
            case DrainEnded():
                self._drains.appendleft(event)
                drains, shown = tuple(self._drains), {(drain.node.name, drain.at) for drain in self._drains}
                landings = {key: landing for key, landing in self.board.landings.items() if key in shown}
                self.board = replace(self.board, draining=None, progress=None, drains=drains, landings=landings)


#: Why a node has no plan while the daemon drains it.
_DRAINED: Final = Blocker(Reason.BEING_DRAINED, "the daemon drains it")


def verdicts(board: Board) -> Planned | None:
    """Return the verdicts of the last plan: the node that is being drained since then cannot be drained again."""
    planned, drain = board.planned, board.draining
    if planned is None or drain is None:
        return planned
    name, planning = drain.node.name, planned.planning
    judged = [
        Rejected(name, (_DRAINED,)) if each.node == name and isinstance(each, Plan) else each
        for each in planning.verdicts
    ]
    worths = {node: worth for node, worth in planned.worths.items() if node != name}
    return replace(planned, planning=replace(planning, verdicts=tuple(judged)), worths=worths)


# The status page as JSON.


def as_json(board: Board) -> dict[str, Any]:
    """Return the page as JSON. Nodes have the format of ``rescheduler plan -o json``."""
    return summary(board) | {"nodes": nodes(board)}


class StatusJson:
    """Renders boards as JSON. The nodes are rendered again only for a new plan. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes = b"[]"
        self._shown: tuple[object, ...] | None = None  # the inputs from which the list was rendered

    def as_bytes(self, board: Board) -> bytes:
        """Return :func:`as_json`, encoded."""
        fields = [_member(name, _dump(value)) for name, value in summary(board).items()]
        return b"{" + b",".join([*fields, _member("nodes", self._node_list(board))]) + b"}"

    def _node_list(self, board: Board) -> bytes:
        planned, shown = board.planned, self._shown
        if planned is None:
            return b"[]"
        inputs = planned.facts, board.prices, unjudged(board), board.draining
        if shown is None or shown[0] is not planned.planning or shown[1:] != inputs:
            self._nodes = _dump(nodes(board))
            self._shown = planned.planning, *inputs
        return self._nodes


def summary(board: Board) -> dict[str, Any]:
    """Return all fields of :func:`as_json` except the nodes."""
    planned = verdicts(board)
    return {
        "version": board.started.version if board.started else None,
        "holder": board.started.holder if board.started else None,
        "dryRun": board.started.dry_run if board.started else None,
        "leading": board.leading,
        "waiting": {"reason": board.held.waiting, "detail": board.held.detail} if board.held else None,
        "leader": _leader(board),
        "draining": board.draining.node.name if board.draining else None,
        "drain": _progress(board.progress) if board.progress else None,
        "plannedAt": utc(planned.at) if planned else None,
        "complete": planned.complete if planned else None,
        "spotNodes": planned.planning.spot_nodes if planned else None,
        "onDemandNodes": planned.planning.on_demand_nodes if planned else None,
        "pending": _pending(planned.planning.pending) if planned else None,
        "drainableNodes": len(planned.planning.plans) if planned else None,
        "emptyNodes": planned.planning.empty if planned else None,
        "nodesByReason": _by_reason(planned.planning) if planned else None,
        "potentialSavings": _potential(planned) if planned else None,
        "inSequence": _in_sequence(board.overviewed) if board.overviewed else None,
        "coolingDown": {node: utc(until) for node, until in board.observed.cooling.items()} if board.observed else {},
        "spotPools": [pool.as_json() | {"nodes": pool.nodes} for pool in board.observed.pools]
        if board.observed
        else [],
        "drains": [_drain(drain) for drain in board.drains],
        "savings": _savings(board.savings) if board.savings else None,
    }


def nodes(board: Board) -> list[dict[str, Any]]:
    """Return the nodes of :func:`as_json`."""
    if (planned := verdicts(board)) is None:
        return []
    judged = [_node(verdict, planned.facts, board.prices) for verdict in planned.planning.verdicts]
    return judged + [_NOT_JUDGED | {"node": name} for name in unjudged(board)]


#: A node that the last plan did not reach.
_NOT_JUDGED: Final = {
    "node": "", "drainable": False, "judged": False, "placements": [], "surges": [], "blockers": [],
    "severity": None,
}  # fmt: skip


def unjudged(board: Board) -> list[str]:
    """Return the on-demand nodes without a verdict: a round stops at the first node that can be drained."""
    if board.planned is None or board.planned.complete or board.observed is None:
        return []
    on_demand = next(iter(board.observed.pods.values()), {})  # the first of the two labels
    return sorted(set(on_demand) - {verdict.node for verdict in board.planned.planning.verdicts})


def _by_reason(planning: Planning) -> dict[str, int]:
    return {str(reason): number for reason, number in nodes_by_reason(planning).most_common()}


def _in_sequence(overviewed: Overviewed) -> dict[str, Any]:
    """Return the plan of all drains in sequence, with the counts and levers of ``rescheduler plan``."""
    overview = overviewed.overview
    planning, worth = overview.planning, overview.freed.worth
    return {
        "at": utc(overviewed.at),
        "drainableNodes": len(planning.plans),
        "emptyNodes": planning.empty,
        "podsToMove": planning.moved_pods,
        "nodesByReason": _by_reason(planning),
        "netPerMonth": number(worth.net_per_month),
        "grossPerMonth": number(worth.gross_per_month),
        "currency": overview.prices.currency,
        "levers": [_lever(lever) for lever in overview.levers],
        "leversComplete": overview.levers_complete,
    }


def _lever(lever: Lever) -> dict[str, Any]:
    nodes, worth = lever.gain
    return {
        "controller": lever.controller,
        "obstacle": lever.obstacle,
        "reason": str(lever.reason),
        "whatIf": list(lever.to_try),
        "frees": list(nodes),
        "netPerMonth": number(worth.net_per_month),
        "grossPerMonth": number(worth.gross_per_month),
        "risk": lever.risk,
        "severity": lever.severity,
    }


def _potential(planned: Planned) -> dict[str, Any] | None:
    """Return what draining all drainable nodes would save per month, each by itself; None if it is not known."""
    worth = summed(planned.worths.values())
    if worth.gross_per_month is None:
        return None
    return {
        "netPerMonth": number(worth.net_per_month),
        "grossPerMonth": number(worth.gross_per_month),
        "currency": planned.currency,
    }


def _member(name: str, value: bytes) -> bytes:
    return _dump(name) + b":" + value


def _dump(value: object) -> bytes:
    return escaped(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).encode()


def _pending(taken: TakenRoom) -> dict[str, Any]:
    return {"pods": taken.pods, "cpu": taken.cpu, "memory": taken.memory, "buffered": taken.buffered}


def _leader(board: Board) -> str | None:
    if board.leading:
        return board.started.holder if board.started else None
    return board.held.leader or None if board.held else None


def _progress(progress: DrainProgressed) -> dict[str, Any]:
    pods = [
        {
            "pod": str(pod),
            "state": state.value,
            "target": progress.targets.get(str(pod)),
            "since": stamp(progress.since.get(str(pod))),
        }
        for pod, state in progress.pods
    ]
    return {"node": progress.node.name, "phase": progress.phase, "pods": pods}


def _savings(savings: Savings) -> dict[str, Any]:
    return {
        "nodeHours": savings.node_hours,
        "money": {currency: float(amount) for currency, amount in savings.money.items()},
    }


def _node(verdict: Verdict, facts: Mapping[str, NodeFacts], prices: PriceList) -> dict[str, Any]:
    known = facts.get(verdict.node)
    form = _verdict(verdict) | {"severity": severity_of_verdict(verdict)}
    return form | ({"facts": _facts(known, prices)} if known else {})


def _facts(node: NodeFacts, prices: PriceList) -> dict[str, Any]:
    price = prices.per_hour(node)
    return {
        "instanceType": node.instance_type,
        "zone": node.zone,
        "created": node.created,
        "cpu": node.cpu,
        "memory": node.memory,
        "requestedCpu": node.requested_cpu,
        "requestedMemory": node.requested_memory,
        "pricePerHour": float(price) if price is not None else None,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Plan):
        placements = [{"pod": str(placement.pod), "node": placement.node} for placement in verdict.placements]
        surges = [surge.form() for surge in verdict.surges]
        more = verdict.leftovers_form("makesRoom") if verdict.leftovers else {}
        form = {"node": verdict.node, "drainable": True, "placements": placements, "surges": surges, "blockers": []}
        return form | more
    blockers = [blocker_object(blocker) for blocker in verdict.blockers]
    return {"node": verdict.node, "drainable": False, "placements": [], "surges": [], "blockers": blockers}


def _drain(event: DrainEnded) -> dict[str, Any]:
    return {
        "at": utc(event.at),
        "node": event.node.name,
        "succeeded": event.failure is None,
        "reason": event.failure.why if event.failure else None,
        "detail": event.failure.detail if event.failure else "",
        "seconds": round(event.seconds, 3),
        "evicted": [str(pod) for pod in event.evicted],
        "removed": event.removed,
    }
