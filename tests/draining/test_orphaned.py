"""Tests of a Deployment that is deleted during a drain without its ReplicaSet and pods."""

from dataclasses import replace
from typing import Final

import pytest

from predicates.objects import OwnerReference
from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, LookAgain, Mark, ReadControllers, Step, StoreDebts, TryEviction
from rescheduler.draining.events import (
    ControllersRead,
    Done,
    EvictionAccepted,
    Looked,
    NodeSeen,
    PlannedAgain,
    ProviderAnswered,
)
from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, incur
from rescheduler.planning.outcome import Placement, Plan, PodRef
from tests.draining.stories import LIMITS, Story, planning, play, running, seen

RS: Final = Controller("ns", "ReplicaSet", "web-1", "uid-rs")
WEB: Final = Controller("ns", "Deployment", "web", "uid-web")
OWNER: Final = OwnerReference(kind="ReplicaSet", name="web-1", uid="uid-rs", controller=True)
PODS: Final = tuple(PodRef("ns", name, name) for name in "abc")
PLAN: Final = Plan("od", tuple(Placement(pod, "s1", owner=OWNER) for pod in PODS))
OF_RS: Final = frozenset({("ns", OWNER)})

DEPLOYMENT: Final = ControllerState(WEB, frozenset({"uid-rs"}), 3, template="1")
DELETED: Final = replace(DEPLOYMENT, wanted=0, exists=False)
REPLICA_SET: Final = ControllerState(RS, frozenset({"uid-rs"}), 3, template="1")
DEBT: Final = incur(DEPLOYMENT, running(3))


def read(state: ControllerState, *more: ControllerState, ready: int) -> ControllersRead:
    """Return a read in which the pods belong to the controller of *state*, and *ready* of them are Ready."""
    states = {each.controller: each for each in (state, *more)}
    return ControllersRead(states, {("ns", "uid-rs"): state.controller}, {state.controller: running(ready)})


def seen_by(controller: Controller, pods: str, ready: int, live: int = 0) -> NodeSeen:
    return replace(seen(pods), replicas={controller: running(ready, live=live)})


#: The first of three pods is evicted, then the Deployment is deleted.
ORPHANED: Final[Story] = [
    (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a", "b", "c")),)),
    (1, Done(Mark), (LookAgain(frozenset({"s1"})),)),
    (2, Looked(PLAN), (ReadControllers(OF_RS, frozenset()),)),
    (3, read(DEPLOYMENT, ready=3), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT,)),)),
    (4, Done(Mark), (StoreDebts(),)),
    (4, Done(StoreDebts), tuple(map(TryEviction, PODS))),
    *((4, EvictionAccepted(pod.uid), ()) for pod in PODS),
    (4, seen_by(WEB, "a b c", 3), (planning(),)),
    (4, PlannedAgain(PLAN), (Evict(PODS[0]),)),
]


LOOK: Final = LookAgain(frozenset({"s1"}))
REST: Final = replace(PLAN, placements=PLAN.placements[1:])


def test_the_replica_set_inherits_the_debt_of_the_deployment() -> None:
    assert inherited_debt().phase is Phase.EVICTING


def inherited_debt() -> Drain:
    """Return the drain at second 14: a step is planned, and both debts are paid."""
    inherited = Debt(RS, 3, 3, "1", 0, ("uid-rs",))
    story: Story = [
        *ORPHANED,
        (4, read(DELETED, ready=3), ()),
        (10, seen("a b c"), ()),  # an eviction is in flight
        (10, EvictionAccepted("a"), ()),
        (10, seen("b c"), (LOOK,)),
        (10, Looked(REST), (ReadControllers(OF_RS, frozenset({WEB})),)),
        (11, read(REPLICA_SET, DELETED, ready=2), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT, inherited)),)),
        (12, Done(Mark), (StoreDebts(),)),
        (12, Done(StoreDebts), ()),
    ]
    drain = play(transitions.start(PLAN, LIMITS), story)
    assert drain.phase is Phase.EVICTING
    assert RS in drain.begun
    assert {victim.controller for victim in drain.waiting} == {RS}
    drain, actions = transitions.step(drain, seen_by(RS, "b c", 2), 13)
    again = ReadControllers(OF_RS, frozenset({WEB, RS}), read_refusals=True)
    assert (drain.owed, actions) == ({RS: inherited}, (again,))
    both = replace(seen("b c"), replicas={RS: running(3), WEB: running(3)})
    drain, actions = transitions.step(drain, both, 14)
    assert actions == (planning(),)
    return drain


