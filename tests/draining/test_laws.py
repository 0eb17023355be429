"""Properties of every drain, in a simulated cluster with many faults."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescheduler.draining.actions import Evict, LookAgain, Mark, OrderRemoval, Release, Step, TryEviction
from rescheduler.draining.events import Cause, Done, EvictionAccepted, Looked, NodeSeen
from rescheduler.draining.exits import REQUEST_SECONDS
from rescheduler.draining.state import Phase, Why
from rescheduler.planning.debts import paid
from rescheduler.planning.outcome import Plan, PodRef
from tests.draining.processes import DrainProcesses, Moment
from tests.draining.simulation import LIMITS, Owner, Scenario


def mostly(usual: object, *alternatives: object) -> st.SearchStrategy[Any]:
    """Return the usual value in nine of ten cases."""
    return st.sampled_from([usual] * 9 * len(alternatives) + list(alternatives))


owners = st.builds(
    Owner,
    namespace=st.sampled_from(["a", "b"]),
    kind=st.sampled_from(["Deployment", "Deployment", "StatefulSet", "Job"]),
    name=st.sampled_from(["x", "y", "z"]),
    here=st.integers(1, 6),
    elsewhere=st.integers(0, 2),
    creates=mostly(True, False),
    schedulable=mostly(True, False),
    binds_after=mostly(1, 0, 3, 1000),
    ready_after=mostly(2, 0, 6, None),
    ready_before=mostly(True, False),
    change=mostly("", "down", "up", "deleted", "suspended", "template"),
    change_at=st.integers(5, 60),
)
sometime = st.integers(1, 60)
scenarios = st.builds(
    Scenario,
    owners=st.lists(owners, min_size=1, max_size=5, unique_by=lambda owner: owner.controller).map(tuple),
    bare=st.integers(0, 2),
    group=st.sampled_from([None, "pool", "pool"]),
    failing=st.sampled_from([0.0, 0.0, 0.0, 0.02, 0.2]),
    refused=st.sampled_from([0.0, 0.0, 0.3]),
    slow=st.sampled_from([0.0, 0.5, 3.0]),
    kills=st.lists(st.integers(4, 60), max_size=3, unique=True).map(sorted).map(tuple),
    targets_lost_at=st.none() | st.none() | st.none() | sometime,
    taint_removed_at=st.none() | st.none() | st.none() | sometime,
    stop_at=st.none() | st.none() | st.none() | sometime,
    stop=st.sampled_from(Cause),
    room=st.booleans(),
    late_pod_at=st.none() | sometime,
)
seeds = st.integers(0, 10_000)


class Run:
    """A scenario run to its end, as observed from outside."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.processes = DrainProcesses(scenario, seed)
        self.end = self.processes.run()
        self.moments = self.processes.moments
        self.cluster = self.processes.cluster

    def steps(self) -> Iterator[tuple[Moment, list[PodRef]]]:
        """Yield each moment with new evictions, and the pods whose eviction is requested for the first time."""
        asked: set[tuple[int, str]] = set()
        for moment in self.moments:
            pods = [action.pod for action in moment.actions if isinstance(action, Evict)]
            new = [pod for pod in pods if (moment.process, pod.uid) not in asked]
            asked |= {(moment.process, pod.uid) for pod in new}
            if new:
                yield moment, new

    def steady(self) -> list[Owner]:
        """Return the owners whose number of pods and template do not change."""
        late = self.scenario.owners[:1] if self.scenario.late_pod_at is not None else ()
        return [owner for owner in self.scenario.owners if not owner.change and owner not in late]


def rejected_replacements_cost_one_pod_of_an_owner_or_namespace(run: Run) -> None:
    """Check this even if processes die during the drain."""
    steady = run.steady()
    for owner in steady:
        bound = owner.creates and owner.schedulable and owner.binds_after < 1000
        if not bound or (owner.ready_before and owner.ready_after is None):
            assert run.cluster.evicted[owner] <= 1
    for namespace in {owner.namespace for owner in run.scenario.owners}:
        those = [owner for owner in run.scenario.owners if owner.namespace == namespace]
        if all(owner in steady and not owner.creates for owner in those):
            assert sum(run.cluster.evicted[owner] for owner in those) <= 1


