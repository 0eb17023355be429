"""The inputs that the verdicts on all nodes share, while neither the snapshot nor the circumstances change."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from predicates.filters import Filters
from predicates.objects import Namespace, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.budgets import Budgets, RemainingDisruptions
from rescheduler.planning.deadlines import Now
from rescheduler.planning.drain_order import in_drain_order, next_expiry
from rescheduler.planning.ground import Ground
from rescheduler.planning.outcome import Blocker, Planning, Verdict
from rescheduler.planning.placement.forecast import Forecaster
from rescheduler.planning.placement.packing import EVALUATIONS_PER_SECOND, Effort
from rescheduler.planning.placement.spot_room import Room, Sizes
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.quotas import Quotas
from rescheduler.planning.replacements import Replacements
from rescheduler.planning.rules.candidates import Groups, groups
from rescheduler.planning.rules.declared import Facts, PodRules, pod_rules
from rescheduler.planning.rules.gangs import Gangs
from rescheduler.planning.rules.minimum import Minimum, minimum
from rescheduler.planning.rules.pins import Pins
from rescheduler.planning.rules.pod_rules import RULES
from rescheduler.planning.rules.replica_floors import OwnerCounts, RemainingReplicas
from rescheduler.planning.rules.shared_volumes import SharedVolumes
from rescheduler.planning.rules.unreadable import UnreadableObjects
from rescheduler.planning.steps import Steps


@dataclass(frozen=True, slots=True)
class PlanningRound:
    """The inputs that all candidates of one round share."""

    ground: Ground
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
    shared_volumes: SharedVolumes
    quotas: Quotas
    order_until: datetime | None  #: the instant at which the drain order changes

    def remaining(self) -> RemainingDisruptions:
        """Return the evictions that budgets and controllers allow before any plan uses them."""
        too_slow = self.steps.too_slow if self.policy.budgets_in_steps else None
        return RemainingDisruptions(self.budgets, too_slow, replicas=RemainingReplicas(self.counts))

    def floors(self, evicted: Iterable[Pod], pods: Iterable[Pod]) -> list[Blocker]:
        """Return the blockers of controllers that would keep too few replicas if *pods* followed *evicted*."""
        remaining = RemainingReplicas(self.counts)
        remaining.take(remaining.groups([pod for pod in evicted if not pod.cls.terminating]))
        return remaining.blockers(remaining.groups(pods))

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
        """Return the inputs for a node whose drain has *evicted* pods (UIDs)."""
        return replace(self, pod_rules=self.pod_rules.during_drain(evicted))

    def after_changes(self, budgets: Budgets) -> "PlanningRound":
        """Return the inputs after changes of pods and *budgets* that do not change the ground."""
        counted = minimum(self.snapshot, self.policy.min_on_demand_nodes, self.groups.on_demand, self.circumstances)
        steps = Steps(self.snapshot, budgets, self.policy)
        return replace(self, changes=self.snapshot.changes, minimum=counted, budgets=budgets, steps=steps)

    def planning(self, verdicts: Iterable[Verdict]) -> Planning:
        """Return the planning with these *verdicts* and the numbers of nodes."""
        return Planning(tuple(verdicts), len(self.groups.on_demand), self.groups.spot_nodes)


def new_round(
    snapshot: Snapshot,
    policy: Policy,
    filters: Filters,
    budgets: Budgets,
    ground: Ground,
    circumstances: Circumstances,
    replacements: Replacements,
) -> PlanningRound:
    """Return the shared inputs for the current state of *snapshot*. *ground* is the ground of *circumstances*."""
    unreadable = UnreadableObjects(snapshot.unreadable)
    node_groups = groups(snapshot, policy, circumstances.ending | unreadable.nodes)
    spot = np.zeros(len(snapshot.nodes), np.bool_)
    spot[node_groups.spot_rows] = True
    on_demand = in_drain_order(node_groups.on_demand, snapshot, policy, circumstances)
    counts = OwnerCounts(snapshot, frozenset(snapshot.nodes.names[row] for row in node_groups.spot_rows))
    gangs = Gangs(snapshot)
    return PlanningRound(
        ground=ground,
        changes=snapshot.changes,
        snapshot=snapshot,
        policy=policy,
        groups=replace(node_groups, on_demand=on_demand),
        room=Room(snapshot, filters, node_groups.spot, Sizes(snapshot, node_groups.spot)),
        pod_rules=_pod_rules(snapshot, policy, budgets, counts, gangs, circumstances),
        circumstances=circumstances,
        forecaster=Forecaster(snapshot, filters, spot, replacements),
        minimum=minimum(snapshot, policy.min_on_demand_nodes, node_groups.on_demand, circumstances),
        budgets=budgets,
        steps=Steps(snapshot, budgets, policy),
        unreadable=unreadable,
        pins=Pins(snapshot, node_groups.spot_rows, policy.startup_taints),
        counts=counts,
        gangs=gangs,
        replacements=replacements,
        shared_volumes=SharedVolumes(snapshot, filters),
        quotas=Quotas(snapshot),
        order_until=next_expiry(on_demand, snapshot, policy, circumstances.now),
    )


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

    facts = Facts(policy, budgets.guards, namespace_labels=namespace_labels, counts=counts, gangs=gangs)
    return pod_rules(RULES, facts, Now(circumstances.now, circumstances.deadlines))
