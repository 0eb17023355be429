"""Which on-demand nodes can be emptied onto spot nodes, and where each of their pods would go.

The planner works on one snapshot that it leaves as it found it. What it keeps between rounds are answers of
filters that still hold. Nothing here reads a clock, logs or acts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from predicates.framework import Filters
from predicates.objects import Pod
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.budgets import Budgets, Purse
from rescheduler.planning.candidates import Groups, groups, node_blockers
from rescheduler.planning.drainability import Context, Fate, fate
from rescheduler.planning.explain import Explanation, explain
from rescheduler.planning.outcome import Blocker, Placement, Plan, Planning, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.packing import QUESTIONS_PER_SECOND, Effort, Sizes, Stuck, pack
from rescheduler.planning.policy import Circumstances, Policy


@dataclass(frozen=True, slots=True)
class Candidate:
    """An on-demand node whose pods may all be evicted, as far as the rules go."""

    node: str
    movers: tuple[Pod, ...]
    leaving: tuple[PodRef, ...]


@dataclass(frozen=True, slots=True)
class Ground:
    """What all candidates of one round stand on."""

    groups: Groups
    sizes: Sizes
    context: Context
    circumstances: Circumstances


class Planner:
    """Plans over *snapshot*, which may change between calls, never during one."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._filters = Filters(snapshot, DEFAULT)
        self._budgets = Budgets(snapshot)

    @property
    def filters(self) -> Filters:
        """The filters that the plans were made with, for whoever explains them."""
        return self._filters

    def plan_each(self, circumstances: Circumstances) -> Planning:
        """Each on-demand node judged by itself, as things are."""
        ground = self._ground(circumstances)
        purse = self._purse()
        verdicts = (self._alone(name, ground, purse.copy()) for name in ground.groups.on_demand)
        return self._planning(ground, self._above_minimum(verdicts, ground))

    def first_plan(self, circumstances: Circumstances, *, take_empty: bool = False) -> Planning:
        """Verdicts in drain order up to the first node that can be emptied.

        A node with nothing to move is a plan too, but ends the search only with *take_empty*: where nobody
        takes the node away there is nothing to do for it.
        """
        ground = self._ground(circumstances)
        found: list[Verdict] = []
        for name in ground.groups.on_demand:
            verdict = self._alone(name, ground, self._purse())
            empty = isinstance(verdict, Plan) and not verdict.placements and not verdict.leaving
            found.append(verdict)
            if isinstance(verdict, Plan) and (take_empty or not empty):
                break
        return self._planning(ground, self._above_minimum(found, ground))

    def plan_node(self, node: str, circumstances: Circumstances) -> Verdict:
        """One node judged by itself, as things are: asked again once our taint is on it."""
        return self._alone(node, self._ground(circumstances), self._purse())

    def explain(self, pod: Pod, circumstances: Circumstances) -> Explanation:
        """Which spot nodes would take *pod* if it alone were evicted now, and why the others would not."""
        ground = self._ground(circumstances)
        return explain(
            pod, self._snapshot, self._filters, ground.groups.spot_rows, self._eviction_blockers(pod, ground)
        )

    def must_move(self, node: str, circumstances: Circumstances) -> list[Pod]:
        """The pods of *node* that would have to move for it to be emptied, by name, those that may not included."""
        context = self._ground(circumstances).context
        stay = (Fate.STAYS, Fate.LEAVES)
        pods = (pod for pod in self._snapshot.pods_on[node].values() if fate(pod, context) not in stay)
        return sorted(pods, key=lambda pod: pod.key)

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
        return [*found, *_claims([pod]), *self._purse().pay([pod])]

    def plan_all(self, circumstances: Circumstances) -> Planning:
        """The on-demand nodes emptied one after the other: what one takes is gone for the next."""
        ground = self._ground(circumstances)
        with self._snapshot.trial() as trial:
            return self._planning(ground, self._one_after_the_other(ground, trial))

    def _one_after_the_other(self, ground: Ground, trial: Trial) -> list[Verdict]:
        purse, effort = self._purse(), self._effort()
        spare = len(ground.groups.on_demand) - self._policy.min_on_demand_nodes
        verdicts: list[Verdict] = []
        for name in ground.groups.on_demand:
            if spare <= 0:
                verdicts.append(self._too_few(name))
                continue
            verdict = self._drained(name, ground, purse, effort, trial)
            if isinstance(verdict, Plan):
                trial.keep()
                spare -= 1
            verdicts.append(verdict)
        return verdicts

    def _alone(self, node: str, ground: Ground, purse: Purse) -> Verdict:
        with self._snapshot.trial() as trial:
            return self._drained(node, ground, purse, self._effort(), trial)

    def _drained(self, node: str, ground: Ground, purse: Purse, effort: Effort, trial: Trial) -> Verdict:
        """Empty *node* within *trial*; where that does not succeed the trial is as before."""
        candidate = self._candidate(node, ground, purse)
        if isinstance(candidate, Rejected):
            return candidate
        mark = trial.mark()
        for pod in candidate.movers:
            trial.evict(pod)
        trial.drain(self._snapshot.nodes.row[node])
        placed = pack(self._filters, ground.groups.spot, ground.sizes, trial, candidate.movers, effort)
        if isinstance(placed, Stuck):
            trial.back(mark)
            trial.undrain(self._snapshot.nodes.row[node])
            return Rejected(node, (_no_room(placed, ground),))
        names = self._snapshot.nodes.names
        placements = tuple(
            Placement(_ref(pod), names[row], pod.cls.spec.termination_grace_period_seconds) for pod, row in placed
        )
        return Plan(node, placements, candidate.leaving)

    def _candidate(self, node: str, ground: Ground, purse: Purse) -> Candidate | Rejected:
        row = self._snapshot.nodes.row[node]
        known = self._snapshot.nodes.nodes[row]
        assert known is not None
        blockers = list(node_blockers(known, self._policy, ground.circumstances))
        movers: list[Pod] = []
        leaving: list[PodRef] = []
        for pod in self._snapshot.pods_on[node].values():
            opinion = fate(pod, ground.context)
            if isinstance(opinion, Blocker):
                blockers.append(opinion)
            elif opinion is Fate.MOVES:
                movers.append(pod)
            elif opinion is Fate.LEAVES:
                leaving.append(_ref(pod))
        movers.sort(key=lambda pod: pod.key)
        blockers += _claims(movers)
        if blockers:
            return Rejected(node, tuple(blockers))
        if blockers := purse.pay(movers):
            return Rejected(node, tuple(blockers))
        return Candidate(node, tuple(movers), tuple(sorted(leaving, key=str)))

    def _above_minimum(self, verdicts: Iterable[Verdict], ground: Ground) -> list[Verdict]:
        """No single drain may leave fewer on-demand nodes than the policy wants."""
        if len(ground.groups.on_demand) > self._policy.min_on_demand_nodes:
            return list(verdicts)
        return [self._too_few(verdict.node) if isinstance(verdict, Plan) else verdict for verdict in verdicts]

    def _too_few(self, node: str) -> Rejected:
        detail = f"--min-on-demand-nodes={self._policy.min_on_demand_nodes} must remain"
        return Rejected(node, (Blocker(Reason.MIN_ON_DEMAND_NODES, detail),))

    def _ground(self, circumstances: Circumstances) -> Ground:
        if self._budgets.epoch != self._snapshot.epoch:
            self._budgets = Budgets(self._snapshot)
        found = groups(self._snapshot, self._policy)
        context = Context(self._policy, circumstances.now, self._budgets.guards)
        return Ground(found, Sizes(self._snapshot, found.spot), context, circumstances)

    def _purse(self) -> Purse:
        return Purse(self._budgets, self._policy.budgets_in_steps)

    def _effort(self) -> Effort:
        return Effort(int(self._policy.planning_timeout * QUESTIONS_PER_SECOND))

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
