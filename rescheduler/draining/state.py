"""One drain, as a value."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from predicates.objects import OwnerReference
from rescheduler.draining.messages import Action
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, Shortfall, shortfall
from rescheduler.planning.outcome import Placement, Plan, PodRef

#: ``terminationGracePeriodSeconds`` where a pod does not set it.
DEFAULT_GRACE: Final = 30

NEVER: Final = math.inf

#: Seconds between two renewals of the annotation's promise.
RENEW_INTERVAL: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each part of a drain may take, in seconds."""

    eviction: float  #: for the API server to accept the evictions of one step
    grace: float  #: at most, of a pod's own grace period
    #: From a pod's last moment to our seeing it gone: kubelet, volumes, watch. Cluster Autoscaler's value.
    headroom: float = 30.0
    removal: float = 30.0  #: for the provider to confirm; then later rounds ask it
    release: float = 20.0  #: for the taint to come off; shorter than a pod's usual time to shut down
    landing: float = 600.0  #: from the last eviction until all owed pods are Ready; 0: bound pods are enough
    creation: float = 15.0  #: for a replacement pod to be created, or to become schedulable, once it can be
    binding: float = 60.0  #: for a replacement pod to be bound, once it can be
    exposure: float = 5.0  #: from the taint to the order of the machine: pods that were being bound have shown up

    @property
    def longest(self) -> float:
        """Seconds that a drain of a single step may take in all."""
        landing = max(self.landing, self.binding)
        return self.eviction + 2 * (self.grace + self.headroom) + landing + self.removal + self.release


class Phase(enum.Enum):
    ASKING = enum.auto()  #: the provider is asked for the group of the machine
    MARKING = enum.auto()  #: taint and annotation are being written
    LOOKING = enum.auto()  #: the cluster is read consistently, the plan is made again
    COUNTING = enum.auto()  #: the controllers of the pods are read
    NOTING = enum.auto()  #: the debts are being written on the node
    TRYING = enum.auto()  #: all evictions are asked for in a dry run
    EVICTING = enum.auto()  #: pods are evicted in steps, replacement pods are followed
    ORDERING = enum.auto()  #: the intent to remove is being written
    REMOVING = enum.auto()  #: the machine was ordered away
    DELETING = enum.auto()  #: the Node is being deleted
    RELEASING = enum.auto()  #: taint and annotation are being removed, late answers to evictions are awaited
    DONE = enum.auto()


class Why(enum.StrEnum):
    """Why a drain failed; also a label of metrics."""

    PLAN_CHANGED = "plan-changed"  #: the plan no longer held once the taint was on
    PODS_RETURN = "pods-return"  #: pods that tolerate the taint are put back on the node
    EVICTION_REFUSED = "eviction-refused"  #: a dry run was refused; nothing was evicted
    EVICTION_TIMEOUT = "eviction-timeout"
    EVICTION_FAILED = "eviction-failed"
    TERMINATION_TIMEOUT = "termination-timeout"
    REPLACEMENT_REFUSED = "replacement-refused"  #: the replacement pod is not created
    REPLACEMENT_UNSCHEDULABLE = "replacement-unschedulable"
    REPLACEMENT_NOT_BOUND = "replacement-not-bound"
    TARGET_LOST = "target-lost"  #: the spot nodes that are left do not hold the pods that are left
    LANDING_TIMEOUT = "landing-timeout"  #: replacement pods did not become Ready in time
    MARK_LOST = "mark-lost"  #: somebody removed or replaced our taint or annotation
    NODE_GONE = "node-gone"
    API_ERROR = "api-error"
    PROVIDER = "provider"  #: it failed
    REFUSED = "refused"  #: the provider keeps the machine: protected, at the minimum
    STOPPED = "stopped"
    LEADERSHIP_LOST = "leadership-lost"
    INTERNAL_ERROR = "internal-error"  #: an error of this program


