"""The inputs that the verdicts on all nodes share, while neither the snapshot nor the circumstances change."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

import numpy as np

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.nodes import CPU
from predicates.objects import Namespace, Pod, Unreadable
from predicates.snapshot import Snapshot
from rescheduler.planning.budgets import Budgets, RemainingDisruptions
from rescheduler.planning.forms import instant
from rescheduler.planning.money.move_costs import MoveWorth
from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from rescheduler.planning.node_worths import NodeWorths
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, Planning, Purpose, Reason, Verdict
from rescheduler.planning.placement.forecast import Forecaster
from rescheduler.planning.placement.packing import EVALUATIONS_PER_SECOND, Effort, Room, Sizes
from rescheduler.planning.placement.pending import PendingRoom, QueuedClass, pending_room
from rescheduler.planning.placement.preemption import YieldingPods
from rescheduler.planning.plain_pods import PlainPods
from rescheduler.planning.policy import (
    Circumstances,
    Deadlines,
    Destination,
    DrainOrder,
    Leftovers,
    Now,
    Policy,
    Surging,
)
from rescheduler.planning.pool_shares import PoolShares
from rescheduler.planning.quotas import Quotas
from rescheduler.planning.replacements import Replacements
from rescheduler.planning.rules.candidates import Groups, groups, node_blockers, starting_taints
from rescheduler.planning.rules.declared import Facts, Fate, PodRules, pod_rules
from rescheduler.planning.rules.gangs import Gangs
from rescheduler.planning.rules.leftovers import receivers, spot_first
from rescheduler.planning.rules.minimum import (
    Minimum,
    OwnerCounts,
    RemainingReplicas,
    watched_minimum,
)
from rescheduler.planning.rules.owners import Owners, pod_status
from rescheduler.planning.rules.pins import Pins, UnreadableObjects
from rescheduler.planning.rules.pod_rules import RULES
from rescheduler.planning.rules.volumes import Volumes
from rescheduler.planning.surges import Surges

# The inputs that the verdicts on all nodes share, as one value. Verdicts can be reused while it is unchanged.
#
# A verdict also depends on facts of its own node: its pods and their edits (annotations and status), the budgets that
# select them, its cooldown and vetoes, and deadlines that pass; and on a few of other nodes. They are checked in
# :mod:`rescheduler.planning.answers.single`.

#: Replaces the time in circumstances that are compared.
_ANY_TIME: Final = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommonGround:
    """The inputs of planning that concern all nodes, except for the policy."""

    nodes: tuple[int, int]  #: counts of changes to nodes, and to everything else that all filters depend on
    pods: int  #: unchanged while each node has equal pods
    generation: int
    versions: Mapping[str, int]  #: without PodDisruptionBudgets
    selection: object  #: changes with the selectors of PodDisruptionBudgets
    unreadable: tuple[Unreadable, ...]
    pending: tuple[QueuedClass, ...]  #: the pending pods that may take room
    status: Mapping[str, tuple[bool, int]]  #: what controllers are judged by, if the policy asks for it
    circumstances: Circumstances  #: without the time, cooldowns, vetoes, and commitments that have ended


def common_ground(
    snapshot: Snapshot,
    policy: Policy,
    budgets: Budgets,
    pending: tuple[QueuedClass, ...],
    circumstances: Circumstances,
) -> CommonGround:
    """Return the ground of the current *snapshot*.

    Edits of pods, the replacement of pods by equal ones on the same nodes, and the status of budgets do not change it.
    """
    return CommonGround(
        nodes=(snapshot.node_versions, snapshot.epoch),
        pods=snapshot.balance.version(),
        generation=snapshot.generation,
        versions={kind: count for kind, count in snapshot.versions.items() if kind != "PodDisruptionBudget"},
        selection=budgets.selection,
        unreadable=snapshot.unreadable,
        pending=pending,
        status=pod_status(snapshot) if policy.judge_controllers else {},
        circumstances=replace(
            timeless(circumstances), cooling={}, vetoes={}, prices=circumstances.prices.on(circumstances.now.date())
        ),
    )


def timeless(circumstances: Circumstances) -> Circumstances:
    """Return *circumstances* without the time, for comparisons."""
    return replace(circumstances, now=_ANY_TIME)


# The order in which on-demand nodes are considered for a drain.
#
# The order decides which nodes come first. It does not change which nodes may be drained, or how many.

_Key: TypeAlias = tuple[object, ...]

#: Stands in for a missing creation time: such nodes count as the newest.
_NEWEST: Final = datetime.max.replace(tzinfo=UTC)


def in_drain_order(names: Iterable[str], shared: "PlanningRound") -> tuple[str, ...]:
    """Return the nodes *names*, which are sorted by requested CPU and name, in the order of *policy*.

    Nodes that have reached the maximum age come first. Nodes that are equal in the order of *policy* remain sorted by
    requested CPU and name. Nodes that commitments pay anyway come after all others; they pay first for nodes that rules
    keep. Nodes with pods of the namespaces `last` of *circumstances* come last.
    """
    names, circumstances = list(_in_order_of_policy(names, shared)), shared.circumstances
    if circumstances.prices.commitments:
        parts = shared.worths.cover(sorted(names, key=shared.is_kept))
        names.sort(key=parts.__contains__)
    if circumstances.last:
        names.sort(key=lambda name: _last(name, shared.snapshot, circumstances.last))
    return tuple(names)


def _in_order_of_policy(names: Iterable[str], shared: "PlanningRound") -> Iterable[str]:
    policy, circumstances = shared.policy, shared.circumstances
    if policy.drain_order is DrainOrder.LEAST_REQUESTED and not policy.max_node_age:
        return names
    nodes = [node_facts(shared.snapshot, name, spot=False) for name in names]
    ordered = sorted(nodes, key=lambda node: _key(node, shared))
    return [node.name for node in sorted(ordered, key=lambda node: not _expired(node, policy, circumstances.now))]


def _last(node: str, snapshot: Snapshot, numbers: Mapping[str, int]) -> int:
    return max((numbers.get(pod.namespace, 0) for pod in snapshot.pods_on[node].values()), default=0)


def _next_expiry(names: Iterable[str], snapshot: Snapshot, policy: Policy, now: datetime) -> datetime | None:
    """Return when the next of the nodes *names* reaches the maximum age, or None if none will."""
    if not policy.max_node_age:
        return None
    created = (instant(node_facts(snapshot, name, spot=False).created) for name in names)
    expiries = (moment + timedelta(seconds=policy.max_node_age) for moment in created if moment is not None)
    return min((moment for moment in expiries if moment > now), default=None)


def _key(node: NodeFacts, shared: "PlanningRound") -> _Key:
    match shared.policy.drain_order:
        case DrainOrder.COST:
            return _by_cost(node, shared.circumstances.prices)
        case DrainOrder.WORTH:
            # What commitments pay follows from the order.
            return shared.worths.of(node.name, shared.must_move, unpaid=True).rank
        case DrainOrder.AGE:
            return (_created(node),)
        case DrainOrder.LEAST_REQUESTED:
            return ()


def _by_cost(node: NodeFacts, prices: PriceList) -> _Key:
    """Sort by price, the most expensive node first, then nodes without a price by vCPU and memory, largest first."""
    price = prices.per_hour(node)
    return price is None, -(price if price is not None else Decimal(0)), -node.cpu, -node.memory


def _created(node: NodeFacts) -> datetime:
    return instant(node.created) or _NEWEST


def _expired(node: NodeFacts, policy: Policy, now: datetime) -> bool:
    """Return whether *node* has reached ``--max-node-age``. A node without a creation time has not."""
    created = instant(node.created)
    if not policy.max_node_age or created is None:
        return False
    return (now - created).total_seconds() >= policy.max_node_age


# The duration of a drain under a PodDisruptionBudget that allows only some of a node's pods to be evicted at a time.
#
# Under such a budget pods are evicted in steps: as many pods as the budget allows are evicted, their replacement pods
# become Ready, and the budget allows the next evictions.

#: The assumed time in seconds from the creation of a pod until it is Ready, if there is no data.
READY_SECONDS: Final = 30.0

#: Pods that became Ready later than this after their creation were probably restarted, and are ignored. In seconds.
_LONGEST: Final = 3600.0

#: The API's default of ``terminationGracePeriodSeconds``.
_GRACE: Final = 30


class Steps:
    """Estimates of the steps for the budgets and pods of *snapshot*. Valid until the snapshot changes.

    The first call takes one pass over all pods.
    """

    def __init__(self, snapshot: Snapshot, budgets: Budgets, policy: Policy) -> None:
        self._snapshot = snapshot
        self._budgets = budgets
        self._policy = policy
        self._guarded: dict[str, list[Pod]] | None = None  #: Ready pods by the budget that guards them
        self._ready_seconds: dict[str, float] = {}
        self._estimated: set[str] = set()

    def too_slow(self, key: str, pods: Sequence[Pod], allowed: int) -> Blocker | None:
        """Return a blocker if *pods* of one node cannot be evicted in steps under budget *key*, or None.

        The budget allows *allowed* evictions at a time.
        """
        if len(pods) <= allowed:
            return None
        policy = self._policy
        self._estimated.add(key)
        grace = max(min(_grace(pod), policy.max_graceful_termination) for pod in pods)
        ready = self.ready_seconds(key)
        if grace + ready <= policy.pod_eviction_timeout:
            return None
        setting = "--pod-eviction-timeout" if policy.destination is Destination.SPOT else "drain.evictionTimeout"
        detail = (
            f"PodDisruptionBudget {key} allows {allowed} evictions at a time, {len(pods)} of its pods are on this "
            f"node, and a step takes {grace + ready:.0f} s ({grace:.0f} s to terminate, {ready:.0f} s until the "
            f"replacement pod is Ready); {setting} is {policy.pod_eviction_timeout:.0f} s"
        )
        return Blocker(Reason.BUDGET_TOO_SLOW, detail, pods[0].key)

    def take_estimated(self) -> frozenset[str]:
        """Return the budgets for which :meth:`too_slow` has used the times of other pods since the last call."""
        estimated, self._estimated = frozenset(self._estimated), set()
        return estimated

    def ready_seconds(self, key: str) -> float:
        """Return the 90th percentile of the seconds that pods of budget *key* took from creation to Ready."""
        if (seconds := self._ready_seconds.get(key)) is None:
            if self._guarded is None:
                self._guarded = self._by_budget()
            seconds = self._ready_seconds[key] = _ninetieth_percentile(self._guarded.get(key, ()))
        return seconds

    def _by_budget(self) -> dict[str, list[Pod]]:
        guarded: dict[str, list[Pod]] = {}
        keys_of = self._budgets.of
        for pod in self._snapshot.pods.values():
            for key in keys_of(pod):
                guarded.setdefault(key, []).append(pod)
        return guarded


def _ninetieth_percentile(pods: Sequence[Pod]) -> float:
    durations = sorted(seconds for pod in pods if (seconds := _seconds_until_ready(pod)) is not None)
    return durations[math.ceil(0.9 * len(durations)) - 1] if durations else READY_SECONDS


def _seconds_until_ready(pod: Pod) -> float | None:
    created, ready = instant(pod.creation_timestamp), instant(pod.ready_since)
    if created is None or ready is None:
        return None
    seconds = (ready - created).total_seconds()
    return seconds if 0 <= seconds <= _LONGEST else None


def _grace(pod: Pod) -> int:
    seconds = pod.cls.spec.termination_grace_period_seconds
    return _GRACE if seconds is None else seconds


@dataclass(frozen=True, slots=True)
class PlanningRound:
    """The inputs that all candidates of one round share."""

    ground: CommonGround
    changes: int  #: of the snapshot
    snapshot: Snapshot
    policy: Policy
    groups: Groups
    room: Room
    pod_rules: PodRules
    circumstances: Circumstances
    forecaster: Forecaster
    minimum: Minimum
    budgets: Budgets
    steps: Steps
    unreadable: UnreadableObjects
    pins: Pins
    counts: OwnerCounts
    gangs: Gangs
    replacements: Replacements
    volumes: Volumes
    quotas: Quotas
    owners: Owners | None  #: None: controllers are read before a drain
    surges: Surges | None  #: None: no pods are moved by rolling updates
    order_until: datetime | None  #: the instant at which the drain order may change
    pending: PendingRoom
    worths: NodeWorths
    kind: DrainKind = DrainKind.TO_SPOT  #: of the plans that are made
    only: frozenset[str] | None = None  #: UIDs of the pods that leave a node which stays; None: all leave their node
    plain: PlainPods = field(init=False, compare=False)

    def __post_init__(self) -> None:
        plain = PlainPods(self.pod_rules, self.owners, self.replacements, self.volumes, self.pins)
        object.__setattr__(self, "plain", plain)

    def remaining(self) -> RemainingDisruptions:
        """Return the evictions that budgets and controllers allow before any plan uses them."""
        too_slow = self.steps.too_slow if self.policy.budgets_in_steps else None
        replicas = RemainingReplicas(self.counts) if self._reaches_spot else None
        return RemainingDisruptions(self.budgets, too_slow, replicas=replicas)

    def gives_up(self, pods: Iterable[Pod]) -> bool:
        """Return whether a namespace of *pods* has too many objects to judge new classes of pods in this round."""
        given_up = self.budgets.given_up | self.replacements.given_up
        return bool(given_up) and any(pod.namespace in given_up for pod in pods)

    def floors(self, evicted: Iterable[Pod], pods: Iterable[Pod]) -> list[Blocker]:
        """Return the blockers of controllers that would keep too few replicas if *pods* followed *evicted*."""
        if not self._reaches_spot:
            return []
        remaining = RemainingReplicas(self.counts)
        remaining.take(remaining.groups([pod for pod in evicted if not pod.cls.terminating]))
        return remaining.blockers(remaining.groups(pods))

    @property
    def _reaches_spot(self) -> bool:
        """Whether pods may go to a spot node; otherwise none leaves the on-demand nodes."""
        if self.policy.destination is Destination.SPOT:
            return True
        return not self.groups.spot.rows_set.isdisjoint(self.groups.spot_rows.tolist())

    def must_move(self, node: str) -> list[Pod]:
        """Return the pods of *node* that must move before it is empty. Some may not be evictable."""
        pods, rules = self.snapshot.pods_on[node], self.pod_rules
        stay = {pod.key for pod in self.plain.others(pods.values()) if rules.fate(pod) is Fate.STAYS}
        return [pod for key, pod in sorted(pods.items()) if key not in stay and not pod.cls.terminating]

    def is_kept(self, node: str) -> bool:
        """Return whether rules keep *node* or one of its pods, whatever there is room for.

        Cooldowns and vetoes, which end soon, do not count.
        """
        table, circumstances = self.snapshot.nodes, replace(self.circumstances, cooling={}, vetoes={})
        found = table.nodes[table.row[node]]
        if found is not None and node_blockers(found, self.policy, circumstances):
            return True
        return any(map(self._is_kept, self.plain.others(self.snapshot.pods_on[node].values())))

    def _is_kept(self, pod: Pod) -> bool:
        fate, surges = self.pod_rules.fate(pod), self.surges
        if isinstance(fate, Blocker):
            return surges is None or not surges.lifts(pod, self.pod_rules.blockers(pod))
        moves = fate is Fate.MOVES and self.policy.leftovers is not Leftovers.MOVE
        return moves and self.pins.of(self.replacements.of(pod).cls) is not None

    def worth_of(self, node: str) -> MoveWorth:
        """Return what *node* is worth for the moves of its pods."""
        return self.worths.of(node, self.must_move)

    def worth_of_plan(self, plan: Plan) -> MoveWorth:
        """Return what the node of *plan* is worth for all moves of it, also of the pods that make room first."""
        given = [self.snapshot.pods[str(placement.pod)] for each in plan.first for placement in each.placements]
        return self.worths.of(plan.node, self.must_move, given=given)

    def removing(self, nodes: Sequence[str]) -> "PlanningRound":
        """Return the inputs for the removal of *nodes*, whose pods may go to any other node if the policy says so.

        Pending pods go to one of *nodes*, the last one first, only if no other node accepts them.
        """
        if self.policy.destination is Destination.SPOT:
            return self
        leaving = {self.snapshot.nodes.row[name] for name in nodes if name in self.snapshot.nodes.row}
        targets = Targets([row for row in self.groups.spot.rows.tolist() if row not in leaving])
        remaining = replace(self.groups, on_demand=tuple(nodes), spot=targets)
        room = replace(self.room, targets=targets, sizes=Sizes(self.snapshot, targets))
        others = replace(self, groups=remaining, room=room)
        return replace(others, pending=others.pending_room(self.ground.pending))

    def with_leftovers(self, leaving: Collection[str]) -> "PlanningRound":
        """Return the inputs with which leftovers may go to on-demand nodes that stay: all that take pods but *leaving*.

        Those with the least room come last among the targets, and all other pods go to spot nodes only.
        """
        snapshot, is_spot = self.snapshot, self.forecaster.spot
        free, staying = snapshot.nodes.free[:, CPU], [name for name in self.groups.on_demand if name not in leaving]
        rows = receivers(staying, snapshot, self.policy, self.circumstances, self.unreadable)
        targets = Targets([*self.groups.spot.rows.tolist(), *sorted(rows, key=lambda row: -int(free[row]))])
        home = snapshot.nodes.alive & ~is_spot
        home[[snapshot.nodes.row[name] for name in self.groups.on_demand]] = False
        home[rows] = True
        filters = Filters(snapshot, kubelets=True, others=(spot_first(self.pins, is_spot),))
        room = Room(snapshot, filters, targets, Sizes(snapshot, targets), "nodes", self.room.yielding)
        pins = self.pins
        return replace(
            self,
            kind=DrainKind.LEFTOVERS,
            room=room,
            forecaster=replace(self.forecaster, home=lambda cls: is_spot if pins.of(cls) is None else home),
            pins=Pins(snapshot, np.array([], np.intp)),
            volumes=Volumes(snapshot, filters, self.replacements, targets.rows),
        )

    def draining(self, node: str, purpose: Purpose) -> "PlanningRound":
        """Return the inputs for a drain of *node* that has begun for *purpose*."""
        match purpose.kind:
            case DrainKind.LEFTOVERS:
                return self.with_leftovers([node])
            case DrainKind.MAKES_ROOM:
                return replace(self, kind=DrainKind.MAKES_ROOM, only=purpose.only)
            case DrainKind.TO_SPOT:
                return self

    def pending_room(self, queued: Sequence[QueuedClass]) -> PendingRoom:
        """Return where the *queued* pods go: to a target, or else to the on-demand nodes, the last one first."""
        others = [self.snapshot.nodes.row[name] for name in reversed(self.groups.on_demand)]
        return pending_room(queued, self.snapshot, self.room.filters, self.groups.spot, others)

    def effort(self, nodes: int = 1) -> Effort:
        """Return the effort allowed beyond first-fit, divided equally among *nodes*."""
        return Effort(int(self.policy.planning_timeout * EVALUATIONS_PER_SECOND) // max(1, nodes))

    def is_reordered(self, now: datetime) -> bool:
        """Return whether the drain order has changed because time has passed."""
        return self.order_until is not None and now >= self.order_until

    def at(self, circumstances: Circumstances) -> "PlanningRound":
        """Return the inputs at the time of *circumstances*, which must have the same ground."""
        now = Now(circumstances.now, circumstances.deadlines)
        return replace(self, circumstances=circumstances, pod_rules=self.pod_rules.at(now))

    def during_drain(self, evicted: Collection[str]) -> "PlanningRound":
        """Return the inputs for a node whose drain has *evicted* pods (UIDs). Then ``--min-worth`` stops it no more."""
        policy = replace(self.policy, min_worth=0.0) if evicted and self.policy.min_worth else self.policy
        return replace(self, policy=policy, pod_rules=self.pod_rules.during_drain(evicted))

    def after_changes(self, budgets: Budgets) -> "PlanningRound":
        """Return the inputs after changes of pods and *budgets* that do not change the ground."""
        counted = watched_minimum(
            self.snapshot, self.policy.min_on_demand_nodes, self.groups.on_demand, self.circumstances
        )
        steps = Steps(self.snapshot, budgets, self.policy)
        owners = None if self.owners is None else Owners(self.snapshot, self.policy)
        changed = replace(
            self, changes=self.snapshot.changes, minimum=counted, budgets=budgets, steps=steps, owners=owners
        )
        by_pods = self.policy.drain_order is DrainOrder.WORTH or self.circumstances.prices.commitments
        return changed.in_order() if by_pods else changed

    def in_order(self) -> "PlanningRound":
        """Return the same with the on-demand nodes in drain order, until that changes by the time."""
        cpu, row = self.snapshot.nodes.requested[:, CPU], self.snapshot.nodes.row
        names = sorted(self.groups.on_demand, key=lambda name: (int(cpu[row[name]]), name))
        deadlines, now, prices = Deadlines(), self.circumstances.now, self.circumstances.prices
        ordered = in_drain_order(names, self.at(replace(self.circumstances, deadlines=deadlines)))
        older = _next_expiry(ordered, self.snapshot, self.policy, now)
        ends = older, prices.next_end(now.date()), deadlines.take()
        until = min((end for end in ends if end is not None), default=None)
        return replace(self, groups=replace(self.groups, on_demand=ordered), order_until=until)

    def planning(self, verdicts: Iterable[Verdict]) -> Planning:
        """Return the planning with these *verdicts* and the numbers of nodes."""
        nodes = self.groups
        return Planning(tuple(verdicts), len(nodes.on_demand), nodes.spot_nodes, pending=self.pending.taken)


def new_round(
    snapshot: Snapshot,
    policy: Policy,
    filters: Filters,
    budgets: Budgets,
    ground: CommonGround,
    circumstances: Circumstances,
    replacements: Replacements,
) -> PlanningRound:
    """Return the shared inputs for the current state of *snapshot*. *ground* is the ground of *circumstances*."""
    unreadable = UnreadableObjects(snapshot.unreadable)
    node_groups = groups(snapshot, policy, circumstances.ending | unreadable.nodes, circumstances.settling)
    spot = np.zeros(len(snapshot.nodes), np.bool_)
    spot[node_groups.spot_rows] = True
    counts = OwnerCounts(snapshot, frozenset(snapshot.nodes.names[row] for row in node_groups.spot_rows))
    gangs = Gangs(snapshot)
    to_spot = policy.destination is Destination.SPOT
    targets = node_groups.spot_rows if to_spot else node_groups.spot.rows
    yielding = YieldingPods(snapshot, node_groups.spot.rows.tolist(), policy)
    room = Room(
        snapshot, filters, node_groups.spot, Sizes(snapshot, node_groups.spot), yielding=yielding if to_spot else None
    )
    shared = PlanningRound(
        ground=ground,
        changes=snapshot.changes,
        snapshot=snapshot,
        policy=policy,
        groups=node_groups,
        room=room if to_spot else replace(room, targets_name="nodes"),
        pod_rules=_pod_rules(snapshot, policy, budgets, counts, gangs, circumstances),
        circumstances=circumstances,
        forecaster=Forecaster(
            snapshot, filters, spot, replacements, PoolShares(snapshot, node_groups.spot_rows, policy), room.yielding
        ),
        minimum=watched_minimum(snapshot, policy.min_on_demand_nodes, node_groups.on_demand, circumstances),
        budgets=budgets,
        steps=Steps(snapshot, budgets, policy),
        unreadable=unreadable,
        pins=Pins(
            snapshot, node_groups.spot_rows if to_spot else np.array([], np.intp), starting_taints(snapshot, policy)
        ),
        counts=counts,
        gangs=gangs,
        replacements=replacements,
        volumes=Volumes(snapshot, filters, replacements, targets),
        quotas=Quotas(snapshot, node_groups.on_demand),
        owners=Owners(snapshot, policy) if policy.judge_controllers else None,
        surges=None if policy.surge is Surging.OFF else Surges(snapshot, policy, counts, replacements),
        order_until=None,
        pending=PendingRoom(),
        worths=NodeWorths(snapshot, filters, node_groups.spot.rows, counts, circumstances, policy.spot_pool_labels),
    )
    shared = shared.in_order()
    return replace(shared, pending=shared.pending_room(ground.pending))


def _pod_rules(
    snapshot: Snapshot,
    policy: Policy,
    budgets: Budgets,
    counts: OwnerCounts,
    gangs: Gangs,
    circumstances: Circumstances,
) -> PodRules:
    """Return the rules about pods, and what they may read."""

    def namespace_labels(name: str) -> Mapping[str, str]:
        namespace = snapshot.of("Namespace").get(name)
        return namespace.metadata.labels if isinstance(namespace, Namespace) else {}

    facts = Facts(
        policy,
        budgets.guards,
        waits_for_terminating=policy.wait_for_terminating,
        namespace_labels=namespace_labels,
        counts=counts,
        gangs=gangs,
    )
    return pod_rules(RULES, facts, Now(circumstances.now, circumstances.deadlines))
