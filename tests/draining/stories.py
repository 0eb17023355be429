"""Drains as lists of (time, event, expected actions), with common first and last parts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from predicates.objects import OwnerReference
from rescheduler.draining import transitions
from rescheduler.draining.actions import (
    Action,
    Evict,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    Release,
    Renew,
    Step,
    StoreDebts,
    TryEviction,
)
from rescheduler.draining.events import (
    ControllersRead,
    Done,
    DrainEvent,
    EvictionAccepted,
    Looked,
    NodeSeen,
    PlannedAgain,
    ProviderAnswered,
)
from rescheduler.draining.state import Drain, Limits, Phase, Result
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, incur
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected

LIMITS = Limits(eviction=120, grace=60, headroom=30, removal=100, release=20)

#: At the end of a drain: its debts are stored before its marks are removed or its machine is ordered away.
STORED = StoreDebts(end=True)
REOPENED = (STORED, Release())

Story: TypeAlias = list[tuple[float, DrainEvent, tuple[Action, ...]]]


@dataclass(frozen=True)
class Workload:
    """A controller with *pods* on the drained node and others elsewhere."""

    controller: Controller
    pods: tuple[PodRef, ...]
    total: int
    running: Replicas  #: when the node is marked

    @property
    def owner(self) -> OwnerReference:
        known = self.controller
        return OwnerReference(kind=known.kind, name=known.name, uid=known.uid, controller=True)

    @property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(Placement(pod, "s1", owner=self.owner) for pod in self.pods)

    def state(self, **changes: Any) -> ControllerState:
        known = ControllerState(self.controller, frozenset([self.controller.uid]), self.total, template="1")
        return replace(known, **changes)

    @property
    def debt(self) -> Debt:
        """Return the debt to the controller."""
        return incur(self.state(), self.running)


def workload(
    name: str,
    *pods: str,
    namespace: str = "ns",
    kind: str = "Deployment",
    total: int = 0,
    replicas: Replicas | None = None,
) -> Workload:
    """Return a workload.

    *total* is its pods on all nodes, by default *pods*; all are Ready unless *replicas* is given.
    """
    refs = tuple(PodRef(namespace, pod, pod) for pod in pods)
    total = total or len(refs)
    return Workload(Controller(namespace, kind, name, f"uid-{name}"), refs, total, replicas or running(total))


def running(ready: int, bound: int = 0, live: int = 0, **fields: Any) -> Replicas:
    """Return *ready* Ready pods; *bound* and *live* give larger totals."""
    bound = max(ready, bound)
    return Replicas(max(live, bound), bound, ready, **fields)


def plan(*workloads: Workload, bare: str = "", leaving: str = "") -> Plan:
    """Return a plan that moves *workloads* and *bare* pods (one-letter names) to s1, and waits for *leaving* pods."""
    placed = [placement for each in workloads for placement in each.placements]
    placed += [Placement(PodRef("ns", name, name), "s1") for name in bare]
    return Plan("od", tuple(placed), leaving=tuple(PodRef("ns", name, name) for name in leaving))


EMPTY = Plan("od", ())
NO_ROOM = Rejected("od", (Blocker(Reason.NO_ROOM, "Insufficient cpu", "ns/a"), Blocker(Reason.BUDGET, "x")))

#: Another tool is removing the node.
JOINED = Rejected("od", (Blocker(Reason.BEING_DRAINED, "another tool is removing it"),))


def read(*workloads: Workload, **states: ControllerState) -> ControllersRead:
    """Return a read in which all pods of *workloads* run.

    *states* (by controller name) override changed controllers.
    """
    return ControllersRead(
        states={each.controller: states.get(each.controller.name, each.state()) for each in workloads},
        topmost={(each.controller.namespace, each.controller.uid): each.controller for each in workloads},
        replicas={each.controller: each.running for each in workloads},
    )


def reading(*workloads: Workload, of: tuple[Workload, ...] = (), read_refusals: bool = False) -> ReadControllers:
    """Return the request to read *workloads*, which have debts, and the workloads *of* the remaining pods."""
    owners = frozenset((each.controller.namespace, each.owner) for each in of)
    return ReadControllers(owners, frozenset(each.controller for each in workloads), read_refusals)


def seen(pods: str = "", replicas: Mapping[Workload, Replicas] | None = None, **fields: Any) -> NodeSeen:
    """Return an observation of *pods*, a string of pod names separated by spaces."""
    return NodeSeen(
        present=frozenset(pods.split()),
        replicas={each.controller: counted for each, counted in (replicas or {}).items()},
        **fields,
    )


def opening(drain_plan: Plan, *workloads: Workload, group: str | None = None) -> Story:
    """Return the story from the provider's response to the end of the dry runs, from second 0 to second 4."""
    refs = tuple(placement.pod for placement in drain_plan.placements)
    uids = tuple(pod.uid for pod in refs)
    debts = tuple(each.debt for each in sorted(workloads, key=lambda each: each.controller))
    nodes = frozenset(placement.node for placement in drain_plan.placements)
    accepted: Story = [(4, EvictionAccepted(uid), ()) for uid in uids]
    return [
        (0, ProviderAnswered(group), (Mark(Step.DRAINING, uids),)),
        (1, Done(Mark), (LookAgain(nodes),)),
        (2, Looked(drain_plan), (reading(of=workloads),)),
        (3, read(*workloads), (Mark(Step.DRAINING, uids, debts=debts),)),
        (4, Done(Mark), (StoreDebts(),)),
        (4, Done(StoreDebts), tuple(TryEviction(pod) for pod in refs)),
        *accepted,
    ]


