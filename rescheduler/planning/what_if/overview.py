"""A summary of a plan: the machines that it frees, their size and price, and the obstacles to freeing more."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from predicates.snapshot import Snapshot
from rescheduler.planning.answers.survival import SIMULATION, Certificate
from rescheduler.planning.controllers import controllers_in
from rescheduler.planning.forms import count, cpu, memory, per_month
from rescheduler.planning.money.move_costs import PlanMoves, WorthCurve
from rescheduler.planning.money.prices import HOURS_PER_MONTH, NodeFacts, PriceList, node_facts
from rescheduler.planning.money.worth import NO_WORTH, Worth, summed, worth_by_node
from rescheduler.planning.outcome import Plan, Planning, Reason, Severity, in_steps
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Survive
from rescheduler.planning.rules.lifts import Risk
from rescheduler.planning.severity import rank
from rescheduler.planning.what_if.lifting import OF_PODS, Obstacle

#: The note for readers if :attr:`Overview.unpriced` is true.
NO_PRICE: Final = "No on-demand node has a price: the prices are for other instance types, zones or capacity types."


#: The note for readers if :attr:`Overview.levers_complete` is false.
NOT_ALL_TRIED: Final = "The time limit ended the trials of levers: there may be more (--levers-timeout)."

#: What the simulations say about plans that the daemon would not carry out, by the reason.
LEFT: Final[Mapping[Reason, str]] = {
    Reason.FRAGILE: "some of their pods fit no spot node",
    Reason.RETURNS_TO_ON_DEMAND: "most of their pods return to nodes that are not spot",
}

#: The command that makes plans.
PLAN_COMMAND: Final = "rescheduler plan"

_SOFT: Final = "PreferNoSchedule"

#: Reasons that concern the node as a whole: the blocker only names the first pod that does not fit.
_OF_THE_NODE: Final = frozenset({Reason.NO_ROOM, Reason.SPOT_POOL_SETTLING})

_DEFAULT: Final = Policy()

_NO_WORTHS: Final[Mapping[str, Worth]] = {}


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of a group of nodes."""

    nodes: int = 0
    cpu: int = 0  #: allocatable, in millicores
    memory: int = 0  #: allocatable, in bytes
    per_hour: Decimal | None = None  #: of the nodes with a price; None if none has one
    unpriced: int = 0  #: number of nodes without a price
    worth: Worth = NO_WORTH  #: what the nodes save if they are freed

    def __add__(self, other: "Totals") -> "Totals":
        """Return the totals of both groups."""
        known = [price for price in (self.per_hour, other.per_hour) if price is not None]
        return Totals(
            self.nodes + other.nodes,
            self.cpu + other.cpu,
            self.memory + other.memory,
            sum(known, Decimal(0)) if known else None,
            self.unpriced + other.unpriced,
            summed((self.worth, other.worth)),
        )

    @property
    def per_month(self) -> Decimal | None:
        """The price per month of 730 hours, or None if no price is known."""
        return None if self.per_hour is None else self.per_hour * HOURS_PER_MONTH

    @property
    def saved_per_month(self) -> Decimal | None:
        """What the nodes save per month if they are freed; 0 if there are none, None if it is not known."""
        return self.worth.net_per_month if self.nodes else Decimal(0)

    @property
    def balance_per_month(self) -> Decimal | None:
        """The same, below 0 if the pods of the nodes cost more on spot nodes than the nodes."""
        if self.nodes and self.worth.net is None:
            return None
        return self.worth.balance_per_month if self.nodes else Decimal(0)