def waves_grow_from_one_pod_over_namespaces_and_owners(run: Run) -> None:
    lost: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for moment, pods in run.steps():
        counts, begun = lost[moment.process], bool(lost[moment.process])
        controllers = [moment.before.controllers.get(pod.uid) for pod in pods]
        controlled = [controller for controller in controllers if controller is not None]
        assert len(controlled) in (0, len(pods))  # pods without a controller are evicted last, separately
        assert begun or len(controlled) <= 1
        for namespace, number in Counter(controller.namespace for controller in controlled).items():
            assert counts[namespace] or number == 1
        for controller, number in Counter(controlled).items():
            assert number <= max(1, counts[controller.uid])
            assert controller.kind != "StatefulSet" or number == 1
        counts.update(controller.namespace for controller in controlled)
        counts.update(controller.uid for controller in controlled)


def no_pod_is_evicted_until_earlier_pods_are_known_to_run(run: Run) -> None:
    for moment, pods in run.steps():
        drain = moment.before
        begins = {drain.controllers.get(pod.uid) for pod in pods} - drain.begun - {None}
        if begins:
            assert all(drain.shortfall(controller).bound <= 0 for controller in drain.debts)
        for pod in pods:
            controller = drain.controllers.get(pod.uid)
            assert controller is None or pod.uid in drain.rest or paid(drain.shortfall(controller))
            assert controller is not None or all(paid(drain.shortfall(each)) for each in drain.debts)


def a_namespace_with_unbound_replacements_loses_no_pod(run: Run) -> None:
    for moment, pods in run.steps():
        drain = moment.before
        namespaces = [pod.namespace for pod in pods if drain.controllers.get(pod.uid) is not None]
        assert max(Counter(namespaces).values(), default=1) == 1
        taken = [each for each in drain.debts if each.namespace in namespaces and drain.has_taken_from(each)]
        assert all(drain.shortfall(controller).bound <= 0 for controller in taken)


def a_stateful_set_pod_is_evicted_only_while_all_others_are_ready(run: Run) -> None:
    for moment, pods in run.steps():
        for pod in pods:
            controller = moment.before.controllers.get(pod.uid)
            if controller is not None and controller.kind == "StatefulSet":
                replicas = moment.before.replicas[controller]
                assert set(replicas.unready) <= {pod.uid}
                assert replicas.live >= (moment.before.states[controller].wanted or 0)


def no_pod_is_evicted_while_a_node_of_the_plan_is_lost(run: Run) -> None:
    for moment in run.moments:
        if isinstance(moment.event, NodeSeen) and moment.event.lost:
            assert not any(isinstance(action, Evict) for action in moment.actions)


def no_pod_is_evicted_before_its_placeholder_is_gone(run: Run) -> None:
    kept: set[str] = set()
    for moment in run.moments:
        if isinstance(moment.event, NodeSeen):
            kept = set(moment.event.placeholders)
        assert not kept & {action.pod.uid for action in moment.actions if isinstance(action, Evict)}


def every_eviction_is_tried_before_the_first_one(run: Run) -> None:
    """Check pods that are on the node at that time; a resumed drain has already evicted pods."""
    tried: set[tuple[int, str]] = set()
    evicted: set[int] = set()
    came_later: set[tuple[int, str]] = set()
    for moment in run.moments:
        match moment.event:
            case EvictionAccepted(uid) if moment.before.phase is Phase.TRYING:
                tried.add((moment.process, uid))
            case EvictionAccepted():
                evicted.add(moment.process)
            case Looked(Plan() as plan) if moment.process in evicted:
                came_later |= {(moment.process, placement.pod.uid) for placement in plan.placements}
        for action in moment.actions:
            if isinstance(action, Evict) and not moment.before.resumed:
                assert (moment.process, action.pod.uid) in tried | came_later


def pods_are_evicted_only_by_a_plan_made_after_the_taint(run: Run) -> None:
    looked: set[tuple[int, str]] = set()
    for moment in run.moments:
        if moment.before.phase is Phase.LOOKING and isinstance(moment.event, Looked):
            verdict = moment.event.verdict
            planned = verdict.placements if isinstance(verdict, Plan) else ()
            looked |= {(moment.process, placement.pod.uid) for placement in planned}
        for action in moment.actions:
            if isinstance(action, Evict | TryEviction):
                assert (moment.process, action.pod.uid) in looked


