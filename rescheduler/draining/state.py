"""The state of one drain, as an immutable value: its pods, its phase, and why it failed."""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from predicates.objects import OwnerReference
from rescheduler.draining.actions import Action, SurgeMark
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, Shortfall, shortfall
from rescheduler.planning.last_look import PreemptedPod
from rescheduler.planning.outcome import TO_SPOT, Placement, Plan, PodRef, Purpose, Surge
from rescheduler.planning.refusals import KubeletRefusal

# The pods that a drain evicts or waits for.

#: A time that has not been reached, or that has no limit. Use it only in comparisons (<, >); a state that code has to
#: test for is a separate field or None.
NEVER: Final = math.inf

#: The API's default of ``terminationGracePeriodSeconds``.
DEFAULT_GRACE: Final = 30


@dataclass(frozen=True, slots=True)
class Request:
    """The EvictionRequest of a pod. Times are in monotonic seconds."""

    at: float  #: when it was created or found
    follow_at: float | None  #: when it is read again; None during a read
    taken: bool = False  #: its controller has observed it
    note: str = ""  #: what its responders report
    gone: bool = False  #: it was gone at the last read, perhaps together with the pod


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that must leave the node."""

    pod: PodRef
    grace: int | None  #: grace period of the eviction in seconds; None means the pod's own
    patience: float  #: seconds that the pod may take to terminate after its eviction
    owner: OwnerReference | None = None  #: the controller in its owner references
    controller: Controller | None = None  #: the topmost controller; None if it was not read yet or does not exist
    #: Time of the next eviction request; None while one is in flight, and once one was accepted.
    ask_at: float | None = None
    ask_until: float = NEVER  #: time after which no more requests are made
    planned_at: float = -NEVER  #: when the plan was requested on which its eviction rests
    refusals: int = 0  #: consecutive rejected requests
    last_rejection: str = ""  #: message of the last rejection
    leaves_by: float | None = None  #: set once the pod is being deleted: when it must be gone
    responders: bool = False  #: see :class:`~rescheduler.planning.outcome.Placement`
    requestable: bool = True  #: as above
    request: Request | None = None  #: its EvictionRequest; the eviction counts as unanswered until the pod is deleted
    withdraw: bool = False  #: its EvictionRequest was not successful and must be withdrawn before its eviction
    surge: Surge | None = None  #: the Deployment that rolls out instead of an eviction of the pod
    together: str = ""  #: see :class:`~rescheduler.planning.outcome.Placement`

    @property
    def accepted(self) -> bool:
        """Whether the eviction was accepted or the pod is being deleted anyway."""
        return self.leaves_by is not None

    @property
    def unanswered(self) -> bool:
        """Whether an eviction request is in flight."""
        return not self.accepted and self.ask_at is None

    def is_due(self, now: float) -> bool:
        """Return whether the eviction must be requested again."""
        return self.ask_at is not None and self.ask_at <= now


def victims(plan: Plan, limit: float) -> tuple[Victim, ...]:
    """Return the pods of *plan* that must be evicted, in plan order. *limit* is the longest grace period."""
    surges = {pod.uid: surge for surge in plan.surges for pod in surge.pods}
    return tuple(replace(_victim(each, limit), surge=surges.get(each.pod.uid)) for each in plan.placements)


def leaving(plan: Plan, limit: float, leaves_by: float) -> dict[str, Victim]:
    """Return the pods of *plan* that are already being deleted. The drain only waits for them, until *leaves_by*."""
    return {pod.uid: Victim(pod, None, limit, leaves_by=leaves_by) for pod in plan.leaving}


def targets(plan: Plan) -> frozenset[str]:
    """Return the nodes to which *plan* moves pods."""
    return frozenset(placement.node for placement in plan.placements)


def _victim(placement: Placement, limit: float) -> Victim:
    own = DEFAULT_GRACE if placement.grace_period is None else placement.grace_period
    grace = max(1, int(limit)) if own > limit else None  # 0 would end the pod at once, whatever its kubelet does
    victim = Victim(placement.pod, grace, min(own, limit), placement.owner)
    return replace(
        victim,
        responders=placement.responders,
        requestable=placement.requestable,
        together=placement.together,
    )


# Why a drain failed.


class Why(enum.StrEnum):
    """The reason why a drain failed; also used as a metric label."""

    PLAN_CHANGED = "plan-changed"  #: the plan was no longer valid after the node was tainted
    PODS_RETURN = "pods-return"  #: pods that tolerate the taint are scheduled to the node again
    EVICTION_REFUSED = "eviction-refused"  #: a dry run was rejected; nothing was evicted
    EVICTION_TIMEOUT = "eviction-timeout"
    EVICTION_FAILED = "eviction-failed"
    PLACEHOLDER_NOT_DELETED = "placeholder-not-deleted"  #: the room for its pod is therefore not free
    TERMINATION_TIMEOUT = "termination-timeout"
    REPLACEMENT_REFUSED = "replacement-refused"  #: the creation of a replacement pod was rejected
    KUBELET_REFUSED = "kubelet-refused"  #: the kubelet of its node refused a replacement pod
    REPLACEMENT_NOT_CREATED = "replacement-not-created"  #: a replacement pod was not created in time
    REPLACEMENT_UNSCHEDULABLE = "replacement-unschedulable"
    REPLACEMENT_NOT_BOUND = "replacement-not-bound"
    TARGET_LOST = "target-lost"  #: the remaining pods do not fit on the remaining spot nodes
    SURGE_FAILED = "surge-failed"  #: a Deployment could not roll out, or another client changed its template
    LANDING_TIMEOUT = "landing-timeout"  #: replacement pods did not become Ready in time
    MARK_LOST = "mark-lost"  #: our taint or annotation was removed or replaced
    NODE_GONE = "node-gone"
    API_ERROR = "api-error"
    PROVIDER = "provider"  #: the provider failed
    REFUSED = "refused"  #: the provider does not remove the machine: it is protected, or the group is at its minimum
    NOT_ON_DEMAND = "not-on-demand"  #: the node is not an on-demand node any more, or another one
    LATE_PODS = "late-pods"  #: pods came to the empty node before its machine was ordered away
    BELOW_MINIMUM = "below-minimum"  #: too few on-demand nodes would be left
    REPLACEMENT_LOST = "replacement-lost"  #: moved pods do not run any more, although they did
    OVERDUE = "overdue"  #: an interrupted drain was found after its time limits
    PREEMPTED = "preempted"  #: replacement pods preempted pods on other nodes
    STOPPED = "stopped"
    PAUSED = "paused"  #: a user paused drains
    LEADERSHIP_LOST = "leadership-lost"
    INTERNAL_ERROR = "internal-error"  #: a bug in this program


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a drain."""

    why: Why
    detail: str
    pods: tuple[PodRef, ...] = ()  #: the affected pods
    #: Controllers whose replacement pods did not run in time. The detail names them as well.
    owners: tuple[Controller, ...] = field(default=(), compare=False)
    refusal: KubeletRefusal | None = field(default=None, compare=False)  #: of a kubelet; it is remembered


