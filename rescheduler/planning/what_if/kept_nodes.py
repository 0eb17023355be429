"""The nodes that a plan does not free because of removable obstacles, and these obstacles."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from predicates.objects import Pod
from predicates.texts import shown
from rescheduler.planning.budgets import SYNC_FAILED, RemainingDisruptions, rule_text, sync_failure
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.outcome import Plan, Reason, Rejected, counted_on
from rescheduler.planning.placement.search import Candidate
from rescheduler.planning.planning_round import PlanningRound
from rescheduler.planning.pool_shares import with_constraint
from rescheduler.planning.question import emptied_by, evictions_after
from rescheduler.planning.rules.declared import Fate
from rescheduler.planning.rules.pins import local_volume
from rescheduler.planning.what_if.lifting import (
    OF_NODES,
    OF_PODS,
    Obstacle,
    Trait,
    lift_all,
    part_of_node,
)
from rescheduler.planning.what_if.unpinning import Unpinning

_BUDGETS: Final = frozenset({Reason.BUDGET, Reason.BUDGET_TOO_SLOW})

#: Reasons that can be lifted, and those about room on spot nodes, which a trial decides. All others are final.
_OPEN: Final = OF_PODS.keys() | OF_NODES.keys() | _BUDGETS | {Reason.NO_ROOM, Reason.PINNED, Reason.SPOT_POOL_SHARE}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptNode(Candidate):
    """A node that the plan does not free. Without its *obstacles*, it could be drained if its pods fit elsewhere.

    ``movers`` are its pods, and ``incoming`` their replacement pods without the obstacles.
    """

    obstacles: frozenset[Obstacle]
    stays: bool  #: whether the node also has a blocker that cannot be removed, or plans count on it


class KeptNodes:
    """The nodes that *plans* do not free, with their obstacles, and the inputs for trials without these obstacles.

    *shared* are the inputs with which the plans were made.
    """

    def __init__(self, shared: PlanningRound, plans: Sequence[Plan]) -> None:
        self._shared = shared
        self._policy = shared.policy
        self._budgets = shared.budgets
        self._steps = shared.steps
        self._minimum = shared.minimum
        self._rules = shared.pod_rules
        self._unpinning = Unpinning(shared.snapshot, shared.room.filters, shared.groups.spot)
        self._spot_rows = shared.groups.spot_rows
        self._shares = shared.forecaster.shares
        self._needed: dict[str, int] = {}  #: by budget: evictions that it would have to allow
        self.snapshot = shared.snapshot
        self._left = evictions_after(plans, shared)  #: the evictions that budgets and controllers allow after the plans
        self._counted_on = counted_on(plans)
        self.spare = self._minimum.spare - emptied_by(plans, shared)  #: nodes with ``counts`` that may also be drained

    def each(self, rejected: Iterable[Rejected]) -> Iterator[KeptNode]:
        """Yield the nodes that have obstacles."""
        return (kept for verdict in rejected if (kept := self._kept_node(verdict)).obstacles)

    def needed(self, obstacle: Obstacle) -> int:
        """Return how many evictions a PodDisruptionBudget would have to allow; 1 for other obstacles."""
        owner = obstacle.controller
        return self._needed.get(f"{owner.namespace}/{owner.name}", 1) if obstacle.reason is Reason.BUDGET else 1

    def remaining(self, lifted: frozenset[Obstacle]) -> RemainingDisruptions:
        """Return the evictions that are allowed after the plans, without the obstacles *lifted*."""
        keys = {
            f"{obstacle.controller.namespace}/{obstacle.controller.name}"
            for obstacle in lifted
            if obstacle.reason is Reason.BUDGET
        }
        remaining = self._left.copy()
        remaining.budgets = self._budgets.allowing({key: self._needed[key] for key in keys})
        return remaining

    def _kept_node(self, verdict: Rejected) -> KeptNode:
        stays = verdict.node in self._counted_on
        stays = stays or any(blocker.reason not in _OPEN for blocker in verdict.blockers)
        node = ControllerName("", "Node", verdict.node)
        obstacles = {
            Obstacle(
                node, blocker.reason, part_of_node(blocker.reason), ((Trait.NODE_KEY, OF_NODES[blocker.reason].key),)
            )
            for blocker in verdict.blockers
            if blocker.pod is None and blocker.reason in OF_NODES
        }
        too_many = {
            controller_of(self.snapshot.pods[blocker.pod])
            for blocker in verdict.blockers
            if blocker.reason is Reason.SPOT_POOL_SHARE and blocker.pod
        }
        movers: list[Pod] = []
        lifted: list[Pod] = []
        for _, original in sorted(self.snapshot.pods_on[verdict.node].items()):
            pod, pod_obstacles, fate = lift_all(original, self._rules)
            obstacles |= pod_obstacles
            stays = stays or fate is None or bool(fate is Fate.MOVES and pod.cls.spec.resource_claims)
            if fate is Fate.MOVES:
                if pod.cls is original.cls:
                    pod = self._shared.replacements.of(pod)
                stays = stays or local_volume(pod.cls, self.snapshot, self._spot_rows) is not None
                if (pinned := self._unpinning.of(pod.cls)) is not None:
                    pod = replace(pod, cls=pinned.cls)
                    obstacles.add(
                        Obstacle(
                            controller_of(pod),
                            Reason.PINNED,
                            shown(pinned.obstacle),
                            pinned.traits,
                        )
                    )
                if controller_of(original) in too_many:
                    obstacles.add(
                        Obstacle(controller_of(original), Reason.SPOT_POOL_SHARE, self._shares.remedy(original))
                    )
                    constraint = self._shares.constraint(original)
                    stays = stays or constraint is None
                    pod = pod if constraint is None else with_constraint(pod, constraint)
                movers.append(original)
                lifted.append(pod)
        budgets = self._budget_obstacles(movers)
        return KeptNode(
            node=verdict.node,
            row=self.snapshot.nodes.row[verdict.node],
            movers=tuple(movers),
            incoming=tuple(lifted),
            obstacles=frozenset(obstacles | budgets),
            counts=verdict.node in self._minimum.counted,
            stays=stays,
        )

    def _budget_obstacles(self, movers: Sequence[Pod]) -> set[Obstacle]:
        """Return the budgets that do not allow the evictions of *movers*. Skip pods that several budgets select."""
        blockers = self._left.lacking(movers)
        pods = [self.snapshot.pods[blocker.pod] for blocker in blockers if blocker.pod and blocker.reason in _BUDGETS]
        keys = dict.fromkeys(key for pod in pods for key in self._budgets.of(pod))
        for key in keys:
            self._needed[key] = self._needed_evictions(key, [pod for pod in movers if key in self._budgets.of(pod)])
        return {self._budget_obstacle(key) for key in keys}

    def _budget_obstacle(self, key: str) -> Obstacle:
        namespace, _, name = key.partition("/")
        budget, allowed = self._budgets.get(key), self._budgets.allowed[key]
        at_once = not self._policy.budgets_in_steps
        rule = rule_text(budget)
        if sync_failure(budget) is not None:
            text = f"{rule} cannot be computed ({SYNC_FAILED}); use an integer minAvailable"
            return Obstacle(ControllerName(namespace, "PodDisruptionBudget", name), Reason.BUDGET, text)
        spent = f", of which the plan uses {used}" if (used := self._left.spent.get(key, 0)) and at_once else ""
        text = f"{rule} allows {allowed} eviction{'' if allowed == 1 else 's'} now{spent}"
        return Obstacle(ControllerName(namespace, "PodDisruptionBudget", name), Reason.BUDGET, text)

    def _needed_evictions(self, key: str, pods: Sequence[Pod]) -> int:
        """Return how many evictions budget *key* would have to allow for *pods* and all pods counted earlier."""
        before = self._needed.get(key, self._left.spent.get(key, 0))
        if not self._policy.budgets_in_steps:
            return before + len(pods)
        return max(self._needed.get(key, 1), 1 if self._steps.too_slow(key, pods, 1) is None else len(pods))
