"""Which on-demand nodes can be drained to spot nodes, and where each of their pods would go.

The planner works on one snapshot and leaves it unchanged. Between rounds it keeps only results that are still valid.
It does not read a clock, log or perform actions.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from predicates.filters import Filters
from predicates.kubelet import digest
from predicates.objects import Pod, ResourceQuota
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.all_nodes import plan_all
from rescheduler.planning.answers.follow import follow, not_on_demand
from rescheduler.planning.answers.headroom import FallbackRoom
from rescheduler.planning.answers.leftovers import are_few, left_out, plan_leftovers
from rescheduler.planning.answers.losses import PoolLoss
from rescheduler.planning.answers.single import SinglePlans, TakeEmpty
from rescheduler.planning.answers.survival import SIMULATION, Certificate, Survival, pools_by_name
from rescheduler.planning.budgets import Budgets
from rescheduler.planning.examined import eviction_blockers, examine
from rescheduler.planning.forms import instant
from rescheduler.planning.kept import ClusterPart, Kept
from rescheduler.planning.money.move_costs import MoveWorth, PlanMoves
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import TO_SPOT, Blocker, Plan, Planning, Purpose, Reason, Rejected, TakenRoom, Verdict
from rescheduler.planning.placement.explain import Explanation, explain
from rescheduler.planning.placement.forecast_checks import SecondsLeft, unlimited
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.pending import QueuedClass, buffered, classes_of, is_left_pending, queue
from rescheduler.planning.planning_round import PlanningRound, common_ground, new_round
from rescheduler.planning.policy import FOREVER, Circumstances, FallbackHeadroom, Leftovers, Policy, Survive
from rescheduler.planning.question import opened
from rescheduler.planning.replacements import Replacements
from rescheduler.planning.rules.candidates import groups_at_minimum


class Planner:
    """Computes plans for *snapshot*, which may change between calls but not during one."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = Filters(snapshot, kubelets=True)
        self._budgets = Budgets(snapshot)
        self._survival = Survival()
        self._single = SinglePlans(snapshot, policy, self._filters, self._survival)
        self._replacements = Replacements(snapshot)
        self._last: PlanningRound | None = None
        #: What the last planning with leftovers depends on, that planning, and from when on it is not valid.
        self._leftovers: tuple[object, Planning, datetime] | None = None
        self._queued = Kept(self._pending_classes, ClusterPart.ANYTHING)

    @property
    def policy(self) -> Policy:
        """Return the policy that the plans are made with."""
        return self._policy

    @property
    def filters(self) -> Filters:
        """Return the filters that the plans are computed with, for explanations."""
        return self._filters

    def on_demand(self, circumstances: Circumstances) -> Sequence[str]:
        """Return the on-demand nodes in drain order."""
        return self.round(circumstances).groups.on_demand

    def plan_each(
        self, circumstances: Circumstances, *, seconds_left: SecondsLeft = unlimited, forecasts: bool = True
    ) -> Planning:
        """Return a separate verdict for each on-demand node in the current state, with all obstacles.

        *seconds_left* limits forecasts, and the search for places beyond first-fit. Without *forecasts*, which are for
        people, the verdicts are the same.
        """
        shared = self.round(circumstances)
        planning = self._single.each(shared, seconds_left, forecasts=forecasts)
        return self._with_leftovers(planning, shared, ()) if self._policy.leftovers is Leftovers.MOVE else planning

    def first_plan(
        self,
        circumstances: Circumstances,
        *,
        take_empty: TakeEmpty = lambda _: False,
        seconds_left: SecondsLeft = unlimited,
    ) -> Planning:
        """Return verdicts in drain order up to the first node that can be drained and whose plan passes the forecast.

        A plan is rejected if pods are unschedulable in its simulation, or if most pods would return to nodes
        that are not spot. A node without pods to move also gets a plan, but it ends the search only if *take_empty*
        returns true for it: otherwise nothing would remove the node, so there is nothing to do.

        *seconds_left* limits search and forecasts in addition to the planning time-out, which assumes a certain speed
        of the machine.
        """
        shared = self.round(circumstances)
        planning = self._single.first(shared, take_empty, seconds_left)
        if self._policy.leftovers is not Leftovers.MOVE:
            return planning
        alone = self._alone(circumstances, forecasts=False).plans if are_few(shared) else None
        return self._with_leftovers(planning, shared, planning.plans, most=1, alone=alone)

    def _with_leftovers(
        self,
        planning: Planning,
        shared: PlanningRound,
        before: Sequence[Plan],
        most: int | None = None,
        alone: Sequence[Plan] | None = None,
    ) -> Planning:
        """Return *planning* with the plans of leftovers after *before*; the same object while nothing changes.

        Other nodes that have a plan of their own keep it.
        """
        known, circumstances = self._leftovers, shared.circumstances
        kept = circumstances.vetoes, circumstances.cooling
        snapshot = self._snapshot
        edits = max(snapshot.edited_on.values(), default=0), max(snapshot.placed_on.values(), default=0)
        key = planning, shared.ground, shared.minimum, shared.budgets.built_from, edits, kept, most, alone
        if known is None or known[0] != key or circumstances.now >= known[2]:
            circumstances.deadlines.take()
            own = [plan for plan in planning.plans if plan not in before]
            found, because = plan_leftovers(
                shared, before, circumstances.prices, self._survival, most=most, alone=alone
            )
            until = circumstances.deadlines.take() or FOREVER
            nodes = {plan.node for plan in own}
            known = self._leftovers = (
                key,
                planning.with_plans([*own, *(plan for plan in found if plan.node not in nodes)], because),
                until,
            )
        return known[1]

    def first_until(self, circumstances: Circumstances) -> datetime:
        """Return until when the last :meth:`first_plan`, which found no plan, stands if nothing else changes."""
        until = self._single.first_until(self.round(circumstances))
        return until if self._leftovers is None else min(until, self._leftovers[2])

    def plan_node(self, node: str, circumstances: Circumstances) -> Verdict:
        """Return the verdict for a single node in the current state, with all obstacles."""
        shared = self.round(circumstances).removing([node])
        verdict = self._single.verdict(node, shared)
        return shared.forecaster.within_shares(verdict, {}) if isinstance(verdict, Plan) else verdict

    def look_again(
        self, node: str, circumstances: Circumstances, evicted: Collection[str] = (), purpose: Purpose = TO_SPOT
    ) -> Verdict:
        """Plan one node again for *purpose*, after it was tainted, with the checks of :meth:`first_plan`.

        The drain waits for pods that it has *evicted* (UIDs), regardless of how long they take. Once there is one, it
        also waits for other terminating pods that are not overdue, because a scale-down or a roll-out may delete pods
        at any time. Before that, terminating pods are treated as for a new drain.
        """
        shared = self.round(circumstances).during_drain(evicted).removing([node]).draining(node, purpose)
        return not_on_demand(node, shared) or self._single.checked(node, shared)

    def explain_node(self, node: str, circumstances: Circumstances) -> Verdict:
        """Return all obstacles of a single node, or otherwise the verdict with the checks of :meth:`first_plan`."""
        verdict = self.plan_node(node, circumstances)
        if isinstance(verdict, Rejected):
            return verdict
        return self._single.checked(node, self.round(circumstances).removing([node]))

    def larger(self, pod: Pod, predecessors: Iterable[Pod]) -> str:
        """Return what *pod* asks for that its evicted *predecessors* were not planned with, or "".

        A pod that requests more, or has a higher priority, may preempt other pods.
        """
        planned = [self._replacements.of(predecessor).cls for predecessor in predecessors]
        most: defaultdict[str, int] = defaultdict(int)
        for cls in planned:
            for name, amount in cls.requests:
                most[name] = max(most[name], amount)
        for name, amount in pod.cls.requests:
            if planned and amount > most[name]:
                return f"it requests more {name} than the evicted pod, for which the plan was made"
        if planned and (pod.cls.spec.priority or 0) > max(cls.spec.priority or 0 for cls in planned):
            return "it has a higher priority than the evicted pod, for which the plan was made"
        return ""

    def digest_of(self, pod: Pod) -> str:
        """Return the digest of the class of pods that replace *pod* and those of the same template."""
        return digest(self._replacements.of(pod).cls)

    def refused_by(
        self, quotas: Iterable[ResourceQuota], pods: Sequence[Pod], circumstances: Circumstances
    ) -> tuple[Blocker, ...]:
        """Return why *quotas* would refuse replacements of *pods*, which are all the pods that a drain evicts."""
        shared = self.round(circumstances)
        surges = examine(pods[0].node_name, shared).candidate.surges if pods else ()
        return tuple(shared.quotas.blockers(pods, [shared.replacements.of(pod) for pod in pods], quotas, surges))

    def follow(
        self,
        node: str,
        circumstances: Circumstances,
        due: Sequence[Pod],
        evicted: Collection[str] = (),
        step: Collection[str] = (),
        purpose: Purpose = TO_SPOT,
    ) -> Verdict:
        """Plan the pods left on *node* together with the replacement pods of *due*, and return the verdict.

        *step* are UIDs of the pods that the drain evicts next. If they cannot move before the others, the plan is to
        move one pod at a time in its order. *evicted* are UIDs of pods that this drain has evicted: they count as gone
        even if the snapshot still has them. Budgets are not checked here; the eviction API rejects evictions that they
        do not allow. Replicas that must stay on on-demand nodes are checked.
        """
        shared = self.round(circumstances).during_drain(evicted).removing([node]).draining(node, purpose)
        return follow(node, shared, due, evicted, step)

    def pending(self, circumstances: Circumstances) -> TakenRoom:
        """Return the room of the spot nodes that pending pods take."""
        return self.round(circumstances).pending.taken

    def left_pending(self, circumstances: Circumstances) -> list[Pod]:
        """Return the pods that the scheduler has left pending although they fit by its rules, by name.

        Of the namespaces whose pods take no room for this reason, all pods are returned that it has left pending.
        """
        return [pod for pod in self.fitting_pending(circumstances) if is_left_pending(pod, circumstances.now)]

    def fitting_pending(self, circumstances: Circumstances) -> list[Pod]:
        """Return the pending pods that fit by the scheduler's rules, however old they are, by name.

        Nominated pods are left out: they wait for others to terminate. The rest is as for :meth:`left_pending`.
        """
        placed, ignored = self.round(circumstances).pending.classes, circumstances.left_pending
        found = (
            pod for pod in queue(self._snapshot, self._policy, ()) if pod.cls in placed or pod.namespace in ignored
        )
        return sorted((pod for pod in found if not pod.nominated_node_name), key=lambda pod: pod.key)

    def waiting(self, circumstances: Circumstances, patience: timedelta) -> list[Pod]:
        """Return the unschedulable pods that a spot node could run if it had room, by name.

        Pods that have been pending for longer than *patience*, or that no spot node could ever run, are ignored:
        otherwise they would block drains indefinitely.
        """
        targets = self.round(circumstances).groups.spot
        pods = (
            pod
            for pod in self._snapshot.pods_on[""].values()
            if pod.unschedulable_since is not None
            and pod.deletion_timestamp is None
            and circumstances.now - (instant(pod.unschedulable_since) or circumstances.now) <= patience
            and self._filters.could_fit(pod.cls, targets)
        )
        return sorted(pods, key=lambda pod: pod.key)

    def explain(self, pod: Pod, circumstances: Circumstances) -> Explanation:
        """Return which spot nodes would accept *pod* if it alone were evicted now, and why the others reject it."""
        shared = self.round(circumstances)
        incoming = shared.replacements.of(pod)
        blockers, surge = eviction_blockers(pod, shared)
        rows, yielding = shared.groups.spot_rows, shared.room.yielding
        return explain(pod, incoming, self._snapshot, self._filters, rows, blockers, surge, yielding)

    def must_move(self, node: str, circumstances: Circumstances) -> list[Pod]:
        """Return the pods of *node* that must move before it is empty, by name. Some may not be evictable."""
        return self.round(circumstances).must_move(node)

    def worths(self, nodes: Iterable[str], circumstances: Circumstances) -> dict[str, MoveWorth]:
        """Return what each of *nodes* is worth for the moves of its pods."""
        shared = self.round(circumstances)
        return {node: shared.worth_of(node) for node in nodes}

    def moves(self, planning: Planning, circumstances: Circumstances) -> PlanMoves:
        """Return what the moves of *planning* cost, and the worths of nodes with plans and of those not worth it."""
        shared, because = self.round(circumstances), Reason.NOT_WORTH_IT
        left = [node.node for node in planning.rejected for why in node.blockers if why.reason is because]
        planned = {plan.node: shared.worth_of_plan(plan) for plan in planning.plans}
        cost = sum(worth.cost for worth in planned.values())
        alone = self.worths(left, circumstances).items()
        kept = {node: worth for node, worth in alone if worth.blocker(self._policy.min_worth, "") is not None}
        return PlanMoves(planned | kept, cost)

    def move_cost(self, plans: Sequence[Plan], circumstances: Circumstances) -> float:
        """Return what the moves of *plans* cost, also of the pods that make room."""
        shared = self.round(circumstances)
        return sum(shared.worth_of_plan(plan).cost for plan in plans)

    def relevant_pods(self, circumstances: Circumstances) -> Iterator[Pod]:
        """Return all pods that would have to move, node by node in drain order, then the pending pods."""
        for node in self.round(circumstances).groups.on_demand:
            yield from self.must_move(node, circumstances)
        yield from sorted(self._snapshot.pods_on[""].values(), key=lambda pod: pod.key)

    def plan_all(self, circumstances: Circumstances, *, forecasts: bool = True) -> Planning:
        """Plan the drains of all on-demand nodes in sequence, each in the room that the earlier ones leave.

        Plans come first, in drain order, then the rejected nodes. Of a group of Cluster Autoscaler, no more nodes are
        freed than its minimum allows. Without *forecasts*, which take time, the same nodes are drained.
        """
        planning = self._alone(circumstances, forecasts=forecasts)
        if self._policy.leftovers is not Leftovers.MOVE:
            return planning
        return self.leftovers_moved(planning, circumstances, circumstances.prices)

    def _alone(self, circumstances: Circumstances, *, forecasts: bool) -> Planning:
        """Return the drains of all on-demand nodes in sequence that need no leftovers to move."""
        planning = plan_all(self.round(circumstances), self._survival, forecasts=forecasts)
        beyond = groups_at_minimum(self._snapshot, [plan.node for plan in planning.plans])
        if beyond.keys() <= circumstances.vetoes.keys():
            return planning
        kept = replace(circumstances, vetoes={**beyond, **circumstances.vetoes})
        return plan_all(self.round(kept), self._survival, forecasts=forecasts)

    def leftovers_moved(self, planning: Planning, circumstances: Circumstances, prices: PriceList) -> Planning:
        """Return *planning*, of all nodes in sequence, with what ``--leftovers=move`` frees."""
        shared = self.round(circumstances)
        alone = planning.plans
        plans, because = plan_leftovers(shared, alone, prices, self._survival, most=None, alone=alone)
        planned = {plan.node for plan in plans}
        if not (nodes := [plan.node for plan in alone if plan.node not in planned]):
            return planning.with_plans(plans, because)
        found, rejected = left_out(shared, nodes, plans, self._survival)
        return planning.with_plans([*plans, *found], because, rejected)

    def certificate(
        self,
        circumstances: Circumstances,
        survive: Survive,
        plans: Iterable[Plan] = (),
        *,
        seconds: float = SIMULATION,
        to_first: bool = False,
    ) -> Certificate:
        """Return whether the pods of each lost pool would run again, after *plans* were carried out in order.

        *seconds* limit the simulation, at its assumed speed. With *to_first*, the pools with the most nodes are lost
        first, and the certificate ends with the first one that is not survived.
        """
        shared, found = self.round(circumstances), tuple[PoolLoss, ...]()
        pools = pools_by_name(shared, survive) if to_first else {}
        largest, *others = sorted(pools, key=lambda name: (-len(pools[name]), name)) or [""]
        with opened(shared, Effort(0), shared.pending):
            for decisive in ((largest,), others) if others else ((),):
                if all(each.survived for each in found):
                    certificate = self._survival.certificate(shared, survive, plans, decisive, seconds=seconds)
                    found += certificate.pools
        return Certificate(survive, found)

    def loss(
        self,
        circumstances: Circumstances,
        nodes: Iterable[str],
        plans: Iterable[Plan] = (),
        gone: Collection[str] = (),
    ) -> PoolLoss:
        """Return which pods would have no place if all *nodes* were lost together, as in :meth:`certificate`.

        The nodes *gone* are no places.
        """
        shared, row_of = self.round(circumstances), self._snapshot.nodes.row
        with opened(shared, Effort(0), shared.pending):
            rows = np.array([row_of[name] for name in nodes], np.intp)
            return self._survival.loss(shared, rows, plans, [name for name in gone if name in row_of])

    def displaced(self, circumstances: Circumstances, nodes: Iterable[str]) -> list[Pod]:
        """Return the pods that are created again if *nodes* are lost, as their controllers create them."""
        return self._survival.displaced(self.round(circumstances), nodes)

    def fallback_room(self, circumstances: Circumstances, plans: Iterable[Plan] = ()) -> FallbackRoom:
        """Return what is free for the pods on spot nodes after *plans*, and what these request."""
        shared = self.round(circumstances)
        with opened(shared, Effort(0), shared.pending):
            return self._survival.headroom.after(shared, plans, FallbackHeadroom(100))

    def _pending_classes(self, snapshot: Snapshot, ignored: Collection[str]) -> tuple[QueuedClass, ...]:
        """Return the pending pods that may take room, as classes, without those of the namespaces *ignored*."""
        return (*classes_of(queue(snapshot, self._policy, ignored)), *buffered(snapshot, self._policy))

    def round(self, circumstances: Circumstances) -> PlanningRound:
        """Return the inputs that all verdicts share. They are reused while their ground is the same."""
        snapshot, shared = self._snapshot, self._last
        snapshot.learn(circumstances.refused)
        if self._budgets.built_from != Budgets.version(snapshot):
            self._budgets = self._budgets.renewed(snapshot)
        if shared is not None and shared.changes != snapshot.changes:
            self._budgets.start_round()
        queued = self._queued.of(snapshot, circumstances.left_pending)
        ground = common_ground(snapshot, self._policy, self._budgets, queued, circumstances)
        if shared is None or shared.ground != ground or shared.is_reordered(circumstances.now):
            shared = new_round(
                snapshot, self._policy, self._filters, self._budgets, ground, circumstances, self._replacements
            )
        elif shared.circumstances is not circumstances:
            shared = shared.at(circumstances)
        if shared.changes != snapshot.changes:
            shared = shared.after_changes(self._budgets)
        self._last = shared
        return shared