@dataclass(frozen=True, slots=True)
class Lever:
    """A controller with one obstacle, and the nodes that the plan would free without this obstacle."""

    #: Such as ``Deployment ci/ci-cache``, ``Pod ci/job`` for a pod without a controller; for several controllers
    #: ``Selector KEY=VALUE``, ``Taint KEY``, ``Key ANNOTATION`` or ``Setting --FLAG=VALUE``.
    controller: str
    reason: Reason
    obstacle: str  #: the part to change, such as ``nodeSelector pool=ci``
    nodes: tuple[str, ...]  #: on-demand nodes with this obstacle
    frees: tuple[str, ...] = ()  #: nodes that the plan also frees if only this obstacle is lifted
    together_with: tuple[str, ...] = ()  #: further obstacles, as ``controller: obstacle``, lifted in combination
    frees_together: tuple[str, ...] = ()  #: nodes that the plan also frees if all of them are lifted
    tried: bool = True  #: False if there was no time to find all of :attr:`frees`
    changes: tuple[str, ...] = field(default=(), compare=False)  #: as texts of ``--what-if``
    changes_together: tuple[str, ...] = field(default=(), compare=False)  #: of ``together_with``
    obstacles: tuple[Obstacle, ...] = field(default=(), compare=False)  #: that :attr:`changes` remove
    partners: tuple[Obstacle, ...] = field(default=(), compare=False)  #: those of ``together_with``
    worth: Worth = field(default=NO_WORTH, compare=False)  #: of :attr:`frees`
    worth_together: Worth = field(default=NO_WORTH, compare=False)  #: of :attr:`frees_together`
    #: Of each node of :attr:`gain`.
    worths: Mapping[str, Worth] = field(default_factory=dict, compare=False)

    @property
    def to_try(self) -> tuple[str, ...]:
        """The changes to try: those of the lever, with the further ones if it frees nothing alone."""
        return self.changes if self.frees else self.changes + self.changes_together

    @property
    def edits(self) -> tuple[Obstacle, ...]:
        """The obstacles that :attr:`to_try` removes."""
        return self.obstacles if self.frees else self.obstacles + self.partners

    @property
    def risk(self) -> Risk | None:
        """The worst that is lost for good if :attr:`to_try` is done and the pods are evicted; None if nothing is."""
        found = {OF_PODS[each].risk for each in self._reasons if each in OF_PODS}
        return next((risk for risk in Risk if risk in found), None)

    @property
    def severity(self) -> Severity:
        """The worst severity of the reasons that it removes."""
        return min((reason.severity for reason in self._reasons), key=rank)

    @property
    def _reasons(self) -> tuple[Reason, ...]:
        return self.reason, *(obstacle.reason for obstacle in self.edits)

    @property
    def part(self) -> str:
        """The part to change, and what else if that alone frees nothing."""
        others = (
            "" if self.frees else "; ".join(text.removeprefix(f"{self.controller}: ") for text in self.together_with)
        )
        return f"{self.obstacle}{', with ' if others else ''}{others}"

    @property
    def what(self) -> str:
        """What to change: of whom, and which part."""
        return f"{self.controller}: {self.part}"

    @property
    def gain(self) -> tuple[tuple[str, ...], Worth]:
        """The nodes that :attr:`to_try` frees, and what they are worth."""
        return (self.frees, self.worth) if self.frees else (self.frees_together, self.worth_together)


def what_if_flags(changes: Iterable[str]) -> str:
    """Return the flags that try *changes*, quoted for a shell."""
    return " ".join(f"--what-if '{text}'" if "'" not in text else f"--what-if {shlex.quote(text)}" for text in changes)


def tried(command: str, changes: Iterable[str]) -> str:
    """Return the *command* line that plans as :attr:`Overview.command` does, with *changes*."""
    return f"{command} {what_if_flags(changes)}"


@dataclass(frozen=True, slots=True)
class RankedLevers:
    """Levers, the most useful first."""

    levers: tuple[Lever, ...]
    complete: bool  #: False if there was no time for all trials


#: The first word of a lever that is a setting of this program; the flag with its value follows.
SETTING: Final = "Setting"

NO_LEVERS: Final = RankedLevers((), complete=True)


@dataclass(frozen=True, slots=True)
class AddedRequests:
    """The total requests of the pods that a plan moves to a node."""

    cpu: int = 0  #: in millicores
    memory: int = 0  #: in bytes


@dataclass(frozen=True, slots=True)
class Point:
    """The state after some drains."""

    nodes: int  #: that are drained
    per_month: Decimal | None  #: what they save; None if it is not known
    survived: int  #: number of pools (or zones) whose loss is survived
    homeless: int  #: number of pods without a place, of all other pools together
    room: float | None  #: what is free for what the pods on spot nodes request, as a factor; None without such pods


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """The states after the drains of a plan in their order, and after those that ``--survive`` and headroom leave."""

    survive: Survive
    losses: int  #: number of pools (or zones) that can be lost
    points: tuple[Point, ...]  #: from no drain to all possible ones
    plan: Point