#: Failures of replacement pods: pods may be down because of this drain.
LANDING_FAILURES: Final = frozenset(
    {
        Why.REPLACEMENT_REFUSED,
        Why.REPLACEMENT_UNSCHEDULABLE,
        Why.REPLACEMENT_NOT_BOUND,
        Why.LANDING_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    why: Why
    detail: str
    pods: tuple[PodRef, ...] = ()  #: the pods concerned


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that must leave the node."""

    pod: PodRef
    grace: int | None  #: what the eviction asks for, in seconds; None: the pod's own
    patience: float  #: seconds from its eviction to its end
    owner: OwnerReference | None = None  #: its controller, as the pod names it
    controller: Controller | None = None  #: the topmost one; None: not read yet, or a pod without a controller
    ask_at: float = NEVER  #: when to ask (again)
    ask_until: float = NEVER  #: when to give up asking
    refusals: int = 0  #: in a row
    said: str = ""  #: the last refusal
    leaves_by: float | None = None  #: set once it is being deleted

    @property
    def accepted(self) -> bool:
        return self.leaves_by is not None


@dataclass(frozen=True, slots=True)
class Timers:
    """Since when replacement pods of one controller have been missing, in monotonic seconds."""

    uncreated: float | None = None
    unschedulable: float | None = None
    unbound: float | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Where a drain stands. Moments are monotonic seconds."""

    node: str
    limits: Limits
    phase: Phase
    intended: tuple[str, ...] = ()  #: UIDs of the pods that were to move when it was decided
    marked: bool = False  #: our taint may be on the node
    tainted_at: float = NEVER  #: when our taint was seen to be on
    renew_at: float = NEVER  #: when the annotation's promise is to be renewed
    resumed: bool = False  #: an earlier process began it
    rolled_back: bool = False  #: only its marks are removed; how it ended is not known
    # Evictions
    waiting: tuple[Victim, ...] = ()  #: pods that are to be evicted in later steps
    victims: Mapping[str, Victim] = field(default_factory=dict)  #: by UID: eviction asked for, still on the node
    placements: tuple[Placement, ...] = ()  #: all that were to move, and where to, by forecast
    evicted: tuple[PodRef, ...] = ()  #: whose eviction was accepted
    targets: frozenset[str] = frozenset()  #: nodes that the last plan counts on
    controllers: Mapping[str, Controller] = field(default_factory=dict)  #: of the pods, by UID
    begun: frozenset[Controller] = frozenset()  #: controllers of which a pod was evicted
    step_size: Mapping[Controller, int] = field(default_factory=dict)  #: of a controller's next step
    step: tuple[Victim, ...] = ()  #: the next step, while its plan is made again
    looks: int = 0  #: how often pods to move were found on the node
    last_eviction_at: float = NEVER
    # Replacement pods
    debts: Mapping[Controller, Debt] = field(default_factory=dict)
    states: Mapping[Controller, ControllerState] = field(default_factory=dict)
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)
    timers: Mapping[Controller, Timers] = field(default_factory=dict)
    read_at: float = NEVER  #: when the controllers were last read; NEVER while they are being read
    landed_at: float | None = None  #: when all that was owed had been paid
    # The machine
    group: str | None = None  #: of the provider that takes the machine
    ordered_at: datetime | None = None  #: when an earlier process may have ordered the removal
    ordered: bool = False  #: by us, in this drain
    confirmed: bool = False  #: the provider says that the machine is going or gone
    absent: bool = False  #: the provider did not know the machine when it was last asked
    unshrunk: str = ""  #: why another machine comes in place of the one that is gone; "": none does
    # The end
    deadline: float = NEVER  #: of the phase
    retry_at: float = NEVER  #: of what the phase does again and again
    stopping: bool = False  #: told to stop once the machine was ordered away: its end is awaited, but not for long
    failure: Failure | None = None
    #: Why a removal that an earlier process may have ordered is left for later; nothing was evicted or ordered.
    postponed: Failure | None = None
    released: bool = False  #: taint and annotation are off, or the node is gone
    #: All pods were evicted, and another tool removes the node or has deleted it: how that is known. The machine is
    #: its business; what is still owed is followed after the drain.
    removed_by: str = ""

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    @property
    def succeeded(self) -> bool:
        """The node takes pods again, or its machine is going or gone and the Node deleted."""
        ended = self.done and self.failure is None and not self.removed_by
        ordered = self.ordered or self.ordered_at is not None
        return ended and self.released and (self.confirmed or not ordered)

    @property
    def handed_over(self) -> bool:
        """The machine was ordered away, its end was not seen: a Node that is there keeps its mark for a later look."""
        return self.done and self.failure is None and not self.removed_by and not self.succeeded

    @property
    def evicted_all(self) -> bool:
        """Whether pods were evicted, and no pod is left whose eviction was not accepted."""
        asking = any(not victim.accepted for victim in self.victims.values())
        return bool(self.evicted) and not self.waiting and not asking

    @property
    def unanswered(self) -> bool:
        """Whether an eviction request is on its way to the API server, or its answer to us."""
        return any(not victim.accepted and victim.ask_at == NEVER for victim in self.victims.values())

    @property
    def landing_seconds(self) -> float | None:
        """From the last eviction until all that was owed had been paid; None before, and where nothing was evicted."""
        if self.landed_at is None or not self.evicted:
            return None
        return self.landed_at - self.last_eviction_at

    def has_taken_from(self, controller: Controller) -> bool:
        """Whether pods of *controller* were evicted, or may have been by an earlier process."""
        return self.resumed or controller in self.begun

    def shortfall(self, controller: Controller) -> Shortfall:
        """What *controller* still lacks; nothing where it is owed nothing."""
        debt = self.debts.get(controller)
        if debt is None:
            return Shortfall(0, 0, 0)
        return shortfall(debt, self.states[controller], self.replicas.get(controller, Replicas()))


#: What an event makes of a drain, and what is to be done.
Result: TypeAlias = tuple[Drain, tuple[Action, ...]]


def victims(plan: Plan, limits: Limits) -> tuple[Victim, ...]:
    """The pods of *plan* that must be evicted, in its order."""
    return tuple(_victim(placement, limits) for placement in plan.placements)


def targets(plan: Plan) -> frozenset[str]:
    """The nodes that *plan* counts on."""
    return frozenset(placement.node for placement in plan.placements)


def leaving(plan: Plan, limits: Limits, now: float) -> dict[str, Victim]:
    """The pods of *plan* that are being deleted already: only waited for."""
    leaves_by = now + limits.grace + limits.headroom
    return {pod.uid: Victim(pod, None, limits.grace, leaves_by=leaves_by) for pod in plan.leaving}


def _victim(placement: Placement, limits: Limits) -> Victim:
    own = DEFAULT_GRACE if placement.grace_period is None else placement.grace_period
    grace = int(limits.grace) if own > limits.grace else None
    return Victim(placement.pod, grace, min(own, limits.grace), placement.owner)


def requesting(drain: Drain, phase: Phase) -> Drain:
    """*drain* in a *phase* whose only request is on its way, and has not failed yet."""
    return replace(drain, phase=phase, deadline=NEVER, retry_at=NEVER)


def without(drain: Drain, uids: frozenset[str]) -> Drain:
    """*drain* after the pods *uids* have left."""
    return replace(
        drain,
        victims={uid: victim for uid, victim in drain.victims.items() if uid not in uids},
        waiting=tuple(victim for victim in drain.waiting if victim.pod.uid not in uids),
    )


def with_victim(drain: Drain, victim: Victim) -> Drain:
    return replace(drain, victims={**drain.victims, victim.pod.uid: victim})
