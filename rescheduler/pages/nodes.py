"""The list of nodes with their verdicts, and a search field. Each node is a line that expands to pods or reasons."""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rescheduler.pages.element import Markup, element, joined
from rescheduler.pages.picture import fill
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.outcome import Blocker, Plan, Rejected, Verdict
from rescheduler.planning.units import age, count, cpu, memory, per_hour, percent

#: In a list of more nodes than this, browsers lay out only the visible ones.
_MANY: Final = 100


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node of the list."""

    verdict: Verdict
    facts: NodeFacts | None = None  #: None if they are not known
    note: str = ""  #: a further sentence, for example that the node cools down


def search_tools() -> Markup:
    """Return the search field and the buttons that open and close all nodes. Without JavaScript they are hidden."""
    return element(
        "div",
        element("label", "Search nodes, pods and reasons", for_="search"),
        element("input", type="search", id="search", autocomplete="off"),
        element("button", "Open all", type="button", id="open-all"),
        element("button", "Close all", type="button", id="close-all"),
        element("span", id="count", role="status", aria_live="polite"),
        id="tools",
        class_="tools",
        role="search",
        hidden=True,
    )


def node_list(entries: Iterable[NodeEntry], prices: PriceList, now: datetime | None) -> Markup:
    """Return the nodes in the order of *entries*. Without *now*, their age is left out."""
    rows = [_node(entry, prices, now) for entry in entries]
    kind = "nodes many" if len(rows) > _MANY else "nodes"
    return element("div", rows, class_=kind) if rows else element("p", "No on-demand nodes.")


def _node(entry: NodeEntry, prices: PriceList, now: datetime | None) -> Markup:
    verdict = entry.verdict
    content = joined(
        (
            element("summary", _line(entry, prices, now)),
            element("p", entry.note, class_="notice") if entry.note else None,
            _moves(verdict) if isinstance(verdict, Plan) else _blockers(verdict),
        )
    )
    version = f"{zlib.crc32(content.encode()):x}"
    return element("details", content, id=f"node-{verdict.node}", class_="node", data_version=version)


def _line(entry: NodeEntry, prices: PriceList, now: datetime | None) -> Iterator[Markup]:
    yield element("span", entry.verdict.node, class_="name")
    yield _verdict(entry.verdict)
    if (facts := entry.facts) is None:
        return
    node_age = age(facts.created, now) if now else ""
    details = [facts.instance_type, facts.zone, f"age {node_age}" if node_age else ""]
    if (price := prices.per_hour(facts)) is not None:
        details.append(per_hour(price, prices.currency))
    yield element("span", ", ".join(filter(None, details)), class_="soft")
    yield fill(percent(facts.requested_cpu, facts.cpu), f"{cpu(facts.cpu)} vCPU")
    yield fill(percent(facts.requested_memory, facts.memory), memory(facts.memory))


def _verdict(verdict: Verdict) -> Markup:
    if isinstance(verdict, Rejected):
        further = len({blocker.reason for blocker in verdict.blockers}) - 1
        rest = f" and {further} more" if further else None
        return element("span", f"not drained: {verdict.reason}", rest, class_="no")
    pods = len(verdict.placements)
    text = f"can be drained: {count(pods, 'pod')} to move" if pods else "empty: no pods to move"
    return element("span", text, class_="yes")


def _moves(plan: Plan) -> Markup:
    if not plan.placements:
        return element("p", "No pod has to be moved.")
    rows = [
        element("tr", element("td", str(placement.pod)), element("td", placement.node), class_="pod")
        for placement in plan.placements
    ]
    head = element("tr", element("th", "Pod", scope="col"), element("th", "Moves to", scope="col"))
    table = element("table", element("thead", head), element("tbody", rows))
    return joined((element("p", _landing(plan)) if plan.landing else None, element("div", table, class_="scroll")))


def _landing(plan: Plan) -> str:
    assert plan.landing is not None
    spot, other = plan.landing.spot, plan.landing.on_demand
    robust = {True: "The plan works whichever nodes the scheduler prefers. ", False: "The plan is fragile. ", None: ""}
    return f"{robust[plan.robust]}Forecast: {count(spot, 'pod')} on spot nodes, {other} on other nodes."


def _blockers(rejected: Rejected) -> Markup:
    return element("ul", [_blocker(blocker) for blocker in rejected.blockers])


def _blocker(blocker: Blocker) -> Markup:
    return element("li", element("code", blocker.reason), " ", blocker.text, class_="pod")