@dataclass(frozen=True, slots=True)
class Overview:
    """A plan with the facts and sums that all its presentations share."""

    planning: Planning
    nodes: Mapping[str, NodeFacts]  #: all on-demand nodes, and the spot nodes that the plan uses
    prices: PriceList
    on_demand: Totals  #: all on-demand nodes
    freed: Totals  #: nodes that the plan frees
    freed_by_type: Mapping[str, Totals]  #: by instance type, most nodes first
    policy: Policy = _DEFAULT  #: of the plan
    #: The controller or reason that keeps the most nodes, with their number; not looked for if there are levers.
    obstacle: tuple[str, int] = ("", 0)
    levers: tuple[Lever, ...] = ()  #: the most useful first
    levers_complete: bool = True  #: False if ``--levers-timeout`` ended the trials
    assumptions: tuple[str, ...] = ()  #: sentences that state assumptions, for example about kinds that a dump lacks
    worths: Mapping[str, Worth] = field(default_factory=dict)  #: of the nodes that are, or could be, freed; priced ones
    fallback: Totals = Totals()  #: nodes that only ``--fallback-headroom`` keeps
    left: Mapping[str, Reason] = field(default_factory=dict)  #: plans that the daemon would not carry out, by node
    returning: str = ""  #: a sentence about pods that the scheduler would return to on-demand nodes; "" if none
    held: str = ""  #: why the cluster's daemon drains nothing now; "" if that is not known
    incomplete: str = ""  #: a sentence that states what a snapshot file lacks; "" if nothing
    without_claims: str = ""  #: a sentence about nodes that stay because a file lacks objects of volumes; "" if none
    added: Mapping[str, AddedRequests] = field(default_factory=dict)  #: by target node: requests of the moved pods
    survival: Certificate | None = None  #: of the state after the plan; None if it was not computed
    survival_seconds: float = 0.0  #: duration of its computation
    tradeoff: Tradeoff | None = None  #: None if it was not computed
    moves: Callable[[], PlanMoves] = field(default=PlanMoves, compare=False)  #: only some outputs need them
    curve: WorthCurve | None = None  #: None if it was not computed
    command: str = PLAN_COMMAND  #: the command line that makes this plan, to which ``--what-if`` can be added

    @property
    def first_spot(self) -> str:
        """The change that adds the first spot nodes, if nodes stay and there are none; otherwise ""."""
        if self.planning.spot_nodes or not self.planning.rejected:
            return ""
        return f"add-spot 3 like {min(verdict.node for verdict in self.planning.verdicts)}"

    @property
    def lacking_room(self) -> int:
        """The number of nodes that only lack room on spot nodes, if it may be known what spot nodes cost; otherwise 0.

        Without any spot node, :attr:`first_spot` says what to do.
        """
        known = self.prices.has_spot and not self.first_spot
        return sum(verdict.lacks_only_room for verdict in self.planning.rejected) if known else 0

    @property
    def unpriced(self) -> bool:
        """Return whether there are prices and on-demand nodes, but no price for any of these nodes."""
        return not self.prices.empty and self.on_demand.nodes > 0 and self.on_demand.per_hour is None

    @property
    def fallback_text(self) -> str:
        """What ``--fallback-headroom`` costs, as a sentence, or "" if it keeps no node."""
        kept = self.fallback
        if not kept.nodes:
            return ""
        nodes = f"keeping {count(kept.nodes, 'node')} as fallback"
        price = kept.worth.gross_per_month if kept.worth.net_per_month is None else kept.worth.net_per_month
        if price is None:
            return f"{nodes}: {cpu(kept.cpu)} vCPU, {memory(kept.memory)}"
        least = "at least " if kept.unpriced else ""
        return f"{nodes} costs {least}{per_month(price, self.prices.currency)}"

    def per_month(self, nodes: Iterable[str]) -> Decimal | None:
        """Return the monthly price of *nodes*, or None if none has a price."""
        return _totals((self.nodes[name] for name in nodes), self.prices).per_month


