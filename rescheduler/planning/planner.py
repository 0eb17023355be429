"""Which on-demand nodes can be drained to spot nodes, and where each of their pods would go.

The planner works on one snapshot and leaves it unchanged. Between rounds it keeps only results that are still valid.
It does not read a clock, log or perform actions.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np

from predicates.filters import Filters
from predicates.objects import Namespace, Pod
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.budgets import Budgets, RemainingDisruptions
from rescheduler.planning.candidates import Groups, groups, node_blockers
from rescheduler.planning.drainability import Context, Fate, fate, instant
from rescheduler.planning.explain import Explanation, explain
from rescheduler.planning.forecast import PLAYS, Forecaster, objection, with_forecast
from rescheduler.planning.minimum import Minimum, minimum
from rescheduler.planning.outcome import Blocker, Placement, Plan, Planning, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.packing import QUESTIONS_PER_SECOND, Effort, Room, Sizes, Stuck, pack
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.replica_floors import OwnerCounts, RemainingReplicas
from rescheduler.planning.search import Candidate, Search, Selection
from rescheduler.planning.steps import Steps
from rescheduler.planning.unreadable import UnreadableObjects

_NO_FORECAST: Final = "no forecast: --planning-timeout was used up by earlier nodes; a later round computes it"


@dataclass(frozen=True, slots=True)
class PlanningRound:
    """The inputs that all candidates of one round share."""

    groups: Groups
    room: Room
    context: Context
    circumstances: Circumstances
    forecaster: Forecaster
    minimum: Minimum
    steps: Steps
    left_out: UnreadableObjects
    counts: OwnerCounts


class Planner:
    """Computes plans for *snapshot*, which may change between calls but not during one."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = Filters(snapshot, DEFAULT)
        self._budgets = Budgets(snapshot)
        self._last: tuple[Circumstances, object, PlanningRound] | None = None
        self._objections: dict[str, Rejected] = {}  #: by node, while rounds end before all plans have a forecast

    @property
    def filters(self) -> Filters:
        """Return the filters that the plans are computed with, for explanations."""
        return self._filters

    def on_demand(self, circumstances: Circumstances) -> Sequence[str]:
        """The on-demand nodes in drain order."""
        return self._round(circumstances).groups.on_demand

    def plan_each(self, circumstances: Circumstances) -> Planning:
        """Return a verdict for each on-demand node by itself, in the current state."""
        shared = self._round(circumstances)
        remaining = self._remaining(shared)
        verdicts = [self._verdict(name, shared, remaining.copy()) for name in shared.groups.on_demand]
        effort = shared.forecaster.ahead()
        return self._planning(shared, (self._with_forecast(verdict, shared, effort) for verdict in verdicts))

    def first_plan(
        self, circumstances: Circumstances, *, take_empty: Callable[[str], bool] = lambda _: False
    ) -> Planning:
        """Return verdicts in drain order up to the first node that can be drained and whose plan passes the forecast.

        A plan is rejected if pods are unschedulable when it is played through, or if most pods would return to nodes
        that are not spot. A node without pods to move also gets a plan, but it ends the search only if *take_empty*
        returns true for it: otherwise nothing would remove the node, so there is nothing to do.
        """
        shared = self._round(circumstances)
        verdicts: list[Verdict] = []
        effort = shared.forecaster.effort(self._policy.planning_timeout)
        for name in shared.groups.on_demand:
            verdict = self._verdict(name, shared, self._remaining(shared))
            if isinstance(verdict, Plan) and verdict.placements:
                verdict = self._checked_within_effort(verdict, shared, effort)
            empty = isinstance(verdict, Plan) and not verdict.placements and not verdict.leaving
            verdicts.append(verdict)
            if isinstance(verdict, Plan) and (not empty or take_empty(name)):
                break
        if not effort.exhausted:
            self._objections.clear()
        return self._planning(shared, verdicts)

    def plan_node(self, node: str, circumstances: Circumstances) -> Verdict:
        """Return the verdict for one node by itself, in the current state."""
        shared = self._round(circumstances)
        return self._verdict(node, shared, self._remaining(shared))

    def look_again(self, node: str, circumstances: Circumstances, evicted: Collection[str] = ()) -> Verdict:
        """Plan one node again, after it was tainted, with the checks of :meth:`first_plan`.

        The drain waits for pods that it has *evicted* (UIDs), regardless of how long they take. Once there is one, it
        also waits for other terminating pods that are not overdue, because a scale-down or a roll-out may delete pods
        at any time. Before that, terminating pods are treated as for a new drain.
        """
        shared = self._drain_round(circumstances, evicted)
        verdict = self._verdict(node, shared, self._remaining(shared))
        return self._checked(verdict, shared) if isinstance(verdict, Plan) else verdict

    def follow(
        self, node: str, circumstances: Circumstances, due: Sequence[Pod], evicted: Collection[str] = ()
    ) -> Verdict:
        """Return whether the pods left on *node* fit on spot nodes together with the replacement pods of *due*.

        *evicted* are UIDs of pods that this drain has evicted: they count as gone even if the snapshot still has them.
        Budgets are not checked here; the eviction API rejects evictions that they do not allow. Replicas that must stay
        on on-demand nodes are.
        """
        shared = self._drain_round(circumstances, evicted)
        candidate = self._candidate(node, shared)
        if isinstance(candidate, Rejected):
            return candidate
        left = tuple(pod for pod in candidate.movers if pod.uid not in evicted)
        gone = [pod for pod in self._snapshot.pods_on[node].values() if pod.uid in evicted]
        if blockers := self._floors(shared, gone, left):
            return Rejected(node, tuple(blockers))
        self._filters.refresh(pod.cls for pod in (*left, *due))
        with self._snapshot.trial() as trial:
            trial.evict(*gone)  # they may still use a claim or a port
            self._empty(replace(candidate, movers=left), trial)
            placed = pack(shared.room, trial, (*due, *left), self._effort())
        if isinstance(placed, Stuck):
            return Rejected(node, (_no_room(placed, shared),))
        return self._plan(candidate, placed)

    def forecast(self, plan: Plan, circumstances: Circumstances) -> Plan:
        """Return *plan* with its forecast. The plan must match the current snapshot."""
        return with_forecast(plan, self._round(circumstances).forecaster.forecast(plan))

    def waiting(self, circumstances: Circumstances, patience: timedelta) -> list[Pod]:
        """Return the unschedulable pods that a spot node could run if it had room, by name.

        Pods that have been pending for longer than *patience*, or that no spot node could ever run, are ignored:
        otherwise they would block drains indefinitely.
        """
        targets = self._round(circumstances).groups.spot
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
        shared = self._round(circumstances)
        return explain(
            pod, self._snapshot, self._filters, shared.groups.spot_rows, self._eviction_blockers(pod, shared)
        )

    def must_move(self, node: str, circumstances: Circumstances) -> list[Pod]:
        """Return the pods of *node* that must move before it is empty, by name. Some may not be evictable."""
        context = self._round(circumstances).context
        pods = (pod for pod in self._snapshot.pods_on[node].values() if not pod.cls.terminating)
        return sorted((pod for pod in pods if fate(pod, context) is not Fate.STAYS), key=lambda pod: pod.key)

    def relevant_pods(self, circumstances: Circumstances) -> Iterator[Pod]:
        """Return all pods that would have to move, node by node in drain order, then the pending pods."""
        for node in self._round(circumstances).groups.on_demand:
            yield from self.must_move(node, circumstances)
        yield from sorted(self._snapshot.pods_on[""].values(), key=lambda pod: pod.key)

    def _eviction_blockers(self, pod: Pod, shared: PlanningRound) -> list[Blocker]:
        if not pod.node_name:
            return []
        result = fate(pod, shared.context)
        blockers = [result] if isinstance(result, Blocker) else []
        return [*blockers, *_claims([pod]), *self._remaining(shared).reserve([pod])]

    def plan_all(self, circumstances: Circumstances) -> Planning:
        """Plan the drains of all on-demand nodes in sequence, where each drain takes room from the next.

        Plans come first, in drain order, then the rejected nodes.
        """
        shared = self._round(circumstances)
        examined = {node: self._candidate(node, shared) for node in shared.groups.on_demand}
        candidates = [candidate for candidate in examined.values() if isinstance(candidate, Candidate)]
        effort = self._effort()
        with self._snapshot.trial() as trial:
            search = Search(
                shared.room, trial, candidates, lambda: self._remaining(shared), shared.minimum.spare, effort
            )
            verdicts = self._place_victims(search.run(), examined, shared, trial)
        planning = self._planning(shared, verdicts)
        return replace(
            planning,
            timed_out=effort.exhausted and len(planning.plans) < search.upper_bound,
            upper_bound=search.upper_bound,
        )

    def _place_victims(
        self, victims: Selection, examined: dict[str, Candidate | Rejected], shared: PlanningRound, trial: Trial
    ) -> list[Verdict]:
        """Place the pods of all *victims*, then compute why every other node is rejected."""
        remaining = self._remaining(shared)
        plans: dict[str, Verdict] = {}
        shown = shared.forecaster.ahead()
        for victim in victims:
            remaining.reserve(victim.candidate.movers)
            plan = self._with_forecast(self._plan(victim.candidate, victim.placed), shared, shown)
            self._empty(victim.candidate, trial)
            for pod, row in victim.placed:
                trial.place(pod.cls, row)
            trial.keep()
            plans[victim.candidate.node] = plan
        emptied = sum(victim.candidate.counts for victim in victims)
        stay: list[Verdict] = []
        for node, judged in examined.items():
            if node in plans:
                continue
            if isinstance(judged, Candidate) and (blocker := shared.minimum.blocker(node, judged.movers, emptied)):
                stay.append(Rejected(node, (blocker,)))
            else:
                stay.append(
                    judged
                    if isinstance(judged, Rejected)
                    else self._packed(judged, shared, remaining, Effort(0), trial)
                )
        return [*plans.values(), *stay]

    def _verdict(self, node: str, shared: PlanningRound, remaining: RemainingDisruptions) -> Verdict:
        candidate = self._candidate(node, shared)
        if isinstance(candidate, Rejected):
            return candidate
        self._filters.refresh(pod.cls for pod in candidate.movers)
        with self._snapshot.trial() as trial:
            return self._packed(candidate, shared, remaining, self._effort(len(shared.groups.on_demand)), trial)

    def _packed(
        self, candidate: Candidate, shared: PlanningRound, remaining: RemainingDisruptions, effort: Effort, trial: Trial
    ) -> Verdict:
        """Try to drain the candidate's node within *trial*. If that fails, *trial* is unchanged."""
        if blockers := remaining.reserve(candidate.movers):
            return Rejected(candidate.node, tuple(blockers))
        mark = trial.savepoint()
        self._empty(candidate, trial)
        placed = pack(shared.room, trial, candidate.movers, effort)
        if isinstance(placed, Stuck):
            trial.revert(mark)
            trial.undrain(candidate.row)
            return Rejected(candidate.node, (_no_room(placed, shared),))
        return self._plan(candidate, placed)

    def _empty(self, candidate: Candidate, trial: Trial) -> None:
        trial.evict(*candidate.movers)
        trial.drain(candidate.row)

    def _plan(self, candidate: Candidate, placed: Iterable[tuple[Pod, int]]) -> Plan:
        names = self._snapshot.nodes.names
        placements = [
            Placement(_ref(pod), names[row], pod.cls.spec.termination_grace_period_seconds, pod.owner)
            for pod, row in placed
        ]
        return Plan(candidate.node, tuple(placements), candidate.leaving)

    def _with_forecast(self, verdict: Verdict, shared: PlanningRound, effort: Effort) -> Verdict:
        """Add a forecast to a plan if *effort* allows it. The forecast does not affect the verdict."""
        if isinstance(verdict, Plan) and effort.spend(PLAYS * len(verdict.placements)):
            return with_forecast(verdict, shared.forecaster.forecast(verdict))
        return verdict

    def _checked_within_effort(self, plan: Plan, shared: PlanningRound, effort: Effort) -> Verdict:
        """Return *plan* with its forecast, or a rejection.

        If *effort* ends before all plans have a forecast, the objections so far are kept, so that the next round
        reaches other nodes.
        """
        if (known := self._objections.get(plan.node)) is not None:
            return known
        if effort.exhausted:
            return Rejected(plan.node, (Blocker(Reason.TIMEOUT, _NO_FORECAST),))
        effort.spend(PLAYS * len(plan.placements))
        verdict = self._checked(plan, shared)
        if isinstance(verdict, Rejected):
            self._objections[plan.node] = verdict
        return verdict

    def _checked(self, plan: Plan, shared: PlanningRound) -> Verdict:
        """Return *plan* with its forecast, or the rejection that follows from it."""
        forecast = shared.forecaster.forecast(plan)
        blocker = objection(
            plan,
            forecast,
            allow_fragile=self._policy.allow_fragile_plans,
            allow_returning=self._policy.allow_returning_plans,
        )
        return with_forecast(plan, forecast) if blocker is None else Rejected(plan.node, (blocker,))

    def _candidate(self, node: str, shared: PlanningRound) -> Candidate | Rejected:
        """Apply the rules to a node and its pods. Budgets and free resources are checked later."""
        row = self._snapshot.nodes.row[node]
        node_object = self._snapshot.nodes.nodes[row]
        assert node_object is not None
        blockers = list(node_blockers(node_object, self._policy, shared.circumstances))
        pods = self._snapshot.pods_on[node].values()
        movers: list[Pod] = []
        leaving: list[PodRef] = []
        for pod in pods:
            result = fate(pod, shared.context)
            if isinstance(result, Blocker):
                blockers.append(result)
            elif result is Fate.MOVES:
                movers.append(pod)
            elif result is Fate.LEAVES:
                leaving.append(_ref(pod))
        movers.sort(key=lambda pod: pod.key)
        blockers += _claims(movers)
        blockers += shared.left_out.blockers(node, movers)
        blockers += filter(None, [shared.minimum.blocker(node, pods)])
        if blockers:  # Report all blockers at once, including those of budgets.
            return Rejected(node, (*blockers, *self._remaining(shared).reserve(movers)))
        counts = node in shared.minimum.counted
        return Candidate(node, row, tuple(movers), tuple(sorted(leaving, key=str)), counts)

    def _round(self, circumstances: Circumstances) -> PlanningRound:
        """Return the shared inputs for these *circumstances*. They are reused while nothing has changed."""
        snapshot = self._snapshot
        logs = len(snapshot.node_changes), len(snapshot.pod_changes)
        moment = snapshot.epoch, logs, Budgets.version(snapshot), snapshot.unreadable
        if self._last is None or self._last[0] is not circumstances or self._last[1] != moment:
            self._last = circumstances, moment, self._new_round(circumstances)
        return self._last[2]

    def _drain_round(self, circumstances: Circumstances, evicted: Collection[str]) -> PlanningRound:
        """Return the inputs for a node whose drain has *evicted* pods (UIDs)."""
        shared = self._round(circumstances)
        context = replace(shared.context, evicted=frozenset(evicted), waits_for_terminating=bool(evicted))
        return replace(shared, context=context)

    def _new_round(self, circumstances: Circumstances) -> PlanningRound:
        if self._budgets.built_from != Budgets.version(self._snapshot):
            self._budgets = Budgets(self._snapshot)
        snapshot, policy = self._snapshot, self._policy
        left_out = UnreadableObjects(snapshot.unreadable)
        node_groups = groups(snapshot, policy, circumstances.ending | left_out.nodes)
        spot = np.zeros(len(snapshot.nodes), np.bool_)
        spot[node_groups.spot_rows] = True
        counts = OwnerCounts(snapshot, frozenset(snapshot.nodes.names[row] for row in node_groups.spot_rows))
        return PlanningRound(
            groups=node_groups,
            room=Room(snapshot, self._filters, node_groups.spot, Sizes(snapshot, node_groups.spot)),
            context=Context(
                policy,
                circumstances.now,
                self._budgets.guards,
                namespace_labels=self._namespace_labels,
                counts=counts,
            ),
            circumstances=circumstances,
            forecaster=Forecaster(snapshot, self._filters, spot),
            minimum=minimum(snapshot, policy.min_on_demand_nodes, node_groups.on_demand, circumstances),
            steps=Steps(snapshot, self._budgets, policy),
            left_out=left_out,
            counts=counts,
        )

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        namespace = self._snapshot.of("Namespace").get(name)
        return namespace.metadata.labels if isinstance(namespace, Namespace) else {}

    def _remaining(self, shared: PlanningRound) -> RemainingDisruptions:
        too_slow = shared.steps.too_slow if self._policy.budgets_in_steps else None
        return RemainingDisruptions(self._budgets, too_slow, replicas=RemainingReplicas(shared.counts))

    def _floors(self, shared: PlanningRound, gone: Iterable[Pod], left: Sequence[Pod]) -> list[Blocker]:
        """Return why *left* must not follow the pods that are *gone* to spot nodes: their controllers keep replicas."""
        remaining = RemainingReplicas(shared.counts)
        remaining.take(remaining.groups([pod for pod in gone if not pod.cls.terminating]))
        return remaining.blockers(remaining.groups(left))

    def _effort(self, nodes: int = 1) -> Effort:
        """Return the effort allowed beyond first-fit, divided equally among *nodes*."""
        return Effort(int(self._policy.planning_timeout * QUESTIONS_PER_SECOND) // max(1, nodes))

    def _planning(self, shared: PlanningRound, verdicts: Iterable[Verdict]) -> Planning:
        return Planning(tuple(verdicts), len(shared.groups.on_demand), shared.groups.spot_nodes)


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def _no_room(stuck: Stuck, shared: PlanningRound) -> Blocker:
    idle = shared.groups.spot_nodes - len(shared.groups.spot.rows)
    more = f"; {idle} more are leaving, cordoned or not Ready" if idle else ""
    return Blocker(Reason.NO_ROOM, stuck.why + more, stuck.pod.key)


def _claims(movers: list[Pod]) -> Iterator[Blocker]:
    for pod in movers:
        if pod.cls.spec.resource_claims:
            detail = "it uses resource claims (DRA): it is not known whether its devices are free elsewhere"
            yield Blocker(Reason.RESOURCE_CLAIM, detail, pod.key)
