"""Which on-demand nodes can be emptied onto spot nodes, and where each of their pods would go.

The planner works on one snapshot that it leaves as it found it. What it keeps between rounds are answers of
filters that still hold. Nothing here reads a clock, logs or acts.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import numpy as np

from predicates.filters import Filters
from predicates.objects import Pod
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.budgets import Budgets, Purse
from rescheduler.planning.candidates import Groups, groups, node_blockers
from rescheduler.planning.drainability import Context, Fate, fate, instant
from rescheduler.planning.explain import Explanation, explain
from rescheduler.planning.forecast import PLAYS, Forecaster, foretold, objection
from rescheduler.planning.minimum import Minimum, minimum
from rescheduler.planning.outcome import Blocker, Placement, Plan, Planning, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.packing import QUESTIONS_PER_SECOND, Effort, Room, Sizes, Stuck, pack
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.search import Candidate, Search, Victims
from rescheduler.planning.steps import Steps
from rescheduler.planning.unreadable import LeftOut

_NOT_PLAYED: Final = "it was not played through: --planning-timeout was spent on nodes before it; its turn will come"


@dataclass(frozen=True, slots=True)
class Ground:
    """What all candidates of one round stand on."""

    groups: Groups
    room: Room
    context: Context
    circumstances: Circumstances
    forecaster: Forecaster
    minimum: Minimum
    steps: Steps
    left_out: LeftOut


class Planner:
    """Plans over *snapshot*, which may change between calls, never during one."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = Filters(snapshot, DEFAULT)
        self._budgets = Budgets(snapshot)
        self._last: tuple[Circumstances, object, Ground] | None = None
        self._objections: dict[str, Rejected] = {}  #: of nodes weighed in rounds that ended before all were

    @property
    def filters(self) -> Filters:
        """The filters that the plans were made with, for whoever explains them."""
        return self._filters

    def plan_each(self, circumstances: Circumstances) -> Planning:
        """Each on-demand node judged by itself, as things are."""
        ground = self._ground(circumstances)
        purse = self._purse(ground)
        verdicts = [self._alone(name, ground, purse.copy()) for name in ground.groups.on_demand]
        effort = ground.forecaster.ahead()
        return self._planning(ground, (self._shown(one, ground, effort) for one in verdicts))

    def first_plan(
        self, circumstances: Circumstances, *, take_empty: Callable[[str], bool] = lambda _: False
    ) -> Planning:
        """Verdicts in drain order up to the first node that can be emptied, and whose plan may be trusted.

        A plan that does not come true when it is played through, or mostly shuffles pods between nodes that are not
        spot, is rejected. A node with nothing to move is a plan too, but ends the search only where *take_empty* says
        so of it: where nobody takes the node away there is nothing to do for it.
        """
        ground = self._ground(circumstances)
        found: list[Verdict] = []
        effort = ground.forecaster.effort(self._policy.planning_timeout)
        for name in ground.groups.on_demand:
            verdict = self._alone(name, ground, self._purse(ground))
            if isinstance(verdict, Plan) and verdict.placements:
                verdict = self._weighed(verdict, ground, effort)
            empty = isinstance(verdict, Plan) and not verdict.placements and not verdict.leaving
            found.append(verdict)
            if isinstance(verdict, Plan) and (not empty or take_empty(name)):
                break
        if not effort.exhausted:
            self._objections.clear()
        return self._planning(ground, found)

    def plan_node(self, node: str, circumstances: Circumstances) -> Verdict:
        """One node judged by itself, as things are: whether its pods may be evicted and fit."""
        ground = self._ground(circumstances)
        return self._alone(node, ground, self._purse(ground))

    def look_again(self, node: str, circumstances: Circumstances, evicted: Collection[str] = ()) -> Verdict:
        """One node judged as by :meth:`first_plan`: asked again once our taint is on it.

        Pods that this drain has *evicted* (UIDs) leave, however long that takes. Once there is one, other terminating
        pods that are not overdue are waited for as well: a scale-down or a roll-out deletes pods at any time. Before,
        they are judged as for a new drain.
        """
        ground = self._draining(circumstances, evicted)
        verdict = self._alone(node, ground, self._purse(ground))
        return self._trusted(verdict, ground) if isinstance(verdict, Plan) else verdict

    def follow(
        self, node: str, circumstances: Circumstances, due: Sequence[Pod], evicted: Collection[str] = ()
    ) -> Verdict:
        """Whether the pods that are left on *node*, which is being drained, fit beside the replacement pods of *due*.

        *evicted* are UIDs of the pods that this drain has evicted: they are gone, even before that shows. Budgets are
        left to the eviction API, which refuses for the moment what they do not allow.
        """
        ground = self._draining(circumstances, evicted)
        candidate = self._examined(node, ground)
        if isinstance(candidate, Rejected):
            return candidate
        left = tuple(pod for pod in candidate.movers if pod.uid not in evicted)
        gone = [pod for pod in self._snapshot.pods_on[node].values() if pod.uid in evicted]
        self._filters.refresh(pod.cls for pod in (*left, *due))
        with self._snapshot.trial() as trial:
            trial.evict(*gone)  # they may still hold a claim or a port
            self._empty(replace(candidate, movers=left), trial)
            placed = pack(ground.room, trial, (*due, *left), self._effort())
        if isinstance(placed, Stuck):
            return Rejected(node, (_no_room(placed, ground),))
        return self._plan(candidate, placed)

    def forecast(self, plan: Plan, circumstances: Circumstances) -> Plan:
        """*plan*, made of the snapshot as it is, with what becomes of it by the scheduler's own scoring."""
        return foretold(plan, self._ground(circumstances).forecaster.forecast(plan))

    def waiting(self, circumstances: Circumstances, patience: timedelta) -> list[Pod]:
        """Pods that the scheduler finds no place for and that a spot node could take if it had room, by name.

        One that has been pending for longer than *patience*, or that no spot node could ever take, is left out:
        it would hold everything up for ever.
        """
        targets = self._ground(circumstances).groups.spot
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
        """Which spot nodes would take *pod* if it alone were evicted now, and why the others would not."""
        ground = self._ground(circumstances)
        return explain(
            pod, self._snapshot, self._filters, ground.groups.spot_rows, self._eviction_blockers(pod, ground)
        )

    def must_move(self, node: str, circumstances: Circumstances) -> list[Pod]:
        """The pods of *node* that would have to move for it to be emptied, by name, those that may not included."""
        context = self._ground(circumstances).context
        pods = (pod for pod in self._snapshot.pods_on[node].values() if not pod.cls.terminating)
        return sorted((pod for pod in pods if fate(pod, context) is not Fate.STAYS), key=lambda pod: pod.key)

    def in_question(self, circumstances: Circumstances) -> Iterator[Pod]:
        """All pods that would have to move, node by node in drain order, then those that are pending."""
        for node in self._ground(circumstances).groups.on_demand:
            yield from self.must_move(node, circumstances)
        yield from sorted(self._snapshot.pods_on[""].values(), key=lambda pod: pod.key)

    def _eviction_blockers(self, pod: Pod, ground: Ground) -> list[Blocker]:
        if not pod.node_name:
            return []
        opinion = fate(pod, ground.context)
        found = [opinion] if isinstance(opinion, Blocker) else []
        return [*found, *_claims([pod]), *self._purse(ground).pay([pod])]

    def plan_all(self, circumstances: Circumstances) -> Planning:
        """The on-demand nodes emptied one after the other: what one takes is gone for the next.

        Plans come first, in drain order, then the nodes that stay.
        """
        ground = self._ground(circumstances)
        examined = {node: self._examined(node, ground) for node in ground.groups.on_demand}
        candidates = [one for one in examined.values() if isinstance(one, Candidate)]
        effort = self._effort()
        with self._snapshot.trial() as trial:
            search = Search(ground.room, trial, candidates, lambda: self._purse(ground), ground.minimum.spare, effort)
            verdicts = self._carried_out(search.run(), examined, ground, trial)
        planning = self._planning(ground, verdicts)
        return replace(
            planning,
            timed_out=effort.exhausted and len(planning.plans) < search.upper_bound,
            upper_bound=search.upper_bound,
        )

    def _carried_out(
        self, victims: Victims, examined: dict[str, Candidate | Rejected], ground: Ground, trial: Trial
    ) -> list[Verdict]:
        """Place the *victims*, then say of every other node why it stays beside them."""
        purse = self._purse(ground)
        plans: dict[str, Verdict] = {}
        shown = ground.forecaster.ahead()
        for victim in victims:
            purse.pay(victim.candidate.movers)
            plan = self._shown(self._plan(victim.candidate, victim.placed), ground, shown)
            self._empty(victim.candidate, trial)
            for pod, row in victim.placed:
                trial.place(pod.cls, row)
            trial.keep()
            plans[victim.candidate.node] = plan
        emptied = sum(victim.candidate.counts for victim in victims)
        stay: list[Verdict] = []
        for node, one in examined.items():
            if node in plans:
                continue
            if isinstance(one, Candidate) and (blocker := ground.minimum.blocker(node, one.movers, emptied)):
                stay.append(Rejected(node, (blocker,)))
            else:
                stay.append(one if isinstance(one, Rejected) else self._drained(one, ground, purse, Effort(0), trial))
        return [*plans.values(), *stay]

    def _alone(self, node: str, ground: Ground, purse: Purse) -> Verdict:
        candidate = self._examined(node, ground)
        if isinstance(candidate, Rejected):
            return candidate
        self._filters.refresh(pod.cls for pod in candidate.movers)
        with self._snapshot.trial() as trial:
            return self._drained(candidate, ground, purse, self._effort(len(ground.groups.on_demand)), trial)

    def _drained(self, candidate: Candidate, ground: Ground, purse: Purse, effort: Effort, trial: Trial) -> Verdict:
        """Empty the candidate's node within *trial*; where that does not succeed the trial is as before."""
        if blockers := purse.pay(candidate.movers):
            return Rejected(candidate.node, tuple(blockers))
        mark = trial.savepoint()
        self._empty(candidate, trial)
        placed = pack(ground.room, trial, candidate.movers, effort)
        if isinstance(placed, Stuck):
            trial.revert(mark)
            trial.undrain(candidate.row)
            return Rejected(candidate.node, (_no_room(placed, ground),))
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

    def _shown(self, verdict: Verdict, ground: Ground, effort: Effort) -> Verdict:
        """A plan with its forecast, as far as *effort* reaches; it stays a plan whatever that says."""
        if isinstance(verdict, Plan) and effort.spend(PLAYS * len(verdict.placements)):
            return foretold(verdict, ground.forecaster.forecast(verdict))
        return verdict

    def _weighed(self, plan: Plan, ground: Ground, effort: Effort) -> Verdict:
        """*plan* if it may be trusted.

        Where *effort* ends first the objections found so far stand, so that the next round gets to other nodes.
        """
        if (known := self._objections.get(plan.node)) is not None:
            return known
        if effort.exhausted:
            return Rejected(plan.node, (Blocker(Reason.TIMEOUT, _NOT_PLAYED),))
        effort.spend(PLAYS * len(plan.placements))
        verdict = self._trusted(plan, ground)
        if isinstance(verdict, Rejected):
            self._objections[plan.node] = verdict
        return verdict

    def _trusted(self, plan: Plan, ground: Ground) -> Verdict:
        """*plan* with its forecast, or why it is better not carried out."""
        forecast = ground.forecaster.forecast(plan)
        trouble = objection(
            plan,
            forecast,
            allow_fragile=self._policy.allow_fragile_plans,
            allow_returning=self._policy.allow_returning_plans,
        )
        return foretold(plan, forecast) if trouble is None else Rejected(plan.node, (trouble,))

    def _examined(self, node: str, ground: Ground) -> Candidate | Rejected:
        """What the rules say of a node and its pods; budgets and room are asked later."""
        row = self._snapshot.nodes.row[node]
        known = self._snapshot.nodes.nodes[row]
        assert known is not None
        blockers = list(node_blockers(known, self._policy, ground.circumstances))
        pods = self._snapshot.pods_on[node].values()
        movers: list[Pod] = []
        leaving: list[PodRef] = []
        for pod in pods:
            opinion = fate(pod, ground.context)
            if isinstance(opinion, Blocker):
                blockers.append(opinion)
            elif opinion is Fate.MOVES:
                movers.append(pod)
            elif opinion is Fate.LEAVES:
                leaving.append(_ref(pod))
        movers.sort(key=lambda pod: pod.key)
        blockers += _claims(movers)
        blockers += ground.left_out.blockers(node, movers)
        blockers += filter(None, [ground.minimum.blocker(node, pods)])
        if blockers:  # All that stands in the way is told at once, not one thing after the other.
            return Rejected(node, (*blockers, *self._purse(ground).pay(movers)))
        counts = node in ground.minimum.counted
        return Candidate(node, row, tuple(movers), tuple(sorted(leaving, key=str)), counts)

    def _ground(self, circumstances: Circumstances) -> Ground:
        """What answers under these *circumstances* stand on; the same for all of them while nothing changes."""
        snapshot = self._snapshot
        logs = len(snapshot.node_changes), len(snapshot.pod_changes)
        moment = snapshot.epoch, logs, Budgets.version(snapshot), snapshot.unreadable
        if self._last is None or self._last[0] is not circumstances or self._last[1] != moment:
            self._last = circumstances, moment, self._new_ground(circumstances)
        return self._last[2]

    def _draining(self, circumstances: Circumstances, evicted: Collection[str]) -> Ground:
        """The ground of a node whose drain has *evicted* pods (UIDs)."""
        ground = self._ground(circumstances)
        context = replace(ground.context, evicted=frozenset(evicted), waits_for_terminating=bool(evicted))
        return replace(ground, context=context)

    def _new_ground(self, circumstances: Circumstances) -> Ground:
        if self._budgets.made_of != Budgets.version(self._snapshot):
            self._budgets = Budgets(self._snapshot)
        snapshot, policy = self._snapshot, self._policy
        left_out = LeftOut(snapshot.unreadable)
        found = groups(snapshot, policy, circumstances.ending | left_out.nodes)
        spot = np.zeros(len(snapshot.nodes), np.bool_)
        spot[found.spot_rows] = True
        return Ground(
            groups=found,
            room=Room(snapshot, self._filters, found.spot, Sizes(snapshot, found.spot)),
            context=Context(policy, circumstances.now, self._budgets.guards),
            circumstances=circumstances,
            forecaster=Forecaster(snapshot, self._filters, spot),
            minimum=minimum(snapshot, policy.min_on_demand_nodes, found.on_demand, circumstances),
            steps=Steps(snapshot, self._budgets, policy),
            left_out=left_out,
        )

    def _purse(self, ground: Ground) -> Purse:
        return Purse(self._budgets, ground.steps.too_slow if self._policy.budgets_in_steps else None)

    def _effort(self, nodes: int = 1) -> Effort:
        """What may be spent above first-fit, of which each of so many *nodes* has its share."""
        return Effort(int(self._policy.planning_timeout * QUESTIONS_PER_SECOND) // max(1, nodes))

    def _planning(self, ground: Ground, verdicts: Iterable[Verdict]) -> Planning:
        return Planning(tuple(verdicts), len(ground.groups.on_demand), ground.groups.spot_nodes)


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)


def _no_room(stuck: Stuck, ground: Ground) -> Blocker:
    idle = ground.groups.spot_nodes - len(ground.groups.spot.rows)
    more = f"; {idle} more are leaving, cordoned or not Ready" if idle else ""
    return Blocker(Reason.NO_ROOM, stuck.why + more, stuck.pod.key)


def _claims(movers: list[Pod]) -> Iterator[Blocker]:
    for pod in movers:
        if pod.cls.spec.resource_claims:
            detail = "it uses resource claims (DRA): whether its devices are free elsewhere cannot be proved"
            yield Blocker(Reason.RESOURCE_CLAIM, detail, pod.key)
