"""What planning answers, as values: a node's plan, or every reason why it stays."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from predicates.objects import OwnerReference


class Reason(enum.StrEnum):
    """Why a node stays: the code that metrics, events and ``plan -o json`` carry. The detail says it in words."""

    # Of the node itself.
    SCALE_DOWN_DISABLED = "scale-down-disabled"
    DO_NOT_DISRUPT_NODE = "node-do-not-disrupt"
    CONTROL_PLANE = "control-plane"
    COOLING_DOWN = "cooling-down"
    MIN_ON_DEMAND_NODES = "min-on-demand-nodes"
    NODE_NOT_READY = "node-not-ready"
    NODE_DELETING = "node-being-deleted"
    BEING_DRAINED = "being-drained-by-another"
    HOSTS_LEADER = "hosts-the-leader"
    OTHER_INSTALLATION = "other-installation"
    EVICTION_REFUSED = "eviction-refused"
    UNREADABLE_OBJECT = "unreadable-object"
    BELOW_MINIMUM = "below-minimum"  # of the provider's group
    PROVIDER_REFUSED = "provider-refused"
    # Of a pod on it.
    NOT_SAFE_TO_EVICT = "not-safe-to-evict"
    DO_NOT_DISRUPT = "do-not-disrupt"
    NO_CONTROLLER = "no-controller"
    LOCAL_STORAGE = "local-storage"
    KUBE_SYSTEM = "kube-system-pod"
    LIQO_COMPONENT = "liqo-component"
    BUDGET = "pod-disruption-budget"
    MANY_BUDGETS = "several-budgets"
    NO_ROOM = "no-room-on-spot"
    RESOURCE_CLAIM = "resource-claim"
    BUDGET_TOO_SLOW = "budget-too-slow"
    JOB_WOULD_FAIL = "job-would-fail"
    OTHER_SCHEDULER = "other-scheduler"
    MOVED_RECENTLY = "moved-recently"
    POD_TERMINATING = "pod-terminating"
    POD_STUCK_TERMINATING = "pod-stuck-terminating"
    REPLICAS_NOT_READY = "replicas-not-ready"
    # Of the plan.
    FRAGILE = "fragile-plan"
    RETURNS_TO_ON_DEMAND = "returns-to-on-demand"
    TIMEOUT = "planning-timeout"


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """A pod as it was when the plan was made: who comes under the same name with another UID is somebody else."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Placement(msgspec.Struct, frozen=True, gc=False):
    pod: PodRef
    node: str  #: where it fits beside all placements before it
    grace_period: int | None = None  #: seconds, the pod's own; None = the API's default of 30
    owner: OwnerReference | None = None  #: the pod's controller


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that stands in the way, for a person to act on."""

    reason: Reason
    detail: str
    pod: str | None = None  #: ``namespace/name``, None where it is the node itself


#: Another tool removes the node.
_REMOVALS: Final = frozenset({Reason.NODE_DELETING, Reason.BEING_DRAINED})


def is_removal(blockers: Iterable[Blocker]) -> bool:
    """Whether all that blocks a node is that another tool removes it."""
    return {blocker.reason for blocker in blockers} <= _REMOVALS


@dataclass(frozen=True, slots=True)
class Landing:
    """How many of the pods would land where, if the scheduler's scoring chose."""

    spot: int
    on_demand: int


@dataclass(frozen=True, slots=True)
class Plan:
    """All pods of *node* may be evicted and fit spot nodes together; the order of placements matters."""

    node: str
    placements: tuple[Placement, ...]
    leaving: tuple[PodRef, ...] = ()  #: being deleted already: waited for, not evicted
    robust: bool | None = None  #: None where it was not played through
    landing: Landing | None = None
    forecast: tuple[Placement, ...] = ()  #: where the scheduler's scoring puts the pods, as they arrive


@dataclass(frozen=True, slots=True)
class Rejected:
    """*node* stays; never without a blocker."""

    node: str
    blockers: tuple[Blocker, ...]

    @property
    def reason(self) -> Reason:
        """The first blocker's reason."""
        return self.blockers[0].reason


Verdict: TypeAlias = Plan | Rejected


@dataclass(frozen=True, slots=True)
class Planning:
    """One answer for each on-demand node, in the order in which they would be drained."""

    verdicts: tuple[Verdict, ...]
    on_demand_nodes: int
    spot_nodes: int
    timed_out: bool = False  #: the time box ended before the search did
    upper_bound: int | None = None  #: no plan can free more nodes than this; None where it was not asked

    @property
    def plans(self) -> tuple[Plan, ...]:
        return tuple(one for one in self.verdicts if isinstance(one, Plan))

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        return tuple(one for one in self.verdicts if isinstance(one, Rejected))
