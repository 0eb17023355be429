"""A plan as a page for people: a summary, the freed nodes, what stands in the way, and each node."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import chain, islice, repeat
from typing import Any, Final

from predicates.snapshot import Snapshot
from rescheduler.cli.blockers import STYLES, ControllerLookup, NodeBlocks, NodeNames, controllers_in
from rescheduler.cli.console import BAD, BLANK, GOOD, HEADING, Line, styled
from rescheduler.cli.glance import (
    Shown,
    first_step,
    fitted,
    lever_table,
    node_table,
)
from rescheduler.planning.answers.losses import Homeless, PoolLoss
from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.forms import and_more, count, cpu, memory, per_month, sentence
from rescheduler.planning.money.worth import saves
from rescheduler.planning.outcome import Planning, Reason, Severity
from rescheduler.planning.policy import Policy
from rescheduler.planning.severity import reasons_of
from rescheduler.planning.what_if.overview import LEFT, NO_PRICE, SETTING, Overview, Totals

# A plan as a page: a summary sentence, the freed nodes, the obstacles to freeing more, and each node.

#: Maximum number of levers shown without ``-o wide``.
_LEVERS_SHOWN: Final = 10

_GIB: Final = 1 << 30

#: Reasons that concern the node as a whole: the blocker only names the first pod that does not fit.
_OF_THE_NODE: Final = frozenset({Reason.NO_ROOM, Reason.SPOT_POOL_SETTLING})


def page(overview: Overview, cluster: Snapshot, policy: Policy, now: datetime, *, wide: bool = False) -> Iterator[Line]:
    """Yield the lines of the page for *overview*, which was made from *cluster* at the time *now*."""
    controller = controllers_in(cluster)
    names = NodeNames.of(overview.nodes)
    summary = _Summary(overview, policy, controller, names)
    yield from summary.first_lines()
    yield from summary.details(_EVERYTHING)
    if overview.survival is not None and overview.survival.pools:
        yield BLANK
        yield from survival_lines(overview.survival, wide=wide)
    yield from lever_table(overview, names, len(overview.levers) if wide else _LEVERS_SHOWN, details=True)
    if overview.planning.verdicts:
        yield BLANK
        yield styled("Nodes in drain order", HEADING)
        if names.note:
            yield Line(names.note)
        yield from NodeBlocks(overview, names, controller, now, wide).lines()


def glance(overview: Overview, cluster: Snapshot, policy: Policy, width: int) -> Iterator[Line]:
    """Yield the lines of the page for *overview* at a glance: at most 40 for any cluster."""
    names = NodeNames.of(overview.nodes)
    summary = _Summary(overview, policy, controllers_in(cluster), names)

    def page_of(shown: Shown) -> Iterator[Line]:
        yield from summary.first_lines()
        yield from summary.details(shown)
        if overview.survival is not None and overview.survival.pools and shown.notes:
            yield BLANK
            yield from islice(survival_lines(overview.survival), _SURVIVAL_SHOWN)
        yield from lever_table(overview, names, shown.levers)

    return fitted(page_of, width)


def nodes_page(
    overview: Overview, cluster: Snapshot, policy: Policy, now: datetime, width: int, sort_by: str | None
) -> Iterator[Line]:
    """Yield the headline and one line for each node."""
    names = NodeNames.of(overview.nodes)
    yield from _Summary(overview, policy, controllers_in(cluster), names).first_lines()
    yield BLANK
    yield from node_table(overview, names, now, width, sort_by)


@dataclass(frozen=True, slots=True)
class _Summary:
    """The summary of a page: the possible savings, and the obstacles to saving more."""

    overview: Overview
    policy: Policy
    controller: ControllerLookup
    names: NodeNames

    def first_lines(self) -> Iterator[Line]:
        """Yield why nothing is drained now, what the file lacks, the headline, and what to do first."""
        if self.overview.held:
            yield styled(f"Nothing is drained now: {self.overview.held}.", BAD)
        if self.overview.incomplete:
            yield styled(sentence(self.overview.incomplete), BAD)
        if self.overview.without_claims:
            yield styled(sentence(self.overview.without_claims), BAD)
        if left := self._left_by_daemon():
            yield styled(left, BAD)
        yield styled(self.headline(), GOOD if self.overview.planning.plans else HEADING)
        yield from first_step(self.overview)
        if lacking := self.overview.lacking_room:
            what = f"What to buy for {count(lacking, 'node')} without room on spot nodes"
            yield Line(f"{what}: {self.overview.command} --buy", command=True)

    def _left_by_daemon(self) -> str:
        """Return a sentence about the plans that the daemon would not carry out, by their simulations, or ""."""
        left = sorted(self.overview.left.items(), key=lambda item: item[1])
        if not left:
            return ""
        numbers = Counter(reason for _, reason in left)
        why = "; ".join(f"{LEFT[reason]} ({reason}: {number})" for reason, number in numbers.items())
        named = self.names.short(left[0][0]) + and_more(len(left) - 1)
        return f"The daemon would not drain {named}, which count below: in simulations, {why}."

    def headline(self) -> str:
        """Summarize the plan in one sentence."""
        overview, planning = self.overview, self.overview.planning
        total = count(planning.on_demand_nodes, "on-demand node")
        worth = self._worth(overview.freed) if planning.plans else ""
        return f"{len(planning.plans)} of {total} drainable{worth}{self._main_obstacle()}."

    def _worth(self, totals: Totals) -> str:
        if saved := saves(totals.worth, self.overview.prices.currency, at_least=bool(totals.unpriced)):
            return f"; {saved}"
        return f" ({cpu(_rounded(totals.cpu, 1000))} vCPU, {memory(_rounded(totals.memory, _GIB))})"

    def _main_obstacle(self) -> str:
        """Return the last part of the sentence: the most useful lever, otherwise the most frequent obstacle."""
        if self.overview.first_spot:
            return "; there is no spot node: try add-spot"
        if self.overview.levers and (setting := self.overview.levers[0]).controller.startswith(SETTING):
            return f"; {setting.controller.rpartition(' ')[2]} would free {len(setting.frees)} more"
        if self.overview.levers:
            obstacle, number = self.overview.levers[0].controller, len(self.overview.levers[0].nodes)
        elif nodes := self._obstacles():
            obstacle, number = min(nodes.items(), key=lambda pair: (-pair[1], pair[0]))
        else:
            return ""
        return f"; {self.names.short(obstacle.partition(' ')[2] or obstacle)} blocks {number}"

    def _obstacles(self) -> Counter[str]:
        """Count the nodes by controller, or by reason if the node itself is blocked or spot nodes are full."""
        nodes: Counter[str] = Counter()
        for verdict in self.overview.planning.rejected:
            nodes.update(
                {
                    str(item.reason) if item.pod is None or item.reason in _OF_THE_NODE else self.controller(item.pod)
                    for item in verdict.blockers
                }
            )
        return nodes

    def details(self, shown: Shown) -> Iterator[Line]:
        """Yield the totals by instance type, the reasons, and the limitations of the result."""
        planning = self.overview.planning
        if planning.plans:
            yield BLANK
            yield from self._freed(shown.types)
        if planning.rejected:
            yield BLANK
            yield from self._rejection_counts(shown.reasons)
        notes = list(self._notes())
        if notes and shown.notes:
            yield BLANK
            yield from notes[: shown.notes]
            yield from _more(len(notes) - shown.notes, "note")

    def _freed(self, shown: int) -> Iterator[Line]:
        overview = self.overview
        yield styled(f"Freed {_moving(overview.planning)}", HEADING)
        types = list(overview.freed_by_type.items())
        others = [("other types", *self._others([totals for _, totals in types[shown:]]))] if types[shown:] else []
        yield from _table(
            [(name or "(unknown type)", *self._amounts(totals)) for name, totals in types[:shown]]
            + others
            + [("in total", *self._amounts(overview.freed)), ("all on-demand", *self._amounts(overview.on_demand))]
        )

        if overview.curve is not None and overview.curve.text:
            yield Line(overview.curve.text, 1)

    def _others(self, hidden: Sequence[Totals]) -> tuple[str, ...]:
        """Return the amounts of several instance types together."""
        known = [totals.per_hour for totals in hidden if totals.per_hour is not None]
        return self._amounts(
            Totals(
                nodes=sum(totals.nodes for totals in hidden),
                cpu=sum(totals.cpu for totals in hidden),
                memory=sum(totals.memory for totals in hidden),
                per_hour=sum(known, Decimal(0)) if known else None,
                unpriced=sum(totals.unpriced for totals in hidden),
            )
        )

    def _amounts(self, totals: Totals) -> tuple[str, ...]:
        price = "" if totals.per_month is None else per_month(totals.per_month, self.overview.prices.currency)
        unpriced = f"{count(totals.unpriced, 'node')} without a price" if totals.unpriced and price else ""
        return count(totals.nodes, "node"), f"{cpu(totals.cpu)} vCPU", memory(totals.memory), price, unpriced

    def _rejection_counts(self, shown: int) -> Iterator[Line]:
        rejected = self.overview.planning.rejected
        stay = "stays" if len(rejected) == 1 else "stay"
        yield styled(f"{count(len(rejected), 'node')} {stay} (a node can have several reasons)", HEADING)
        rows = reasons_of(self.overview.planning)
        longest = max(map(len, Severity))
        cells = [(reason, count(number, "node"), f"{severity:<{longest}}") for reason, severity, number in rows[:shown]]
        yield from _table(cells, [STYLES[severity] for _, severity, _ in rows[:shown]])
        yield from _more(len(rows) - shown, "reason", 1)

    def _notes(self) -> Iterator[Line]:
        planning = self.overview.planning
        if self.overview.returning:
            yield Line(sentence(self.overview.returning))
        if self.overview.fallback_text:
            yield Line(sentence(self.overview.fallback_text))
        for plan in planning.plans:
            if plan.preempts:
                yield Line(
                    f"For the pods of {self.names.short(plan.node)}, the scheduler preempts {plan.preempted_text}."
                )
        if planning.timed_out:
            yield Line(f"The search timed out; at most {count(planning.upper_bound or 0, 'node')} can be drained.")
        if str(planning.pending):
            yield Line(f"{planning.pending}.")
        has_nodes = bool(planning.on_demand_nodes or planning.spot_nodes or not self.overview.incomplete)
        if not planning.on_demand_nodes and has_nodes:
            yield Line(f"No node has the label {self.policy.on_demand_label} (--on-demand-node-label).")
        if not planning.spot_nodes and has_nodes:
            yield Line(f"No node has the label {self.policy.spot_label} (--spot-node-label).")
        if self.overview.unpriced:
            yield Line(NO_PRICE)
        for assumption in self.overview.assumptions:
            yield Line(f"Note: {assumption}")


def _moving(planning: Planning) -> str:
    """Return how many pods move, also of those that make room, and to how many nodes."""
    targets = {placement.node for plan in planning.plans for placement in plan.moves}
    staying = targets & {verdict.node for verdict in planning.verdicts}
    spot, stay = len(targets - staying), count(len(staying), "on-demand node")
    where = [f"{spot:,} of {count(planning.spot_nodes, 'spot node')}"] if spot else []
    where += [f"{stay} that {'stays' if len(staying) == 1 else 'stay'}"] if staying else []
    return f"by moving {count(planning.moved_pods, 'pod')} to {' and '.join(where)}" if where else "without moving pods"


#: Lines about the loss of spot nodes at a glance.
_SURVIVAL_SHOWN: Final = 2

#: All rows of all parts.
_EVERYTHING: Final = Shown(*[1 << 30] * 4)


def _more(number: int, noun: str, level: int = 0) -> Iterator[Line]:
    if number > 0:
        yield Line(f"{number} more {noun}{'' if number == 1 else 's'} with -o wide.", level)


def _rounded(amount: int, unit: int) -> int:
    """Round *amount* to a multiple of *unit*, unless it is small."""
    return amount if amount < 10 * unit else round(amount / unit) * unit


def _table(rows: Sequence[tuple[str, ...]], styles: Sequence[dict[str, Any]] = ()) -> Iterator[Line]:
    """Yield *rows* with aligned columns: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for (first, *others), style in zip(rows, chain(styles, repeat({}))):  # noqa: B905 - as many as there are rows
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True) if width]
        yield styled("  ".join([first.ljust(widths[0]), *cells]).rstrip(), style, 1)


