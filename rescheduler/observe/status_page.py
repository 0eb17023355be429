"""The status page: the board of the daemon as HTML that updates itself."""

import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from rescheduler.observe.events import Compared, DrainEnded, Planned
from rescheduler.observe.status import Board
from rescheduler.pages.document import document
from rescheduler.pages.element import Markup, element, joined
from rescheduler.pages.nodes import NodeEntry, node_list, search_tools
from rescheduler.pages.tables import table
from rescheduler.planning.units import age, money

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class StatusPage:
    """Renders boards. The list of nodes is rendered again only for a new plan. Not thread-safe."""

    def __init__(self) -> None:
        self._nodes = Markup("")
        self._shown: tuple[object, ...] | None = None  # the inputs from which the list was rendered

    def as_html(self, board: Board) -> str:
        """Return the page for *board*. All values from the cluster are escaped."""
        header = element(
            "header",
            element("a", "Skip to the nodes", href="#nodes", class_="skip"),
            element("h1", "spot-rescheduler"),
            element("p", id="connection", role="status", aria_live="polite", class_="no"),
            _part("state", joined(_state(board))),
        )
        main = element(
            "main",
            _part("drain", joined(_running(board))),
            element("section", _heading("nodes", "On-demand nodes"), search_tools(), self._node_part(board)),
            element("section", _heading("drains", "Drains"), _part("drains", _drains(board))),
        )
        return document("spot-rescheduler", element("div", header, main), live=True)

    def _node_part(self, board: Board) -> Markup:
        if (planned := board.planned) is None:
            return _part("nodes", element("p", "No plan yet."))
        cooling = board.observed.cooling if board.observed else {}
        ages = [age(facts.created, planned.at) for facts in planned.facts.values()]
        rendered_from = planned.planning, planned.facts, cooling, board.prices, ages
        if self._shown is None or self._shown[0] is not planned.planning or self._shown[1:] != rendered_from[1:]:
            self._nodes, self._shown = _part("nodes", _nodes(board, planned)), rendered_from
        return self._nodes


def _part(name: str, content: Markup) -> Markup:
    """Return a part of the page that the browser replaces when its content has changed."""
    return element("div", content, id=name, data_part=f"{zlib.crc32(content.encode()):x}")


def _heading(name: str, text: str) -> Markup:
    return element("h2", text, id=f"{name}-heading")


def _state(board: Board) -> Iterator[Markup]:
    if board.planned is not None:
        yield element("p", _summary(board.planned), class_="first")
    if board.draining:
        yield element("p", "Draining ", element("code", board.draining.node.name), ".")
    if board.held:
        yield element(
            "p", element("code", board.held.waiting), f" Nothing is drained: {board.held.detail}.", class_="notice"
        )
    if board.savings is not None:
        saved = [money(amount, currency) for currency, amount in board.savings.money.items()]
        yield element("p", f"Saved: {', '.join([*saved, f'{board.savings.node_hours:,.0f} node-hours of on-demand'])}.")
    if board.leading is not None:
        yield element("p", _leadership(board), class_="soft")
    if board.started:
        dry = " Dry run: nothing is changed." if board.started.dry_run else ""
        holder = element("code", board.started.holder)
        yield element("p", f"Version {board.started.version}, ", holder, f".{dry}", class_="soft")


def _leadership(board: Board) -> str:
    if board.leading:
        return "This replica is the leader."
    leader = f" {board.held.leader} is." if board.held and board.held.leader else ""
    return f"This replica is not the leader.{leader}"


def _summary(planned: Planned) -> str:
    planning = planned.planning
    reasons = Counter(verdict.reason for verdict in planning.rejected).most_common()
    rejected = ", ".join(f"{number} {reason}" for reason, number in reasons) or "none"
    full = sum(1 for plan in planning.plans if plan.placements)
    return (
        f"{planned.at:{_TIME}}: {full} of {planning.on_demand_nodes} on-demand nodes can be drained to "
        f"{planning.spot_nodes} spot nodes, {len(planning.plans) - full} are empty; not drained: {rejected}."
    )


def _running(board: Board) -> Iterator[Markup]:
    if (progress := board.progress) is None:
        return
    yield element("h2", f"Drain of {progress.node}")
    states = Counter(state.value for _, state in progress.pods)
    counts = ", ".join(f"{number} {state}" for state, number in states.most_common()) or "no pods"
    yield element("p", f"Phase: {progress.phase}. Pods: {counts}.")
    rows = [(str(pod), state.value) for pod, state in progress.pods]
    yield table("Pods of the drain", ("Pod", "State"), rows, frozenset())


def _nodes(board: Board, planned: Planned) -> Markup:
    cooling = board.observed.cooling if board.observed else {}
    entries = [
        NodeEntry(
            verdict,
            planned.facts.get(verdict.node),
            f"Cools down until {cooling[verdict.node]:{_TIME}}." if verdict.node in cooling else "",
        )
        for verdict in planned.planning.verdicts
    ]
    return node_list(entries, board.prices, planned.at)


def _drains(board: Board) -> Markup:
    head = ("When", "Node", "Result", "Pods evicted", "Seconds", "Replacement pods", "Reason")
    rows = [_drain(drain, board.landings.get((drain.node.name, drain.at))) for drain in board.drains]
    return table("Recent drains, the most recent first", head, rows, frozenset({3, 4}))


def _drain(event: DrainEnded, landing: Compared | None) -> tuple[str | Markup, ...]:
    result = element("span", "failed", class_="no") if event.failure else element("span", "done", class_="yes")
    why = joined((element("code", event.failure.why), " ", event.failure.detail)) if event.failure else ""
    seconds = f"{event.seconds:.1f}"
    return (
        f"{event.at:{_TIME}}",
        event.node.name,
        result,
        str(len(event.evicted)),
        seconds,
        _landed(event, landing),
        why,
    )


def _landed(event: DrainEnded, landing: Compared | None) -> str:
    ready = "" if event.landing_seconds is None else f"ready after {event.landing_seconds:.1f} s"
    counts = (
        [f"{number} {outcome}" for outcome, number in sorted(landing.outcomes.items()) if number] if landing else []
    )
    return "; ".join(filter(None, [ready, ", ".join(counts)]))