def a_failed_or_stopped_drain_evicts_nothing(run: Run) -> None:
    for moment in run.moments:
        if moment.after.failure is not None or moment.after.stopping or moment.after.done:
            assert not any(isinstance(action, Evict | TryEviction | OrderRemoval) for action in moment.actions)


def a_machine_is_terminated_only_when_all_pods_run(run: Run) -> None:
    """Check in the cluster that, after the last eviction, as many pods of each owner ran as before."""
    if not any(isinstance(action, OrderRemoval) for moment in run.moments for action in moment.actions):
        return
    for owner in run.steady():
        if run.cluster.evicted[owner]:
            bound, ready = run.cluster.recovered[owner]
            assert bound >= owner.here + owner.elsewhere
            assert not owner.ready_before or ready >= owner.here + owner.elsewhere
    assert not any(moment.after.owed for moment in run.moments if moment.after.phase is Phase.ORDERING)


def termination_is_requested_only_with_the_mark_and_after_a_late_check(run: Run) -> None:
    marked_at, looked_at, empty, marked = 0.0, 0.0, False, False
    for moment in run.moments:
        if moment.before.phase is Phase.MARKING and moment.event == Done(Mark):
            marked_at, empty = moment.after.tainted_at, False  # pods that came late do not remove the taint
        if isinstance(moment.event, Looked):
            empty = isinstance(moment.event.verdict, Plan) and not moment.event.verdict.placements
        marked = marked or (moment.before.phase is Phase.ORDERING and moment.event == Done(Mark))
        for action in moment.actions:
            match action:
                case LookAgain():
                    looked_at = moment.at
                case Mark(step):
                    marked = False
                    assert step is Step.REMOVING or moment.after.ordered_at is None
                case OrderRemoval():
                    assert marked
                    assert empty
                    assert looked_at >= marked_at + LIMITS.exposure


def every_drain_ends_released_or_marked(run: Run) -> None:
    """Check that the node is released, or keeps its mark for the next process."""
    end, why = run.end, run.end.failure.why if run.end.failure else None
    assert end.done or run.scenario.kills
    if not end.done:
        return
    assert end.released or end.handed_over or why in (Why.LEADERSHIP_LOST, Why.MARK_LOST) or tried_to_release(run)
    assert not end.succeeded or not end.owed or run.end.rolled_back
    if end.released and why is not Why.NODE_GONE and not end.ordered:
        assert not run.cluster.tainted
    if end.handed_over:
        assert end.ordered or end.ordered_at is not None


def tried_to_release(run: Run) -> bool:
    return any(isinstance(action, Release) for moment in run.moments for action in moment.actions)


def a_failed_drain_records_its_debts(run: Run) -> None:
    """Check that every owner that lost a pod and has not recovered has a debt."""
    if run.end.failure is None or run.end.failure.why is Why.NODE_GONE:
        return
    for owner in run.steady():
        bound, _ = run.cluster.recovered.get(owner, (0, 0))
        if run.cluster.evicted[owner] and bound < owner.here + owner.elsewhere:
            assert owner.controller in run.end.owed
    known = not run.scenario.failing  # otherwise a controller that is scaled down may seem to lack pods
    slow = {victim.controller for victim in run.end.waiting}  # no further pod of theirs was evicted
    assert not known or slow.issuperset(run.end.failure.owners) or run.end.owed


def every_drain_ends_in_time(run: Run) -> None:
    pods = sum(owner.here for owner in run.scenario.owners) + run.scenario.bare + 1
    marks = 2 * REQUEST_SECONDS  # the first one, and that of the order
    looks = marks + 2 * (3 * REQUEST_SECONDS + LIMITS.eviction + LIMITS.exposure) + 20 * run.scenario.slow
    steps = (pods + 2) * (LIMITS.eviction + LIMITS.grace + LIMITS.headroom + LIMITS.landing + run.scenario.slow)
    assert run.processes.seconds <= looks + steps + LIMITS.removal + LIMITS.release + 20


