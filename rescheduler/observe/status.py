"""The content of the status page: the latest plan for every node, recent drains, and current waits."""

import html
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from rescheduler.observe.events import (
    DrainEnded,
    DrainStarted,
    Event,
    Held,
    LeadershipChanged,
    Observed,
    Planned,
    Started,
)
from rescheduler.planning.outcome import Plan, Verdict

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
    draining: DrainStarted | None = None
    drains: tuple[DrainEnded, ...] = ()  #: the most recent first


class Status:
    """The listener. :attr:`board` may be read by any thread."""

    def __init__(self) -> None:
        self.board = Board()
        self._drains: deque[DrainEnded] = deque(maxlen=DRAINS)

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
            case DrainStarted():
                self.board = replace(self.board, draining=event)
            case DrainEnded():
                self._drains.appendleft(event)
                self.board = replace(self.board, draining=None, drains=tuple(self._drains))
            case _:
                pass  # not shown


def as_json(board: Board) -> dict[str, Any]:
    """Return the page as JSON. Nodes have the format of ``rescheduler plan -o json``."""
    planned = board.planned
    return {
        "version": board.started.version if board.started else None,
        "holder": board.started.holder if board.started else None,
        "dryRun": board.started.dry_run if board.started else None,
        "leading": board.leading,
        "waiting": {"reason": board.held.waiting, "detail": board.held.detail} if board.held else None,
        "draining": board.draining.node.name if board.draining else None,
        "plannedAt": _time(planned.at) if planned else None,
        "complete": planned.complete if planned else None,
        "spotNodes": planned.planning.spot_nodes if planned else None,
        "onDemandNodes": planned.planning.on_demand_nodes if planned else None,
        "nodes": [_node(verdict) for verdict in planned.planning.verdicts] if planned else [],
        "coolingDown": {node: _time(until) for node, until in board.observed.cooling.items()} if board.observed else {},
        "drains": [_drain(drain) for drain in board.drains],
    }


def _node(verdict: Verdict) -> dict[str, Any]:
    if isinstance(verdict, Plan):
        placements = [{"pod": str(placement.pod), "node": placement.node} for placement in verdict.placements]
        return {"node": verdict.node, "drainable": True, "placements": placements, "blockers": []}
    blockers = [
        {"pod": blocker.pod, "reason": blocker.reason, "detail": blocker.detail} for blocker in verdict.blockers
    ]
    return {"node": verdict.node, "drainable": False, "placements": [], "blockers": blockers}


def _drain(event: DrainEnded) -> dict[str, Any]:
    return {
        "at": _time(event.at),
        "node": event.node.name,
        "succeeded": event.failure is None,
        "reason": event.failure.why if event.failure else None,
        "detail": event.failure.detail if event.failure else "",
        "seconds": round(event.seconds, 3),
        "evicted": [str(pod) for pod in event.evicted],
        "removed": event.removed,
    }


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


# HTML

_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#1b1f24}"
    "table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.35em .8em;"
    "border-bottom:1px solid #d8dee4}th{background:#f6f8fa}code{background:#f6f8fa;padding:.1em .3em}"
    ".yes{color:#116329}.no{color:#82071e}"
)


def as_html(board: Board) -> str:
    """Return the page as HTML. All values from the cluster are escaped."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>spot-rescheduler</title>',
        f'<meta http-equiv="refresh" content="10"><style>{_STYLE}</style></head><body><h1>spot-rescheduler</h1>',
        "".join(f"<p>{line}</p>" for line in _headlines(board)),
        "<h2>On-demand nodes</h2>",
        _table(("Node", "", "Why"), _node_rows(board)),
        "<h2>Drains</h2>",
        _table(("When", "Node", "", "Pods evicted", "Seconds", "Why"), map(_drain_row, board.drains)),
        "</body></html>",
    ]
    return "".join(parts)


def _headlines(board: Board) -> Iterable[str]:
    if board.started:
        dry = " (dry run: nothing is changed)" if board.started.dry_run else ""
        yield f"Version {_text(board.started.version)}, <code>{_text(board.started.holder)}</code>{dry}."
    if board.leading is not None:
        yield "This replica is the leader." if board.leading else "This replica is not the leader."
    if board.draining:
        yield f"Draining <code>{_text(board.draining.node.name)}</code>."
    if board.held:
        yield f"Nothing is drained: {_text(board.held.detail)}."
    if board.planned is None:
        yield "No plan yet."
        return
    planning = board.planned.planning
    reasons = Counter(verdict.reason for verdict in planning.rejected).most_common()
    rejected = ", ".join(f"{count} {_text(reason)}" for reason, count in reasons) or "none"
    full = sum(1 for plan in planning.plans if plan.placements)
    yield (
        f"{_time(board.planned.at)}: {full} of {planning.on_demand_nodes} on-demand nodes can be drained to "
        f"{planning.spot_nodes} spot nodes, {len(planning.plans) - full} are empty; not drained: {rejected}."
    )


def _node_rows(board: Board) -> Iterable[tuple[str, ...]]:
    for verdict in board.planned.planning.verdicts if board.planned else ():
        if isinstance(verdict, Plan):
            moves = ", ".join(f"{_text(placement.pod)} → {_text(placement.node)}" for placement in verdict.placements)
            state = '<span class="yes">can be drained</span>' if moves else "empty"
            yield _text(verdict.node), state, moves or "no pods to move"
        else:
            why = "<br>".join(
                f"<code>{_text(blocker.reason)}</code> {_text(blocker.text)}" for blocker in verdict.blockers
            )
            yield _text(verdict.node), '<span class="no">not drained</span>', why


def _drain_row(event: DrainEnded) -> tuple[str, ...]:
    end = '<span class="no">failed</span>' if event.failure else '<span class="yes">done</span>'
    why = f"<code>{_text(event.failure.why)}</code> {_text(event.failure.detail)}" if event.failure else ""
    return _time(event.at), _text(event.node.name), end, str(len(event.evicted)), f"{event.seconds:.1f}", why


def _table(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<table><tr>{''.join(f'<th>{heading}</th>' for heading in head)}</tr>{body}</table>"
        if body
        else "<p>None.</p>"
    )


def _text(value: object) -> str:
    return html.escape(str(value))
