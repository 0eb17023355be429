"""Tests of a Deployment that is deleted during a drain without its ReplicaSet and pods."""

from dataclasses import replace
from typing import Final

from predicates.objects import OwnerReference
from rescheduler.draining import machine
from rescheduler.draining.actions import Evict, LookAgain, Mark, ReadControllers, TryEviction
from rescheduler.draining.events import ControllersRead, Looked, Marked, PlannedAgain, ProviderAnswered, Seen
from rescheduler.draining.eviction_outcomes import EvictionAccepted
from rescheduler.draining.intent import Step
from rescheduler.draining.state import Phase
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


def seen_by(controller: Controller, pods: str, ready: int, live: int = 0) -> Seen:
    return replace(seen(pods), replicas={controller: running(ready, live=live)})


#: The first of three pods is evicted, then the Deployment is deleted.
ORPHANED: Final[Story] = [
    (0, ProviderAnswered(None), (Mark(Step.DRAINING, ("a", "b", "c")),)),
    (1, Marked(), (LookAgain(frozenset({"s1"})),)),
    (2, Looked(PLAN), (ReadControllers(OF_RS, frozenset()),)),
    (3, read(DEPLOYMENT, ready=3), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT,)),)),
    (4, Marked(), tuple(map(TryEviction, PODS))),
    *((4, EvictionAccepted(pod.uid), ()) for pod in PODS),
    (4, seen_by(WEB, "a b c", 3), (planning(),)),
    (4, PlannedAgain(PLAN), (Evict(PODS[0]),)),
]


def test_the_replica_set_inherits_the_debt_of_the_deployment() -> None:
    again = ReadControllers(OF_RS, frozenset({WEB}))
    inherited = Debt(RS, 3, 3, "1", 0, ("uid-rs",))
    story: Story = [
        *ORPHANED,
        (4, read(DELETED, ready=3), ()),
        (10, seen("a b c"), ()),  # an eviction is in flight
        (10, EvictionAccepted("a"), ()),
        (10, seen("b c"), (again,)),
        (11, read(REPLICA_SET, DELETED, ready=2), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT, inherited)),)),
        (12, Marked(), ()),
    ]
    drain = play(machine.start(PLAN, LIMITS), story)
    assert drain.phase is Phase.EVICTING
    assert RS in drain.begun
    assert {victim.controller for victim in drain.waiting} == {RS}
    drain, actions = machine.step(drain, seen_by(RS, "b c", 2), 13)
    assert (drain.owed, actions) == (
        {RS: inherited},
        (ReadControllers(OF_RS, frozenset({WEB, RS}), read_refusals=True),),
    )
    drain, actions = machine.step(drain, seen_by(RS, "b c", 3), 14)
    assert actions == (planning(),)


def test_the_drain_waits_for_pods_that_are_deleted_with_the_deployment() -> None:
    """The ReplicaSet of the pods exists for a short time longer, and still refers to the Deployment."""
    story: Story = [
        *ORPHANED,
        (5, EvictionAccepted("a"), ()),
        (5, read(DELETED, ready=2), ()),
        (6, seen("b c"), ()),
        (7, seen("b c"), (ReadControllers(OF_RS, frozenset({WEB})),)),
        (7, read(DELETED, ready=2), (Mark(Step.DRAINING, ("a", "b", "c"), debts=(DEBT,)),)),
        (7, Marked(), ()),
        (8, seen("b c"), ()),
        (8.5, seen(""), (LookAgain(),)),
    ]
    assert play(machine.start(PLAN, LIMITS), story).phase is Phase.LOOKING


def test_a_debt_is_not_inherited_from_an_existing_controller() -> None:
    """The pods were adopted by another controller."""
    story: Story = [*ORPHANED, (5, EvictionAccepted("a"), ())]
    drain = play(machine.start(PLAN, LIMITS), story)
    drain = replace(drain, phase=Phase.COUNTING)
    drain, _actions = machine.step(drain, read(REPLICA_SET, DEPLOYMENT, ready=1), 6)
    assert drain.debts[RS] == incur(REPLICA_SET, running(1))