LAWS = (
    rejected_replacements_cost_one_pod_of_an_owner_or_namespace,
    waves_grow_from_one_pod_over_namespaces_and_owners,
    no_pod_is_evicted_until_earlier_pods_are_known_to_run,
    a_namespace_with_unbound_replacements_loses_no_pod,
    a_stateful_set_pod_is_evicted_only_while_all_others_are_ready,
    no_pod_is_evicted_while_a_node_of_the_plan_is_lost,
    no_pod_is_evicted_before_its_placeholder_is_gone,
    every_eviction_is_tried_before_the_first_one,
    pods_are_evicted_only_by_a_plan_made_after_the_taint,
    a_failed_or_stopped_drain_evicts_nothing,
    a_machine_is_terminated_only_when_all_pods_run,
    termination_is_requested_only_with_the_mark_and_after_a_late_check,
    every_drain_ends_released_or_marked,
    a_failed_drain_records_its_debts,
    every_drain_ends_in_time,
)


@settings(max_examples=150, deadline=None)
@given(scenarios, seeds)
def test_all_properties_hold_in_any_scenario(scenario: Scenario, seed: int) -> None:
    run = Run(scenario, seed)
    for law in LAWS:
        law(run)


HEALTHY = Owner("a", "Deployment", "x", here=3, elsewhere=1)
DATABASE = Owner("b", "StatefulSet", "y", here=2, elsewhere=1)
BOTH = (HEALTHY, DATABASE)

#: Scenario → result, and the number of pods lost.
ENDS: dict[str, tuple[Scenario, Why | None, int]] = {
    "no faults": (Scenario(BOTH, bare=1, group="pool"), None, 5),
    "all pods have placeholders": (Scenario(BOTH, bare=1, group="pool", room=True), None, 5),
    "placeholders, and processes die": (Scenario(BOTH, group="pool", room=True, kills=(9, 20, 30)), None, 5),
    "requests are slow": (Scenario(BOTH, slow=3.0), None, 5),
    "processes die": (Scenario(BOTH, group="pool", kills=(9, 20, 30)), None, 5),
    "another replica is the leader": (Scenario(BOTH, stop_at=12, stop=Cause.LEADERSHIP_LOST), None, 5),
    "a pod is bound to the tainted node": (Scenario(BOTH, late_pod_at=15), None, 6),
    "no replacement pod is created": (Scenario((replace(HEALTHY, creates=False),)), Why.REPLACEMENT_REFUSED, 1),
    "none is created, and processes die": (
        Scenario((replace(HEALTHY, creates=False),), kills=(12, 24, 36)),
        Why.REPLACEMENT_REFUSED,
        1,
    ),
    "none is schedulable": (Scenario((replace(HEALTHY, schedulable=False),)), Why.REPLACEMENT_UNSCHEDULABLE, 1),
    "none is bound": (Scenario((replace(HEALTHY, binds_after=1000),)), Why.REPLACEMENT_NOT_BOUND, 1),
    "none becomes Ready": (Scenario((replace(HEALTHY, ready_after=None),)), Why.LANDING_TIMEOUT, 1),
    "none becomes Ready, and processes die": (
        Scenario((replace(HEALTHY, ready_after=None),), kills=(12, 24, 36)),
        Why.LANDING_TIMEOUT,
        1,
    ),
    "none was Ready before": (Scenario((replace(HEALTHY, ready_after=None, ready_before=False),)), None, 3),
    "the targets are lost": (Scenario((HEALTHY,), targets_lost_at=4), Why.TARGET_LOST, 1),
    "the taint is removed": (Scenario((HEALTHY,), taint_removed_at=4), Why.MARK_LOST, 1),
    "scaled down": (Scenario((replace(HEALTHY, change="down", change_at=9),)), None, 3),
    "suspended": (Scenario((replace(HEALTHY, kind="Job", change="suspended", change_at=9),)), None, 1),
    "rolled out": (Scenario((replace(HEALTHY, change="template", change_at=9),)), None, 2),
    "stop requested": (Scenario(BOTH, stop_at=4), Why.STOPPED, 1),
}


@pytest.mark.parametrize(("scenario", "why", "evicted"), ENDS.values(), ids=ENDS)
def test_each_scenario_ends_as_expected(scenario: Scenario, why: Why | None, evicted: int) -> None:
    run = Run(scenario, seed=1)
    for law in LAWS:
        law(run)
    assert run.end.done
    assert (run.end.failure and run.end.failure.why, run.cluster.evicted.total()) == (why, evicted)