# The state of one drain, as an immutable value.

#: Seconds between renewals of the lease on our node annotation.
RENEW_INTERVAL: Final = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of the parts of a drain, in seconds."""

    eviction: float  #: for the API server to accept the evictions of one step
    grace: float  #: upper limit of a pod's own grace period
    #: From the end of the grace period until we observe that the pod is gone: kubelet, volumes, watch. The value is
    #: Cluster Autoscaler's.
    headroom: float = 30.0
    vacating: float = 60.0  #: for the placeholder of a pod to be gone before the pod's eviction
    removal: float = 30.0  #: for the provider to confirm the removal; after that, later rounds check again
    release: float = 20.0  #: for removing the taint; shorter than the usual time for a process to shut down
    landing: float = 600.0  #: from the last eviction until all owed pods are Ready; 0 means that bound pods are enough
    creation: float = 15.0  #: for a replacement pod to be created, or to become schedulable, once that is possible
    binding: float = 60.0  #: for a replacement pod to be bound, once that is possible
    #: Whether to wait for pods that an admission webhook may move by itself, instead of evicting them.
    migrations: bool = False
    requests: bool = False  #: whether to ask for evictions with EvictionRequests
    taking: float = 15.0  #: for somebody to take an EvictionRequest, before the eviction API is used instead
    exposure: float = (
        5.0  #: from the taint to the machine's removal: pods that were being bound have been observed by then
    )

    @property
    def longest(self) -> float:
        """The maximum duration of a drain with a single step, in seconds."""
        landing = max(self.landing, self.binding)
        return self.eviction + 2 * (self.grace + self.headroom) + landing + self.removal + self.release


class Phase(enum.Enum):
    """The phases of a drain. ``transitions.py`` contains the events and the next phases of each."""

    ASKING = enum.auto()  #: requesting the machine's group from the provider
    MARKING = enum.auto()  #: writing the taint and the annotation
    LOOKING = enum.auto()  #: reading the cluster consistently and planning again
    COUNTING = enum.auto()  #: reading the pods' controllers
    NOTING = enum.auto()  #: writing the debts to the node's annotation
    TRYING = enum.auto()  #: trying all evictions in a dry run
    EVICTING = enum.auto()  #: evicting pods in steps and tracking replacement pods
    SURGE_READING = enum.auto()  #: reading a Deployment whose pods are moved by a roll-out
    SURGE_NOTING = enum.auto()  #: writing the intended change of its template to the node's annotation
    SURGING = enum.auto()  #: changing the template, and following the roll-out
    SURGE_REVERTING = enum.auto()  #: giving the template its old annotation back
    ORDERING = enum.auto()  #: writing the intent to remove the machine
    REMOVING = enum.auto()  #: machine termination requested
    DELETING = enum.auto()  #: deleting the Node object
    RELEASING = enum.auto()  #: removing taint and annotation, waiting for late responses to evictions
    DONE = enum.auto()


@dataclass(frozen=True, slots=True)
class Timers:
    """Since when replacement pods of one controller have been missing, in monotonic seconds."""

    uncreated: float | None = None
    unschedulable: float | None = None
    unbound: float | None = None


@dataclass(frozen=True, slots=True)
class BeforeStep:
    """The pods of a controller right before a step evicted some of them."""

    at: float  #: monotonic seconds
    replicas: Replicas


@dataclass(frozen=True, slots=True)
class Deletion:
    """The deletion of a placeholder before the eviction of its pod. Times are in monotonic seconds."""

    placeholder: PodRef
    until: float  #: when it must be gone
    ask_at: float | None = None  #: time of the next request; None while one is in flight or was accepted
    errors: int = 0  #: failed requests
    last_error: str = ""

    def is_due(self, now: float) -> bool:
        """Return whether the deletion must be requested again."""
        return self.ask_at is not None and self.ask_at <= now


@dataclass(frozen=True, slots=True)
class Rollout:
    """A roll-out that moves pods of the node. Times are in monotonic seconds."""

    mark: SurgeMark
    asked: bool = False  #: the template was changed
    until: float = NEVER  #: when it must be complete
    read_at: float | None = None  #: when it was last read; None during a read, and before the first
    complete: bool = False  #: all pods are new and available; old ones may still terminate
    leaves_by: float | None = None  #: when the old pods must be gone, once it is complete
    refusal: str = ""  #: why new pods cannot be created
    refused_at: float | None = None  #: since when
    unschedulable_at: float | None = None  #: since when the scheduler cannot place a new pod
    downtime: str = ""  #: why old pods may end before the new ones are available now, or ""
    short_at: float | None = None  #: since when fewer pods are Ready than are owed


@dataclass(frozen=True, slots=True)
class Drain:
    """The state of a drain. Times are monotonic seconds."""

    node: str
    limits: Limits
    phase: Phase
    intended: tuple[str, ...] = ()  #: UIDs of the pods to move, from the original plan
    purpose: Purpose = TO_SPOT
    marked: bool = False  #: our taint may be on the node
    tainted_at: float = NEVER  #: when our taint was confirmed
    renew_at: float = NEVER  #: when the lease on our node annotation must be renewed
    resumed: bool = False  #: the drain was started by an earlier process
    #: When an earlier process started the drain, or the removal: replacement pods are younger.
    since: datetime | None = None
    preempted: tuple[PreemptedPod, ...] = ()  #: pods that were preempted before the resumption, by any pod
    #: When the drain fails, as an earlier process recorded, unless the pods that were missing run by then.
    due_at: float = NEVER
    rolled_back: bool = False  #: the drain only removes marks; the result of the original drain is not known
    # Evictions
    waiting: tuple[Victim, ...] = ()  #: pods to evict in later steps
    victims: Mapping[str, Victim] = field(default_factory=dict)  #: by UID: eviction requested, still on the node
    placements: tuple[Placement, ...] = ()  #: all pods to move and their forecast nodes
    one_by_one: bool = False  #: the pods move one at a time, in the order of the last plan
    evicted: tuple[PodRef, ...] = ()  #: pods whose eviction was accepted
    targets: frozenset[str] = frozenset()  #: target nodes of the last plan
    controllers: Mapping[str, Controller] = field(default_factory=dict)  #: topmost controllers by pod UID
    begun: frozenset[Controller] = frozenset()  #: controllers of at least one pod whose eviction was requested
    #: Of these, controllers whose pods left before an eviction was accepted: their replacement pods prove nothing.
    unproven: frozenset[Controller] = frozenset()
    step_size: Mapping[Controller, int] = field(default_factory=dict)  #: number of pods in a controller's next step
    owners_in_step: int = 0  #: number of controllers in the last step of first pods; 0 before the first of these steps
    rest: frozenset[str] = frozenset()  #: UIDs of pods of the steps that have begun, which have not been evicted yet
    step: tuple[Victim, ...] = ()  #: the next pods, while they are planned again
    planning_at: float | None = None  #: when the step was planned again; None if no plan is in flight
    losable: frozenset[str] = frozenset()  #: see :class:`ControllersRead`
    unowned: str = ""  #: which pod of the last step has no controller that replaces it, and why
    unowned_at: float | None = None  #: since when the drain has waited for such pods
    looks: int = 0  #: how often pods to move were present when the node was planned again
    placeholders: Mapping[str, PodRef] = field(default_factory=dict)  #: as last observed; see :class:`Seen`
    vacating: Mapping[str, Deletion] = field(default_factory=dict)  #: by the UID of the pod in the next step
    requested: bool = False  #: EvictionRequests of this installation may exist
    withdrawals: int = 0  #: requests to withdraw them that are in flight
    withdraw_at: float | None = None  #: when they are withdrawn again, after a failure
    ignored: bool = False  #: nobody takes EvictionRequests, so the eviction API is used
    rollout: Rollout | None = None  #: the roll-out that is about to begin, or in progress
    surged: frozenset[str] = frozenset()  #: UIDs of the pods that roll-outs have moved
    surges: int = 0  #: number of complete roll-outs
    last_eviction_at: float | None = None  #: start of the evictions, or the last one that was accepted
    #: By namespace: the seconds in which the drain has waited for its pods to leave the node, or to run again.
    kept_waiting: Mapping[str, float] = field(default_factory=dict)
    waited_at: float | None = None  #: when these were last counted
    # Replacement pods
    #: Debts to all controllers of the moved pods, paid or not: a paid debt may have to be paid again.
    debts: Mapping[Controller, Debt] = field(default_factory=dict)
    paid: frozenset[Controller] = frozenset()  #: controllers whose debt was paid when the pods were last counted
    settled: frozenset[Controller] = frozenset()  #: controllers whose debt was paid at any time since their last step
    unsteady: frozenset[Controller] = frozenset()  #: of these, controllers that lacked pods again: Ready is not enough
    states: Mapping[Controller, ControllerState] = field(default_factory=dict)
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)
    #: Which replacement pod waits for a volume that is still attached to another node, by controller.
    detaching: Mapping[Controller, str] = field(default_factory=dict)
    timers: Mapping[Controller, Timers] = field(default_factory=dict)
    read_at: float | None = None  #: when the controllers were last read; None during a read, and before the first
    asked_at: float = NEVER  #: when the last read of the controllers was requested
    known_at: float = NEVER  #: `states` show all changes of the controllers before this time
    before_step: Mapping[Controller, BeforeStep] = field(default_factory=dict)  #: of steps since `known_at`
    landed_at: float | None = None  #: when all owed pods were running
    # The machine
    group: str | None = None  #: the provider's node group of the machine
    ordered_at: datetime | None = None  #: when an earlier process may have requested the termination
    ordered: bool = False  #: termination was requested by this drain
    confirmed: bool = False  #: the provider confirmed that the machine is terminating or gone
    returns: int = 0  #: how often an order was withheld
    paused: bool = False  #: a user paused drains during the removal: no more pods are evicted
    absent: bool = False  #: the machine was unknown to the provider at the last request
    unshrunk: str = ""  #: why the removed machine will be replaced by a new one; "" if it will not
    # The end
    deadline: float = NEVER  #: end of the current phase
    failing_until: float | None = None  #: set once the phase's request has failed: the latest time for a retry
    #: Next attempt of the current phase's request; None while the request is in flight.
    retry_at: float | None = None
    stopping: bool = False  #: a stop was requested after machine termination: the drain waits only briefly for it
    failure: Failure | None = None
    #: Why a machine must not end although an earlier process may have requested that: the provider is asked.
    doubt: Failure | None = None
    #: Why a termination that an earlier process may have requested is checked later; nothing was requested.
    postponed: Failure | None = None
    released: bool = False  #: taint and annotation were removed, or the node is gone
    #: Evidence that another tool is removing or has deleted the node after all pods were evicted. That tool also
    #: removes the machine. Pods that are still owed are tracked after the drain.
    removed_by: str = ""

    @property
    def done(self) -> bool:
        """Whether the drain has ended."""
        return self.phase is Phase.DONE

    @property
    def succeeded(self) -> bool:
        """Whether the drain reached its goal.

        Either the node accepts pods again, or its machine is terminating or gone and the Node object was
        deleted.
        """
        ended = self.done and self.failure is None and not self.removed_by
        ordered = self.ordered or self.ordered_at is not None
        return ended and self.released and (self.confirmed or not ordered)

    @property
    def handed_over(self) -> bool:
        """Whether machine termination was requested but not confirmed.

        If the Node still exists, it keeps its mark, and later rounds check again.
        """
        return self.done and self.failure is None and not self.removed_by and not self.succeeded

    @property
    def evicted_all(self) -> bool:
        """Whether pods were evicted and no pod is left whose eviction was not accepted."""
        asking = any(not victim.accepted for victim in self.victims.values())
        return bool(self.evicted) and not self.waiting and not asking

    @property
    def moved_all(self) -> bool:
        """Whether no pod is left that must move: what is owed must then run for good."""
        return not (self.waiting or self.victims)

    @property
    def unanswered(self) -> bool:
        """Whether an eviction request is in flight."""
        return any(victim.unanswered for victim in self.victims.values())

    @property
    def landing_seconds(self) -> float | None:
        """The seconds from the last eviction until all owed pods were running.

        None if they are not running yet, or if nothing was evicted.
        """
        if self.landed_at is None or self.last_eviction_at is None or not self.evicted:
            return None
        return self.landed_at - self.last_eviction_at

    @property
    def in_flight(self) -> bool:
        """Whether the current phase's request is in flight."""
        return self.retry_at is None

    def is_due(self, now: float) -> bool:
        """Return whether the current phase's request is not in flight and must be sent again."""
        return self.retry_at is not None and self.retry_at <= now

    def reads_again(self, now: float, interval: float) -> bool:
        """Return whether the last read of the controllers ended at least *interval* seconds ago."""
        return self.read_at is not None and now >= self.read_at + interval

    def has_taken_from(self, controller: Controller) -> bool:
        """Return whether pods of *controller* were evicted, or may have been evicted by an earlier process."""
        return self.resumed or controller in self.begun

    @property
    def owed(self) -> dict[Controller, Debt]:
        """The debts that were not paid when the pods were last counted, or have not been counted yet."""
        return {controller: debt for controller, debt in self.debts.items() if controller not in self.paid}

    @property
    def leaves_owed(self) -> dict[Controller, Debt]:
        """What is owed after the drain: nothing to controllers of which no pod can have been evicted."""
        return {each: debt for each, debt in self.owed.items() if self.rolled_back or self.has_taken_from(each)}

    @property
    def lost_again(self) -> tuple[Controller, ...]:
        """The controllers that lost pods which had already replaced the evicted ones."""
        return tuple(sorted(self.settled & self.debts.keys() - self.paid))

    def counting(self, victims: Iterable[Victim]) -> frozenset[Controller]:
        """The controllers whose debts count the pods of *victims*, also those whose ReplicaSets were orphaned."""
        own = {victim.controller for victim in victims if victim.controller is not None}
        owners = {(victim.pod.namespace, victim.owner.uid) for victim in victims if victim.owner is not None}
        states = self.states.items()
        return frozenset(own).union(controller for controller, state in states if state.owners & owners)

    def shortfall(self, controller: Controller, *, full: bool = False, staying: bool = False) -> Shortfall:
        """Return how many pods *controller* still lacks, as `debts.shortfall`; zero if nothing is owed to it."""
        debt = self.debts.get(controller)
        if debt is None:
            return Shortfall(0, 0, 0)
        state, replicas = self.states[controller], self.replicas.get(controller, Replicas())
        return shortfall(debt, state, replicas, full=full, staying=staying or controller in self.unsteady)


#: The drain after an event, and the actions to perform.
Result: TypeAlias = tuple[Drain, tuple[Action, ...]]


def without(drain: Drain, uids: frozenset[str]) -> Drain:
    """Return *drain* after the pods *uids* have left."""
    return replace(
        drain,
        victims={uid: victim for uid, victim in drain.victims.items() if uid not in uids},
        waiting=tuple(victim for victim in drain.waiting if victim.pod.uid not in uids),
    )


def with_victim(drain: Drain, victim: Victim) -> Drain:
    """Return *drain* with *victim* added or replaced."""
    return replace(drain, victims={**drain.victims, victim.pod.uid: victim})
