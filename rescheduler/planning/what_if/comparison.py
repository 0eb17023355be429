"""Plans with hypothetical changes, and the effects of lost spot nodes on their pods."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as settings_replaced
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import Pod, PodClass
from predicates.scheduler import Scheduler
from predicates.snapshot import Snapshot
from rescheduler.errors import UsageError
from rescheduler.planning.answers.losses import PoolLoss
from rescheduler.planning.answers.survival import Certificate
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.forms import count, shortened
from rescheduler.planning.money.move_costs import PlanMoves
from rescheduler.planning.money.prices import PriceList, node_facts, with_added, zone_of
from rescheduler.planning.money.worth import AddedSpot, Worth, added_spot, summed
from rescheduler.planning.node_info import full_name, similar_node
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected
from rescheduler.planning.placement.explain import Explanation
from rescheduler.planning.placement.packing import Room, Sizes, first_fitting
from rescheduler.planning.placement.preemption import priority_of
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Leftovers, Policy, Surging, Survive
from rescheduler.planning.pools import spot_pools
from rescheduler.planning.rules.candidates import groups, why_not_target
from rescheduler.planning.rules.pod_rules import NOT_RECREATED
from rescheduler.planning.surges import LIFTED
from rescheduler.planning.what_if.changes import Change, OtherScheduler, changed, copied
from rescheduler.planning.what_if.levers import rank_levers
from rescheduler.planning.what_if.overview import SETTING, Lever, RankedLevers, worths_of

#: A text names at most this many nodes.
_NAMED: Final = 3

# The simultaneous loss of spot nodes, and their pods that would not fit on the remaining nodes.


@dataclass(frozen=True, slots=True)
class LoseSpot:
    """Lose spot nodes: all of a *zone* or *pool*, a *percent* of them, or one *node*.

    A zone is named completely, or by the end of its name if no zone has that name: ``b`` for ``eu-west-1b``. A
    percentage is rounded up to whole nodes, which are spread evenly over the spot nodes sorted by name.
    """

    zone: str = ""
    percent: int = 0
    node: str = ""
    pool: str = ""


@dataclass(frozen=True, slots=True)
class LoseEachPool:
    """Lose each pool of spot nodes, one at a time."""


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod that no remaining node accepts."""

    pod: str  #: ``namespace/name``
    controller: ControllerName
    priority: int
    why: str