def test_the_next_step_is_no_loss_of_pods_for_the_former_deployment() -> None:
    """Its debt counts the same pods. If it lacked them again, each step would wait until the pods stay Ready."""
    drain = inherited_debt()
    drain = replace(drain, states={**drain.states, WEB: replace(DEPLOYMENT, exists=False)})
    drain = play(drain, [(14, PlannedAgain(REST), (Evict(PODS[1]),)), (14, EvictionAccepted("b"), ())])
    drain, _ = transitions.step(drain, replace(seen("c"), replicas={RS: running(2), WEB: running(2)}), 15)
    assert {RS, WEB} & drain.paid == set()
    assert drain.unsteady == frozenset()


def test_the_drain_waits_for_pods_that_are_deleted_with_the_deployment() -> None:
    """The ReplicaSet of the pods exists for a short time longer, and still refers to the Deployment."""
    story: Story = [
        *ORPHANED,
        (5, EvictionAccepted("a"), ()),
        (5, read(DELETED, ready=2), ()),
        (6, seen("b c"), ()),
        (7, seen("b c"), (LOOK,)),
        (7, Looked(REST), (ReadControllers(OF_RS, frozenset({WEB})),)),
        (7, read(DELETED, ready=2), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT,)),)),
        (7, Done(Mark), (StoreDebts(),)),
        (7, Done(StoreDebts), ()),
        (8, seen("b c"), ()),
        (8.5, seen(""), (LookAgain(),)),
    ]
    assert play(transitions.start(PLAN, LIMITS), story).phase is Phase.LOOKING


UNOWNED: dict[str, tuple[PlannedAgain, str]] = {
    "its controller is being deleted": (
        PlannedAgain(REST, read(replace(DEPLOYMENT, deleting=True), ready=3)),
        "Deployment ns/web is being deleted",
    ),
    "its controller is gone": (PlannedAgain(REST, read(DELETED, ready=3)), "Deployment ns/web is gone"),
    "its own ReplicaSet is being deleted": (
        PlannedAgain(REST, read(DEPLOYMENT, ready=3), {("ns", "uid-rs"): "ReplicaSet ns/web-1 is being deleted"}),
        "ReplicaSet ns/web-1 is being deleted",
    ),
}


@pytest.mark.parametrize(("planned", "why"), UNOWNED.values(), ids=UNOWNED)
def test_a_pod_whose_controller_does_not_replace_it_is_not_evicted(planned: PlannedAgain, why: str) -> None:
    """The controllers are read right before the step. The node is planned again until the time limit."""
    story: Story = [
        *ORPHANED,
        (5, EvictionAccepted("a"), ()),
        (5, read(DEPLOYMENT, ready=3), ()),
        (6, seen_by(WEB, "b c", 3), (planning(),)),
        (6, planned, ()),
    ]
    drain = replace(play(transitions.start(PLAN, LIMITS), story), renew_at=1e9)
    now, evicted = 7.0, False
    while not drain.failure:
        drain, actions = transitions.step(drain, seen_by(WEB, "b c", 3), now)
        while drain.phase in (Phase.LOOKING, Phase.COUNTING, Phase.NOTING):
            event = {
                Phase.LOOKING: Looked(REST),
                Phase.COUNTING: planned.read,
                Phase.NOTING: Done(StoreDebts),
            }[drain.phase]
            assert event is not None
            drain, actions = transitions.step(drain, event, now)
        if planning() in actions:
            drain, actions = transitions.step(drain, planned, now)
        evicted = evicted or any(isinstance(action, Evict) for action in actions)
        now += 1
    assert not evicted
    assert now <= 6 + LIMITS.creation + 3
    assert drain.failure == Failure(Why.PLAN_CHANGED, f"the plan is no longer valid: no-controller: pod ns/b: {why}")


def test_a_debt_is_not_inherited_from_an_existing_controller() -> None:
    """The pods were adopted by another controller."""
    story: Story = [*ORPHANED, (5, EvictionAccepted("a"), ())]
    drain = play(transitions.start(PLAN, LIMITS), story)
    drain = replace(drain, phase=Phase.COUNTING)
    drain, _actions = transitions.step(drain, read(REPLICA_SET, DEPLOYMENT, ready=1), 6)
    assert drain.debts[RS] == incur(REPLICA_SET, running(1))