def overview(
    planning: Planning,
    snapshot: Snapshot,
    prices: PriceList,
    levers: Iterable[Lever] = (),
    *,
    levers_complete: bool = True,
    assumptions: Iterable[str] = (),
    incomplete: str = "",
    held: str = "",
    moves: Callable[[], PlanMoves] = PlanMoves,
    now: datetime | None = None,
    policy: Policy = _DEFAULT,
    command: str = PLAN_COMMAND,
) -> Overview:
    """Summarize *planning*. *snapshot* and *policy* must be those that were used for planning.

    *moves* returns what the moves of the plan cost. *now* decides which commitments have ended; without it, none has.
    """
    levers, allow_returning = tuple(levers), policy.allow_returning_plans
    facts, spot = _facts(planning, snapshot)
    freed = [facts[plan.node] for plan in planning.plans]
    today = now.date() if now else date.min
    worths = worth_by_node(planning, spot | facts, snapshot.pods.get, prices, today)
    possible = _worths_of_possible(planning, facts, snapshot, prices, today) if planning.possible else worths
    left = (
        (plan.node, plan.objection(allow_fragile=policy.allow_fragile_plans, allow_returning=allow_returning))
        for plan in planning.plans
    )
    by_type: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in freed:
        by_type[node.instance_type].append(node)
    most_first = sorted(by_type.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return Overview(
        planning=planning,
        nodes=spot | facts,
        prices=prices,
        on_demand=_totals(facts.values(), prices),
        freed=_totals(freed, prices, worths),
        worths=possible,
        fallback=_totals([facts[name] for name in _kept_as_fallback(planning)], prices, possible),
        freed_by_type={name: _totals(nodes, prices, worths) for name, nodes in most_first},
        policy=policy,
        obstacle=("", 0) if levers else _obstacle(planning, snapshot),
        levers=levers,
        levers_complete=levers_complete,
        assumptions=tuple(assumptions),
        left={name: reason for name, reason in left if reason is not None},
        returning=_returning(planning, snapshot, allowed=allow_returning),
        held=held,
        moves=moves,
        incomplete=incomplete,
        without_claims=_without_claims(planning, snapshot),
        added=_added(planning, snapshot),
        command=command,
    )


def worths_of(planning: Planning, snapshot: Snapshot, prices: PriceList, today: date) -> dict[str, Worth]:
    """Return what each node with a plan is worth, by name. *snapshot* must be the one that was used for planning."""
    on_demand, spot = _facts(planning, snapshot)
    return worth_by_node(planning, spot | on_demand, snapshot.pods.get, prices, today)


def _facts(planning: Planning, snapshot: Snapshot) -> tuple[dict[str, NodeFacts], dict[str, NodeFacts]]:
    """Return the facts of all on-demand nodes, and those of the nodes that the plans use, by name.

    Leftovers go to on-demand nodes: their facts are in the first result.
    """
    targets = {placement.node for plan in planning.plans for placement in plan.moves}
    on_demand = {verdict.node: node_facts(snapshot, verdict.node, spot=False) for verdict in planning.verdicts}
    return on_demand, {name: node_facts(snapshot, name, spot=True) for name in sorted(targets)}


def _kept_as_fallback(planning: Planning) -> list[str]:
    """Return the nodes that would be freed without ``--fallback-headroom``."""
    kept = {verdict.node for verdict in planning.rejected if verdict.reason is Reason.FALLBACK_HEADROOM}
    return [plan.node for plan in planning.possible if plan.node in kept]


def _worths_of_possible(
    planning: Planning, facts: Mapping[str, NodeFacts], snapshot: Snapshot, prices: PriceList, today: date
) -> Mapping[str, Worth]:
    """Return what the nodes of all possible plans would be worth, by name."""
    possible = {plan.node for plan in planning.possible}
    others = (verdict for verdict in planning.rejected if verdict.node not in possible)
    targets = {placement.node for plan in planning.possible for placement in plan.moves}
    spot = {name: node_facts(snapshot, name, spot=True) for name in targets}
    without = replace(planning, verdicts=(*planning.possible, *others))
    return worth_by_node(without, {**spot, **facts}, snapshot.pods.get, prices, today)


def _obstacle(planning: Planning, snapshot: Snapshot) -> tuple[str, int]:
    """Return what keeps the most nodes: a controller, or a reason if the node itself is blocked or spot nodes are full.

    Return ("", 0) if no node stays.
    """
    controller, nodes = controllers_in(snapshot), Counter[str]()
    for verdict in planning.rejected:
        nodes.update(
            {
                str(item.reason) if item.pod is None or item.reason in _OF_THE_NODE else controller(item.pod)
                for item in verdict.blockers
            }
        )
    return min(nodes.items(), key=lambda pair: (-pair[1], pair[0]), default=("", 0))


def _without_claims(planning: Planning, snapshot: Snapshot) -> str:
    """Return a sentence about the nodes that stay because the objects of their pods' volumes were not read."""
    kinds = [kind for kind in ("PersistentVolumeClaim", "PersistentVolume") if not snapshot.of(kind)]
    full = [each.node for each in planning.rejected if any(item.reason is Reason.NO_ROOM for item in each.blockers)]
    nodes = [node for node in full if any(pod.cls.claims for pod in snapshot.pods_on[node].values())] if kinds else []
    if not nodes:
        return ""
    have = "has" if len(nodes) == 1 else "have"
    return (
        f"there is no {' and no '.join(kinds)}, and {count(len(nodes), 'node')} {have} pods that use one, which are "
        "assumed to fit on no spot node"
    )


def _returning(planning: Planning, snapshot: Snapshot, *, allowed: bool) -> str:
    """Return a sentence about the pods that the forecast sees on nodes that are not spot, and about a missing taint."""
    landings = [plan.landing for plan in planning.plans if plan.landing is not None]
    back = sum(landing.on_demand for landing in landings)
    if not back:
        return ""
    moved = sum(landing.spot for landing in landings) + back
    table = snapshot.nodes
    nodes = [table.nodes[table.row[verdict.node]] for verdict in planning.verdicts]
    bare = sum(all(taint.effect != _SOFT for taint in node.spec.taints) for node in nodes if node is not None)
    text = f"the scheduler would return {back} of {count(moved, 'pod')} to nodes that are not spot"
    have = "has" if bare == 1 else "have"
    if bare:
        text += (
            f": {count(bare, 'on-demand node')} {have} no {_SOFT} taint, which keeps pods away while spot nodes have "
            "room; add it, or run with --manage-soft-taint"
        )
    return text if allowed else f"{text}. The daemon drains no node of which most pods would return"


def _added(planning: Planning, snapshot: Snapshot) -> dict[str, AddedRequests]:
    """Sum up the requests of the moved pods, by target node. Pods that are gone from *snapshot* do not count."""
    added: defaultdict[str, AddedRequests] = defaultdict(AddedRequests)
    for placement in (placement for plan in planning.plans for placement in plan.moves):
        if (pod := snapshot.pods.get(str(placement.pod))) is not None:
            before, own = added[placement.node], dict(pod.cls.requests)
            added[placement.node] = AddedRequests(before.cpu + own.get("cpu", 0), before.memory + own.get("memory", 0))
    return dict(added)


def _totals(nodes: Iterable[NodeFacts], prices: PriceList, worths: Mapping[str, Worth] = _NO_WORTHS) -> Totals:
    listed = list(nodes)
    known = [price for node in listed if (price := prices.per_hour(node)) is not None]
    return Totals(
        nodes=len(listed),
        cpu=sum(node.cpu for node in listed),
        memory=sum(node.memory for node in listed),
        per_hour=sum(known, Decimal(0)) if known else None,
        unpriced=len(listed) - len(known),
        worth=summed(worths[node.name] for node in listed if node.name in worths),
    )


# What each further drain of a plan saves, and which losses of spot nodes are survived after it.

#: The number of steps in which the drains of a plan are tested.
_STEPS: Final = 8


def tradeoff(planner: Planner, circumstances: Circumstances, overview: Overview, survive: Survive) -> Tradeoff | None:
    """Return the trade-off of the plan in *overview*, which *planner* made; None without drains or spot nodes.

    Each drain leaves less room. So if the first and the last state survive all losses, the others do as well.
    """
    planning = overview.planning
    plans = planning.possible or planning.plans
    states = _States(planner, circumstances, overview, survive)
    if not plans or survive is Survive.OFF or not (first := states.certificate(())).pools:
        return None
    last = states.certificate(plans)
    numbers = sorted({round(step * len(plans) / _STEPS) for step in range(_STEPS + 1)})
    known = dict.fromkeys(numbers, first) if first.holds and last.holds else {0: first, len(plans): last}
    points = tuple(
        states.point(plans[:number], known.get(number) or states.certificate(plans[:number])) for number in numbers
    )
    chosen = points[-1] if not planning.possible else states.point(planning.plans, states.certificate(planning.plans))
    return Tradeoff(survive, len(first.pools), points, chosen)


class _States:
    """The states after plans of a planning."""

    def __init__(self, planner: Planner, circumstances: Circumstances, overview: Overview, survive: Survive) -> None:
        self._planner = planner
        self._circumstances = circumstances
        self._worths = overview.worths
        self._survive = survive

    def certificate(self, plans: Sequence[Plan]) -> Certificate:
        """Return the certificate, with a part of the usual effort."""
        steps = in_steps(plans)
        return self._planner.certificate(self._circumstances, self._survive, steps, seconds=SIMULATION / _STEPS)

    def point(self, plans: Sequence[Plan], certificate: Certificate) -> Point:
        """Return the point of the state after *plans*."""
        worth: Worth = summed(self._worths[plan.node] for plan in plans if plan.node in self._worths)
        saved = worth.gross_per_month if worth.net_per_month is None else worth.net_per_month
        if not plans and self._worths:
            saved = Decimal(0)
        return Point(
            nodes=len(plans),
            per_month=saved,
            survived=sum(pool.survived for pool in certificate.pools),
            homeless=sum(pool.homeless_pods for pool in certificate.pools),
            room=self._planner.fallback_room(self._circumstances, in_steps(plans)).share,
        )