# The certificate of a plan: which pools of spot nodes may be lost.

#: Maximum number of pools, and of controllers of a pool, that are listed without ``-o wide``.
_POOLS: Final = 3
_CONTROLLERS: Final = 2


def survival_lines(certificate: Certificate, *, wide: bool = False) -> Iterator[Line]:
    """Yield one line if the certificate holds, otherwise the pools with the most homeless pods."""
    if not certificate.pools:
        return
    what, number = str(certificate.survive), len(certificate.pools)
    if certificate.holds:
        added = max(pool.added for pool in certificate.pools)
        more = f", if an autoscaler adds {count(added, 'node')}" if added else ""
        yield Line(f"Survives the loss of any one {what} of spot nodes ({count(number, what)}){more}.")
        return
    worst = certificate.worst
    yield styled(f"Would not survive the loss of {len(worst)} of {count(number, what)} of spot nodes", HEADING)
    listed = worst if wide else worst[:_POOLS]
    for pool in listed:
        yield from _pool(pool, wide=wide)
    if len(listed) < len(worst):
        yield Line(f"{len(worst) - len(listed)} more with -o wide.", 1)


def _pool(pool: PoolLoss, *, wide: bool) -> Iterator[Line]:
    name = f"{pool.pool} ({count(pool.nodes, 'node')})"
    if not pool.homeless:
        yield Line(f"{name}: not judged within the limit of simulated pods", 1)
        return
    text = f"{name}: {pool.homeless_pods} of {count(pool.pods, 'pod')} without a place"
    if (needed := pool.needed) is not None:
        amounts = f"{cpu(needed.cpu)} vCPU, {memory(needed.memory)}"
        text += f"; they need {amounts}: at least {count(needed.nodes, 'node')} like {needed.like}"
    yield Line(text, 1)
    listed = pool.homeless if wide else pool.homeless[:_CONTROLLERS]
    yield from (Line(_controller(each), 2) for each in listed)
    if len(listed) < len(pool.homeless):
        yield Line(f"and pods of {count(len(pool.homeless) - len(listed), 'more controller')}", 2)


def _controller(homeless: Homeless) -> str:
    priority = f", priority {homeless.priority}" if homeless.priority else ""
    return f"{homeless.controller}{priority}: {count(len(homeless.pods), 'pod')}: {homeless.why}"