def play(begun: Result | Drain, story: Story) -> Drain:
    drain = begun[0] if isinstance(begun, tuple) else begun
    for now, event, expected in story:
        drain, actions = transitions.step(drain, event, now)
        assert actions == expected, (now, event)
    return drain


def begun(drain_plan: Plan, *workloads: Workload, limits: Limits = LIMITS, group: str | None = None) -> Drain:
    """Return a drain of *drain_plan* at second 4: nothing is evicted, and a read of the controllers is in flight."""
    drain = play(transitions.start(drain_plan, limits), opening(drain_plan, *workloads, group=group))
    assert drain.phase is Phase.EVICTING
    return replace(drain, read_at=None)


def resumed(
    drain_plan: Plan, *workloads: Workload, owed: tuple[Workload, ...], intended: tuple[str, ...] = ()
) -> Drain:
    """Return a drain that was resumed, at second 4; *intended* are the UIDs of the pods that it was to move.

    Its mark contains the debts *owed*; *workloads* still have pods on the node.
    """
    debts = tuple(each.debt for each in owed)
    further = tuple(each.debt for each in workloads if each not in owed)
    known = {each.controller: each for each in (*owed, *workloads)}
    story: Story = [
        (0, ProviderAnswered(None), (Mark(Step.DRAINING, intended, debts=debts),)),
        (1, Done(Mark), (LookAgain(),)),
        (2, Looked(drain_plan), (reading(*owed, of=workloads),)),
        (3, read(*known.values()), (Mark(Step.DRAINING, intended, debts=(*debts, *further)),)),
        (4, Done(Mark), (StoreDebts(),)),
        (4, Done(StoreDebts), ()),
    ]
    return replace(play(transitions.resume("od", LIMITS, intended, debts), story), read_at=None)


def step(now: float, pods: str, drain_plan: Plan = EMPTY) -> Story:
    """Return the events of a planned step: *pods* (names) are evicted, and all evictions are accepted."""
    refs = [PodRef("ns", name, name) for name in pods.split()]
    accepted: Story = [(now, EvictionAccepted(pod.uid), ()) for pod in refs]
    return [(now, PlannedAgain(drain_plan), tuple(Evict(pod) for pod in refs)), *accepted]


def planning(due: str = "") -> PlanAgain:
    """Return the request to plan a step. *due* are evicted pods whose replacement pods are not bound."""
    return PlanAgain(tuple(PodRef("ns", name, name) for name in due.split()))


# The simplest drain: one Deployment with two pods, both on the node.

WEB = workload("web", "a", "b")
A, B = WEB.pods
C = PodRef("ns", "c", "c")
PLAN = plan(WEB)
OPENING = opening(PLAN, WEB)
TAKEN = opening(PLAN, WEB, group="pool")

#: Both pods are evicted one after the other, their replacement pods become Ready, and the node is planned again.
MOVED: Story = [
    (5, seen("a b", {WEB: running(2)}), (planning(),)),
    *step(5, "a", drain_plan=PLAN),
    (6, seen("a b", {WEB: running(1)}), ()),
    (7, seen("b", {WEB: running(2)}), (planning(),)),
    *step(7, "b", drain_plan=PLAN),
    (8, seen("b", {WEB: running(1, bound=2)}), (reading(WEB, of=(WEB,)),)),
    (9, seen("", {WEB: running(2)}), (LookAgain(),)),
]
OFF: Story = [(90, Done(Release), ())]
LEFT: Story = [(10, Looked(EMPTY), REOPENED), (11, Done(Release), ())]
ORDERED: Story = [
    (10, Looked(EMPTY), (STORED, Mark(Step.REMOVING, group="pool", debts=(WEB.debt,)))),
    (11, Done(Mark), (OrderRemoval("pool"),)),
]

RUNS = {WEB: running(2)}
READ = reading(WEB, of=(WEB,))
RENEWED = Renew(Step.DRAINING, ("a", "b"), debts=(WEB.debt,))

#: The first pod's eviction is in flight.
ASKED: Story = [
    *OPENING,
    (5, seen("a b", RUNS), (planning(),)),
    (5, PlannedAgain(PLAN), (Evict(A),)),
]


# A removal that an earlier process may have requested.

ORDERED_AT = datetime(2026, 1, 1, tzinfo=UTC)
REMOVING = Mark(Step.REMOVING, group="pool", since=ORDERED_AT)

#: A removal is resumed without new pods; termination is requested at second 20.
LOOKED_TWICE: Story = [
    (1, Done(Mark), (LookAgain(),)),
    (2, Looked(EMPTY), ()),
    (3, seen(), ()),
    (5.9, seen(), ()),
    (6, seen(), (LookAgain(),)),
    (7, Looked(EMPTY), (STORED, REMOVING)),
    (20, Done(Mark), (OrderRemoval("pool", ORDERED_AT, again=True),)),
]


def asked_again(*, removal: float = 100) -> Drain:
    """Return a resumed removal at second 20: termination was requested again."""
    return play(transitions.resume_removal("od", replace(LIMITS, removal=removal), "pool", ORDERED_AT), LOOKED_TWICE)
