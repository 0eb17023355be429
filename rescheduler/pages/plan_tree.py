"""A plan as a tree: the parts of its page in their order, for people, as text and HTML show them. Pure.

Of the nodes, it has what their drains do beside the moves: text groups nodes by reasons and controllers, and HTML
searches and unfolds them.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Final, TypeAlias

from rescheduler.pages.plan_charts import tradeoff_chart, worth_chart
from rescheduler.pages.plan_facts import amounts
from rescheduler.pages.tree import (
    BAD,
    GOOD,
    HEADING,
    Amount,
    ChoiceRow,
    ChoiceTable,
    Content,
    Line,
    PagePart,
    Row,
    Span,
    Table,
    styled,
)
from rescheduler.planning.answers.losses import PoolLoss
from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.forms import and_more, count, cpu, memory, money, month_of, per_month, sentence
from rescheduler.planning.money.worth import Worth, saves
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.severity import reasons_of
from rescheduler.planning.what_if.overview import (
    LEFT,
    NO_PRICE,
    NOT_ALL_TRIED,
    SETTING,
    Lever,
    Overview,
    Totals,
    tried,
    what_if_flags,
)

#: Returns a text with short names of nodes.
Short: TypeAlias = Callable[[str], str]

_GIB: Final = 1 << 30


def plan_parts(overview: Overview, short: Short = str, *, wide: bool = True) -> list[PagePart]:
    """Return the parts of the page in their order, without those that have nothing to say; long ones only if *wide*."""
    found = (
        first(overview, short),
        sums(overview),
        reasons(overview.planning),
        notes(overview, short),
        _survival_and_drains(overview, wide=wide),
        levers(overview, short),
        _worth_of_moves(overview),
    )
    return [part for part in found if part is not None]


# The first part: why nothing is drained now, what the file lacks, the headline, and what to do first.


def first(overview: Overview, short: Short = str) -> PagePart:
    """Return the first part of the page, which every plan has."""
    held = f"Nothing is drained now: {overview.held}." if overview.held else ""
    lacking = (sentence(text) for text in (overview.incomplete, overview.without_claims) if text)
    bad = filter(None, (held, *lacking, _left_by_daemon(overview, short)))
    said = styled(headline(overview, short), f"{GOOD if overview.planning.plans else HEADING} first")
    return PagePart("first", "", (*(styled(text, BAD) for text in bad), said, *commands(overview)))


def _left_by_daemon(overview: Overview, short: Short) -> str:
    """Return a sentence about the plans that the daemon would not carry out, by their simulations, or ""."""
    left = sorted(overview.left.items(), key=lambda item: item[1])
    if not left:
        return ""
    numbers = Counter(reason for _, reason in left)
    why = "; ".join(f"{LEFT[reason]} ({reason}: {number})" for reason, number in numbers.items())
    named = short(left[0][0]) + and_more(len(left) - 1)
    return f"The daemon would not drain {named}, which count below: in simulations, {why}."


def headline(overview: Overview, short: Short = str) -> str:
    """Summarize the plan in one sentence."""
    plans, total = overview.planning.plans, count(overview.planning.on_demand_nodes, "on-demand node")
    worth = _worth(overview) if plans else ""
    return f"{len(plans)} of {total} drainable{worth}{_main_obstacle(overview, short)}."


def _worth(overview: Overview) -> str:
    freed = overview.freed
    if saved := saves(freed.worth, overview.prices.currency, at_least=bool(freed.unpriced)):
        return f"; {saved}"
    return f" ({cpu(_rounded(freed.cpu, 1000))} vCPU, {memory(_rounded(freed.memory, _GIB))})"


def _rounded(amount: int, unit: int) -> int:
    """Round *amount* to a multiple of *unit*, unless it is small."""
    return amount if amount < 10 * unit else round(amount / unit) * unit


def _main_obstacle(overview: Overview, short: Short) -> str:
    """Return the last part of the sentence: the most useful lever, otherwise the most frequent obstacle."""
    if overview.first_spot:
        return "; there is no spot node: try add-spot"
    obstacle, number = overview.obstacle
    if overview.levers:
        lever = overview.levers[0]
        if lever.controller.startswith(SETTING):
            return f"; {lever.controller.rpartition(' ')[2]} would free {len(lever.frees)} more"
        obstacle, number = lever.controller, len(lever.nodes)
    return f"; {short(obstacle.partition(' ')[2] or obstacle)} blocks {number}" if number else ""


def commands(overview: Overview) -> Iterator[Line]:
    """Yield what to do first and what comes of it, if a change frees a node, and what says which nodes to buy."""
    lever = next((lever for lever in overview.levers if lever.to_try and lever.gain[0]), None)
    if change := overview.first_spot:
        yield Line(tried(overview.command, [change]), command=True, before="First: ")
    elif lever is not None:
        nodes, worth = lever.gain
        month = worth.saved_per_month
        amount = "" if month is None else f", {per_month(month, overview.prices.currency)}"
        risk = "" if lever.risk is None else f"; {lever.risk.text}"
        yield Line(tried(overview.command, lever.to_try), command=True, before="First: ")
        yield Line(f"frees {len(nodes)} more{amount}{risk}", 1)
    if lacking := overview.lacking_room:
        what = f"What to buy for {count(lacking, 'node')} without room on spot nodes: "
        yield Line(f"{overview.command} --buy", command=True, before=what)


# What the plan frees, which nodes stay, and the limits of the result.


def sums(overview: Overview) -> PagePart | None:
    """Return the totals of the freed nodes by instance type, and of all on-demand nodes."""
    if not overview.planning.plans:
        return None
    currency, types = overview.prices.currency, list(overview.freed_by_type.items())
    further = list(accumulate((totals for _, totals in reversed(types)), Totals.__add__))
    columns = {"nodes": "Nodes", "cpu": "CPU", "memory": "Memory"}
    columns |= {} if overview.prices.empty else {"price_per_month": "Price per month"}
    columns |= {"nodes_without_price": "Without a price"} if _partly_priced(overview) else {}

    def row(name: str, totals: Totals) -> Row:
        return Row(name, amounts(totals, currency))

    table = Table(
        f"Freed {_moving(overview.planning)}",
        "Instance type",
        columns,
        tuple(row(name or "(unknown type)", totals) for name, totals in types),
        lambda shown: row("other types", further[len(types) - shown - 1]),
        (row("in total", overview.freed), row("all on-demand", overview.on_demand)),
    )
    curve = overview.curve.text if overview.curve is not None else ""
    return PagePart("sums", "Summary", (table, Line(curve, 1)) if curve else (table,))


def _partly_priced(overview: Overview) -> bool:
    return overview.on_demand.per_hour is not None and overview.on_demand.unpriced > 0


def _moving(planning: Planning) -> str:
    """Return how many pods move, also of those that make room, and to how many nodes."""
    targets = {placement.node for plan in planning.plans for placement in plan.moves}
    staying = targets & {verdict.node for verdict in planning.verdicts}
    spot, stay = len(targets - staying), count(len(staying), "on-demand node")
    where = [f"{spot:,} of {count(planning.spot_nodes, 'spot node')}"] if spot else []
    where += [f"{stay} that {'stays' if len(staying) == 1 else 'stay'}"] if staying else []
    return f"by moving {count(planning.moved_pods, 'pod')} to {' and '.join(where)}" if where else "without moving pods"


def reasons(planning: Planning) -> PagePart | None:
    """Return the reasons of the nodes that stay, the most frequent one first."""
    number = len(planning.rejected)
    if not number:
        return None
    rows = tuple(
        Row(reason, {"nodes": Amount.count(nodes, "node"), "severity": Span(severity, severity)}, severity)
        for reason, severity, nodes in reasons_of(planning)
    )
    heading = f"{count(number, 'node')} {'stays' if number == 1 else 'stay'} (a node can have several reasons)"
    table = Table(heading, "Reason", {"nodes": "Nodes", "severity": "Severity"}, rows, noun="reason")
    return PagePart("reasons", "What stands in the way", (table,))


def notes(overview: Overview, short: Short = str) -> PagePart | None:
    """Return the limits of the result."""
    texts = tuple(styled(text, "note") for text in _notes(overview, short))
    return PagePart("notes", "Notes", texts, "note") if texts else None


def _notes(overview: Overview, short: Short) -> Iterator[str]:
    planning, policy = overview.planning, overview.policy
    yield from (sentence(text) for text in (overview.returning, overview.fallback_text) if text)
    for plan in planning.plans:
        if plan.preempts:
            yield f"For the pods of {short(plan.node)}, the scheduler preempts {plan.preempted_text}."
    if planning.timed_out:
        yield f"The search timed out; at most {count(planning.upper_bound or 0, 'node')} can be drained."
    if str(planning.pending):
        yield f"{planning.pending}."
    if planning.on_demand_nodes or planning.spot_nodes or not overview.incomplete:
        if not planning.on_demand_nodes:
            yield f"No node has the label {policy.on_demand_label} (--on-demand-node-label)."
        if not planning.spot_nodes:
            yield f"No node has the label {policy.spot_label} (--spot-node-label)."
    if overview.unpriced:
        yield NO_PRICE
    yield from (f"Note: {assumption}" for assumption in overview.assumptions)


# The certificate of a plan: which pools of spot nodes may be lost.

#: How many pools, and controllers of a pool, are listed if there is little room.
_POOLS: Final = 3
_CONTROLLERS: Final = 2


def survival(certificate: Certificate | None, *, wide: bool = True) -> PagePart | None:
    """Return that the certificate holds, or the pools with the most homeless pods: all of them if *wide*."""
    if certificate is None or not certificate.pools:
        return None
    content = (Line(survival_text(certificate)),) if certificate.holds else tuple(_lost(certificate, wide=wide))
    return PagePart("survival", "Loss of spot nodes", content, noun="")


def _lost(certificate: Certificate, *, wide: bool) -> Iterator[Line]:
    worst, pools = certificate.worst, count(len(certificate.pools), str(certificate.survive))
    yield styled(f"Would not survive the loss of {len(worst)} of {pools} of spot nodes", HEADING)
    listed = worst if wide else worst[:_POOLS]
    for pool in listed:
        yield from _pool(pool, wide=wide)
    if len(listed) < len(worst):
        yield Line(f"{len(worst) - len(listed)} more with -o wide.", 1)


def _survival_and_drains(overview: Overview, *, wide: bool) -> PagePart | None:
    part, tradeoff = survival(overview.survival, wide=wide), overview.tradeoff
    if part is None or tradeoff is None:
        return part
    return replace(part, content=(*part.content, tradeoff_chart(tradeoff, overview.prices.currency)))


def _worth_of_moves(overview: Overview) -> PagePart | None:
    if overview.curve is None:
        return None
    return PagePart("worth", "What the moves are worth", (worth_chart(overview.curve, overview.prices.currency),))


def survival_text(certificate: Certificate | None) -> str:
    """Return that *certificate* holds, or the worst loss, as one sentence; "" if there is none, or nothing to lose."""
    if certificate is None or not certificate.pools:
        return ""
    if not certificate.holds:
        return f"Would not survive the loss of {_loss(certificate.worst[0])}."
    what, added = str(certificate.survive), max(pool.added for pool in certificate.pools)
    more = f", if an autoscaler adds {count(added, 'node')}" if added else ""
    return f"Survives the loss of any one {what} of spot nodes ({count(len(certificate.pools), what)}){more}."


def _loss(pool: PoolLoss) -> str:
    name = f"{pool.pool} ({count(pool.nodes, 'node')})"
    if not pool.homeless:
        return f"{name}: not judged within the limit of simulated pods"
    return f"{name}: {pool.homeless_pods} of {count(pool.pods, 'pod')} without a place"


def _pool(pool: PoolLoss, *, wide: bool) -> Iterator[Line]:
    text = _loss(pool)
    if pool.homeless and (needed := pool.needed) is not None:
        amounts = f"{cpu(needed.cpu)} vCPU, {memory(needed.memory)}"
        text += f"; they need {amounts}: at least {count(needed.nodes, 'node')} like {needed.like}"
    yield Line(text, 1)
    listed = pool.homeless if wide else pool.homeless[:_CONTROLLERS]
    for each in listed:
        priority = f", priority {each.priority}" if each.priority else ""
        yield Line(f"{each.controller}{priority}: {count(len(each.pods), 'pod')}: {each.why}", 2)
    if len(listed) < len(pool.homeless):
        yield Line(f"and pods of {count(len(pool.homeless) - len(listed), 'more controller')}", 2)


# What would free more.


def levers(overview: Overview, short: Short = str) -> PagePart | None:
    """Return the changes that would free more nodes, each by itself, and whether all were tried."""
    content: list[Content] = [_choices(overview, short)] if overview.levers else []
    if not overview.levers_complete:
        content.append(styled(NOT_ALL_TRIED, "", 1))
    return PagePart("levers", "Levers", tuple(content)) if content else None


def _choices(overview: Overview, short: Short) -> ChoiceTable:
    """Return the table of levers. The columns of money and risk are left out if they would be empty.

    Bars show what is saved if that is known of all, otherwise the number of freed nodes.
    """
    prices, found, freed = overview.prices, overview.levers, overview.freed
    risks = {lever.risk: lever.risk.text for lever in found if lever.risk is not None}
    unit = month_of(prices.currency)
    columns = {"#": ">3", "frees": ">5"} | ({} if prices.empty else {unit: f">{max(8, len(unit))}"})
    columns |= ({"risk": "<4"} if risks else {}) | {"what": ""}
    gains = [(freed.nodes, freed.worth), *((len(lever.gain[0]), lever.gain[1]) for lever in found)]
    priced = freed.worth.saved is not None and all(worth.saved is not None for nodes, worth in gains if nodes)
    lengths = [float(worth.saved or 0) if priced else nodes for nodes, worth in gains]
    what = "what is saved" if priced else "the number of freed nodes"
    joint = any(lever.frees_together and not lever.frees for lever in found)
    last = ", and then changes that free nodes only together" if joint else ""
    this = Span("This plan", "b"), f": {_gain(*gains[0], prices.currency)}"
    return ChoiceTable(
        "What would free more (to try one, add its --what-if to this command)",
        columns,
        tuple(
            _choice(number, lever, overview, short, length)
            for number, (lever, length) in enumerate(zip(found, lengths[1:], strict=True), start=1)
        ),
        f"Risk: {'; '.join(f'{risk} = {text}' for risk, text in risks.items())}." if risks else "",
        (f"Each change by itself, by {what}{last}. To try one, add its --what-if to ", Span(overview.command, "code")),
        ChoiceRow({}, (), "", said=this, length=lengths[0]),
    )


def _choice(number: int, lever: Lever, overview: Overview, short: Short, length: float) -> ChoiceRow:
    (nodes, worth), currency = lever.gain, overview.prices.currency
    month = worth.saved_per_month
    cells = {
        "#": str(number),
        "frees": str(len(nodes)) if nodes or lever.tried else "?",
        month_of(currency): "" if month is None else money(month, ""),
        "risk": str(lever.risk or ""),
    }
    frees = f"frees {_gain(len(nodes), worth, currency)}" if nodes else "frees no node" if lever.tried else "not tried"
    said = Span(lever.controller, "b"), f": {lever.part} ", Span(lever.reason, "code"), " "
    keeps = Span(lever.severity, lever.severity), f": {frees}; keeps {count(len(lever.nodes), 'node')}. "
    risk = () if lever.risk is None else (Span(f"Risk: {lever.risk.text}.", "no"),)
    details = short(lever_details(lever, overview, short))
    return ChoiceRow(
        cells, (short(lever.what),), short(what_if_flags(lever.to_try)), details, (*said, *keeps, *risk), length
    )


def _gain(nodes: int, worth: Worth, currency: str) -> str:
    """Return the number of nodes and what they save: ``1 node, 280 $/month``."""
    month = worth.saved_per_month
    return count(nodes, "node") + ("" if month is None else f", {per_month(month, currency)}")


def lever_details(lever: Lever, overview: Overview, short: Short = str) -> str:
    """Return a sentence part about *lever*: the nodes it concerns, and what it frees, alone and with others."""
    keeps = f"{lever.reason} ({lever.severity}) keeps {count(len(lever.nodes), 'node')}"
    alone = f"alone it frees {'' if lever.tried else 'at least '}{_kinds(lever.frees, lever.worth, overview, short)}"
    if not lever.tried and not lever.frees:
        alone = "not tried"
    if not lever.together_with:
        return f"{keeps}; {alone}"
    together = f"with {'; '.join(lever.together_with)} it frees"
    return f"{keeps}; {alone}; {together} {_kinds(lever.frees_together, lever.worth_together, overview, short)}"


def _kinds(nodes: tuple[str, ...], worth: Worth, overview: Overview, short: Short) -> str:
    """Return the number of nodes with their type and what they save: ``1 (m5.2xlarge, 280 $/month)``."""
    if not nodes:
        return "none"
    price = worth.saved_per_month
    kinds = sorted({overview.nodes[name].instance_type for name in nodes} - {""})
    parts = [", ".join(kinds) if kinds else short(nodes[0]) if len(nodes) == 1 else ""]
    parts += [per_month(price, overview.prices.currency)] if price is not None else []
    text = ", ".join(filter(None, parts))
    return f"{len(nodes)} ({text})" if text else str(len(nodes))


# The drain of a node, beside the moves of its pods.


def drain_notes(plan: Plan) -> Iterator[str]:
    """Yield what the drain of a node does beside its moves, and what is expected of these."""
    for surge in plan.surges:
        if surge.restarts > len(surge.pods):
            yield f"restarts {count(surge.restarts, 'pod')} of {surge} to move {len(surge.pods)}"
    if plan.preempts:
        yield f"the scheduler preempts {plan.preempted_text}"
    if plan.robust is False:
        yield "fragile: the pods fit only if the scheduler chooses these nodes"
    if not plan.placements:
        yield "no pods to move"
    if number := len(plan.leaving):
        yield f"waits for {count(number, 'pod')} that {'is' if number == 1 else 'are'} being deleted"
    if plan.landing is not None and plan.landing.on_demand:
        spot, others = plan.landing.spot, plan.landing.on_demand
        yield f"forecast: {count(spot, 'pod')} to spot nodes, {others} to other nodes"


def making_room(plan: Plan, short: Short = str) -> str:
    """Return the heading of the moves of a *plan* that is carried out before that of another node."""
    return f"before that, {short(plan.node)}, which stays, makes room"