def lost_nodes(snapshot: Snapshot, policy: Policy, loss: LoseSpot) -> list[str]:
    """Return the names of the spot nodes that *loss* selects. Raises UsageError if there are none."""
    table = snapshot.nodes
    spot = [table.names[row] for row in groups(snapshot, policy).spot_rows]
    if loss.node:
        if (name := full_name(loss.node, spot)) not in spot:
            raise UsageError(f"lose-spot: there is no spot node {loss.node}{similar_node(loss.node, spot)}")
        return [name]
    if loss.zone:
        zones = {name: zone_of(node) for name in spot if (node := table.nodes[table.row[name]]) is not None}
        names = [name for name in spot if zones[name] == loss.zone]
        names = names or [name for name in spot if zones[name].endswith(loss.zone)]
        if not names:
            zone_names = ", ".join(sorted({zone for zone in zones.values() if zone})) or "none"
            raise UsageError(f"lose-spot: no spot node is in zone {loss.zone}; zones of the spot nodes: {zone_names}")
        return names
    if loss.pool:
        pools = spot_pools(table, groups(snapshot, policy).spot_rows, policy.spot_pool_labels)
        if loss.pool not in pools.names:
            known = ", ".join(pools.names) or "none"
            raise UsageError(f"lose-spot: there is no pool {loss.pool}; pools of the spot nodes: {known}")
        return [table.names[row] for row in pools.rows_of(loss.pool).tolist()]
    if not spot:
        raise UsageError(f"lose-spot: no node has the label {policy.spot_label} (--spot-node-label)")
    count, total = -(-len(spot) * loss.percent // 100), len(spot)
    return [name for index, name in enumerate(spot) if (index + 1) * count // total > index * count // total]


def _unplaced(loss: PoolLoss, snapshot: Snapshot) -> list[UnplacedPod]:
    """Return the pods of lost nodes without a place, the highest priority first."""
    homeless = [
        UnplacedPod(pod, each.controller, each.priority, each.why) for each in loss.homeless for pod in each.pods
    ]
    alone = (snapshot.pods[key] for key in loss.not_recreated)
    homeless += (UnplacedPod(pod.key, controller_of(pod), pod.cls.spec.priority or 0, NOT_RECREATED) for pod in alone)
    return sorted(homeless, key=lambda pod: (-pod.priority, pod.controller, pod.pod))


def lose(snapshot: Snapshot, policy: Policy, names: Sequence[str], displaced: Sequence[Pod]) -> None:
    """Remove the nodes *names* from *snapshot*, and place the *displaced* pods on the remaining nodes, if possible.

    Pods of the highest priority come first, then the largest. Spot nodes are tried before on-demand nodes. Pods
    that do not fit stay pending in the snapshot.
    """
    for name in names:
        for pod in list(snapshot.pods_on[name].values()):
            snapshot.delete("Pod", pod.key)
        snapshot.delete("Node", name)
    room = _room(snapshot, policy)
    again = sorted(displaced, key=lambda pod: (-priority_of(pod), -room.sizes.of(pod.cls), pod.key))
    nodes = {pod.key: snapshot.nodes.names[row] for pod, row in first_fitting(room, again)}
    for pod in again:
        snapshot.upsert("Pod", replace(snapshot.bound_to(pod, nodes.get(pod.key, "")), loads=()))


def _room(snapshot: Snapshot, policy: Policy) -> Room:
    node_groups, table = groups(snapshot, policy), snapshot.nodes
    on_demand = (table.nodes[table.row[name]] for name in node_groups.on_demand)
    rows = [table.row[node.name] for node in on_demand if node is not None and why_not_target(node) is None]
    targets = Targets([*node_groups.spot.rows.tolist(), *rows])
    return Room(snapshot, Filters(snapshot, kubelets=True), targets, Sizes(snapshot, targets), "remaining nodes")


# The rehearsal of another scheduler: the pods and nodes whose verdict it changes, and why.


@dataclass(frozen=True, slots=True)
class ChangedNode:
    """An on-demand node that drains under one of the two schedulers only."""

    node: str
    drains: bool  #: under the other scheduler
    why: tuple[Blocker, ...]  #: why it stays under the one where it does not drain


@dataclass(frozen=True, slots=True)
class ChangedPod:
    """A pod on an on-demand node that other spot nodes accept under the other scheduler."""

    pod: str
    node: str
    #: The spot nodes that accept it today and not under the other scheduler, with the plugin's reasons.
    rejected: Mapping[str, str]
    accepted: Mapping[str, str]  #: those that reject it today, with today's reasons, and accept it then


def changed_nodes(before: Planning, after: Planning) -> list[ChangedNode]:
    """Return the nodes that only one of two plans drains, in the order of the second one."""
    earlier = {verdict.node: verdict for verdict in before.verdicts}
    changes = []
    for verdict in after.verdicts:
        other = earlier.get(verdict.node)
        if isinstance(verdict, Rejected) is isinstance(other, Rejected) or other is None:
            continue
        stays = verdict if isinstance(verdict, Rejected) else other
        assert isinstance(stays, Rejected)
        changes.append(ChangedNode(verdict.node, stays is other, stays.blockers))
    return changes


def changed_pods(
    snapshot: Snapshot, policy: Policy, circumstances: Circumstances, scheduler: Scheduler
) -> list[ChangedPod]:
    """Return the pods that would have to move whose possible spot nodes differ under *scheduler*.

    Each pod is judged as if it alone were evicted now. Pods of the same class on the same node are judged once.
    """
    other = copied(snapshot)
    other.use(scheduler)
    here, there = Planner(snapshot, policy), Planner(other, policy)
    judged: dict[tuple[str, PodClass], tuple[Mapping[str, str], Mapping[str, str]]] = {}
    changes = []
    for node in here.on_demand(circumstances):
        for pod in here.must_move(node, circumstances):
            if (found := judged.get((node, pod.cls))) is None:
                now, then = here.explain(pod, circumstances), there.explain(pod, circumstances)
                found = judged[node, pod.cls] = _refused(then, now), _refused(now, then)
            if any(found):
                changes.append(ChangedPod(pod.key, node, *found))
    return changes


def _refused(by: Explanation, unlike: Explanation) -> dict[str, str]:
    """Return the nodes that reject the pod in *by* but not in *unlike*, with the reasons."""
    accepting = frozenset(unlike.feasible)
    return {
        node: "; ".join(f"{plugin}: {', '.join(reasons)}" for plugin, reasons in refusals)
        for node, refusals in _refusals(by)
        if node in accepting
    }


def _refusals(explanation: Explanation) -> Iterator[tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]]:
    for nodes, refusals in explanation.rejecting():
        for node in nodes:
            yield node, refusals


#: A change, or a loss of spot nodes, which is applied after all changes.
Hypothesis: TypeAlias = Change | LoseSpot | LoseEachPool


@dataclass(frozen=True, slots=True)
class LostSpot:
    """The result of losing spot nodes: the pods that would not fit on the remaining nodes."""

    nodes: tuple[str, ...]
    unplaced: tuple[UnplacedPod, ...]  #: if they were lost now
    unplaced_after_drains: tuple[UnplacedPod, ...]  #: if they were lost after the drains of the plan
    judged: bool = True  #: False if the limit of simulated pods was reached for any of both


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The result of another scheduler: what it changes, by itself for pods, and with all changes for nodes."""

    nodes: tuple[ChangedNode, ...]
    pods: tuple[ChangedPod, ...]


@dataclass(frozen=True, slots=True)
class HypotheticalPlan:
    """The plan with all hypotheses applied. *snapshot* and *policy* are the inputs of the plan."""

    planning: Planning
    snapshot: Snapshot
    policy: Policy
    lost: LostSpot | None = None  #: None if no spot nodes are lost
    rehearsal: Rehearsal | None = None  #: None if the scheduler is the same
    each_pool: tuple[Certificate, Certificate] | None = None  #: now, and after the drains; None if not asked for
    moves: Callable[[], PlanMoves] = PlanMoves


def what_if(
    snapshot: Snapshot,
    policy: Policy,
    circumstances: Circumstances,
    hypotheses: Sequence[Hypothesis],
    changed_circumstances: Callable[[Snapshot, Policy], Circumstances] | None = None,
) -> HypotheticalPlan:
    """Plan with all *hypotheses*, on copies of the snapshot.

    *changed_circumstances* returns the circumstances of the snapshot and the policy after the changes, which settings
    can change; without it, they are the *circumstances* of now.

    If spot nodes are lost, their pods are first placed on the remaining nodes. Raises UsageError if a hypothesis names
    something that does not exist.
    """
    changes = [change for change in hypotheses if not isinstance(change, LoseSpot | LoseEachPool)]
    losses = [change for change in hypotheses if isinstance(change, LoseSpot)]
    after, settings = changed(snapshot, policy, changes)
    now = circumstances
    circumstances = now if changed_circumstances is None else changed_circumstances(after, settings)
    planner = Planner(after, settings)
    planning = planner.plan_all(circumstances)
    each_pool = None
    if any(isinstance(change, LoseEachPool) for change in hypotheses):
        present, drained_first = (
            planner.certificate(circumstances, Survive.POOL, plans) for plans in ((), planning.steps)
        )
        each_pool = present, drained_first
    rehearsal = None
    if any(isinstance(change, OtherScheduler) for change in changes):
        before = Planner(snapshot, policy).plan_all(now)
        pods = changed_pods(snapshot, policy, now, after.scheduler)
        rehearsal = Rehearsal(tuple(changed_nodes(before, planning)), tuple(pods))
    if not losses:
        return _hypothetical(planner, planning, circumstances, after, rehearsal=rehearsal, each_pool=each_pool)
    names = tuple(dict.fromkeys(name for loss in losses for name in lost_nodes(after, settings, loss)))
    results = [planner.loss(circumstances, names, plans) for plans in ((), planning.steps)]
    unplaced, unplaced_after_drains = (tuple(_unplaced(each, after)) for each in results)
    lost = LostSpot(names, unplaced, unplaced_after_drains, judged=all(each.judged for each in results))
    lose(after, settings, names, planner.displaced(circumstances, names))
    planner = Planner(after, settings)
    planning = planner.plan_all(circumstances)
    return _hypothetical(planner, planning, circumstances, after, lost, rehearsal, each_pool)


def _hypothetical(
    planner: Planner,
    planning: Planning,
    circumstances: Circumstances,
    snapshot: Snapshot,
    lost: LostSpot | None = None,
    rehearsal: Rehearsal | None = None,
    each_pool: tuple[Certificate, Certificate] | None = None,
) -> HypotheticalPlan:
    moves = partial(planner.moves, planning, circumstances)
    return HypotheticalPlan(planning, snapshot, planner.policy, lost, rehearsal, each_pool, moves)


def added_nodes(
    snapshot: Snapshot, policy: Policy, outcome: HypotheticalPlan, prices: PriceList
) -> tuple[PriceList, AddedSpot | None]:
    """Return *prices* with those of the spot nodes that *outcome* adds to *snapshot*, and what these cost, if any."""
    names = [name for name in outcome.snapshot.nodes.row if name not in snapshot.nodes.row]
    if not names:
        return prices, None
    added = {name: node_facts(outcome.snapshot, name, spot=True) for name in names}
    spot = (snapshot.nodes.names[row] for row in groups(snapshot, policy).spot_rows)
    known = with_added(prices, added.values(), [node_facts(snapshot, name, spot=True) for name in spot])
    return known, added_spot(added, outcome.planning, outcome.snapshot.pods.get, known)


# The nodes that a plan would also free if Deployments rolled out where evictions are never allowed.


def levers_of(
    planning: Planning,
    planner: Planner,
    snapshot: Snapshot,
    policy: Policy,
    circumstances: Circumstances,
    prices: PriceList,
    time_is_up: Callable[[], bool],
) -> RankedLevers:
    """Return the levers of *planning*, the plan of all nodes in sequence that *planner* made with *policy*.

    Once *time_is_up* returns True, the result contains the findings so far.
    """
    ranked = rank_levers(planning, planner.round(circumstances), prices, time_is_up)
    settings: tuple[Callable[[], Lever | None], ...] = (
        lambda: surge_lever(planning, snapshot, policy, settings_replaced(circumstances, prices=prices)),
        lambda: leftovers_lever(planning, planner, snapshot, policy, circumstances, prices),
    )
    for setting in settings if planning.rejected else ():
        if time_is_up():
            return settings_replaced(ranked, complete=False)
        lever = setting()
        ranked = ranked if lever is None else with_lever(ranked, lever)
    return ranked


def leftovers_lever(
    planning: Planning,
    planner: Planner,
    snapshot: Snapshot,
    policy: Policy,
    circumstances: Circumstances,
    prices: PriceList,
) -> Lever | None:
    """Return what ``--leftovers=move`` would free in addition to *planning*, or None."""
    held = [node for node in planning.rejected if any(each.reason is Reason.PINNED for each in node.blockers)]
    if policy.leftovers is not Leftovers.PLAN or not held:
        return None
    planned = {plan.node for plan in planning.plans}
    after = planner.leftovers_moved(planning, circumstances, prices)
    found = [plan for plan in after.plans if plan.node not in planned]
    if not found:
        return None
    names, after_names = [plan.node for plan in found], [plan.node for plan in after.plans]
    known, before = (worths_of(each, snapshot, prices, circumstances.now.date()) for each in (after, planning))
    worths, staying = {name: known[name] for name in names if name in known}, sorted(planned - {*after_names})
    worth = summed([*worths.values(), *(-before[name] for name in staying if name in before)])
    if staying and (worth.saved or len(names) - len(staying)) <= 0:
        return None
    pods, givers = sum(len(plan.leftovers) for plan in found), {each.node for plan in found for each in plan.first}
    obstacle = f"{count(pods, 'pod')} that must not run on spot {'moves' if pods == 1 else 'move'} to nodes that stay"
    if givers:
        obstacle += f"; {count(len(givers), 'node')} {'makes' if len(givers) == 1 else 'make'} room first"
    if staying:
        obstacle += f"; {shortened(staying, _NAMED)} {'stays' if len(staying) == 1 else 'stay'} in place of them"
    return _of_setting(f"leftovers={Leftovers.MOVE}", Reason.PINNED, obstacle, held, found, worth, worths)


def surge_lever(planning: Planning, snapshot: Snapshot, policy: Policy, circumstances: Circumstances) -> Lever | None:
    """Return what ``--surge=blocked`` would free in addition to *planning*, the plan with *policy*, or None."""
    held = [node for node in planning.rejected if any(blocker.reason in LIFTED for blocker in node.blockers)]
    if policy.surge is Surging.BLOCKED or not held or not snapshot.of("Deployment"):
        return None
    with_surge = Planner(snapshot, settings_replaced(policy, surge=Surging.BLOCKED)).plan_all(circumstances)
    planned = {plan.node for plan in planning.plans}
    added = [plan for plan in with_surge.plans if plan.node not in planned]
    if len(with_surge.plans) <= len(planned) or not added:
        return None
    deployments = {str(surge) for plan in added for surge in plan.surges}
    reason = next(blocker.reason for blocker in held[0].blockers if blocker.reason in LIFTED)
    obstacle = f"{count(len(deployments), 'Deployment')} can roll out without downtime"
    known = worths_of(with_surge, snapshot, circumstances.prices, circumstances.now.date())
    worths = {plan.node: known[plan.node] for plan in added if plan.node in known}
    return _of_setting(f"surge={Surging.BLOCKED}", reason, obstacle, held, added, summed(worths.values()), worths)


def _of_setting(
    change: str,
    reason: Reason,
    obstacle: str,
    held: Iterable[Rejected],
    added: Iterable[Plan],
    worth: Worth,
    worths: Mapping[str, Worth],
) -> Lever:
    """Return the lever of a *change* of a setting, with which there are the plans *added*."""
    nodes, frees = tuple(each.node for each in held), tuple(plan.node for plan in added)
    name = f"{SETTING} --{change}"
    return Lever(name, reason, obstacle, nodes, frees, changes=(change,), worth=worth, worths=worths)


def with_lever(ranked: RankedLevers, lever: Lever) -> RankedLevers:
    """Return *ranked* with *lever* before the first one that frees less."""

    def saved(of: Lever) -> tuple[Decimal, int]:
        return of.worth.saved or Decimal(0), len(of.frees)

    before = [each for each in ranked.levers if saved(each) > saved(lever)]
    after = [each for each in ranked.levers if saved(each) <= saved(lever)]
    return RankedLevers((*before, lever, *after), ranked.complete)
