"""One drain, as a value."""

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from rescheduler.draining.messages import Action
from rescheduler.planning.outcome import Placement, Plan, PodRef

#: ``terminationGracePeriodSeconds`` where a pod does not say.
DEFAULT_GRACE: Final = 30

NEVER: Final = math.inf


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a drain may take, in seconds."""

    eviction: float  #: for the API server to accept all evictions
    grace: float  #: at most, of a pod's own grace period
    #: From a pod's last moment to our seeing it gone: kubelet, volumes, watch. Cluster Autoscaler's value.
    headroom: float = 30.0
    removal: float = 600.0  #: for the provider to confirm; then the order is left at work
    release: float = 20.0  #: for the taint to come off; shorter than a pod's usual time to shut down

    @property
    def longest(self) -> float:
        """Seconds that a drain may take in all; pods that come late have the evictions' time, too."""
        return self.eviction + 2 * (self.grace + self.headroom) + self.removal + self.release


class Phase(enum.Enum):
    ASKING = enum.auto()
    MARKING = enum.auto()
    LOOKING = enum.auto()
    EVICTING = enum.auto()
    ORDERING = enum.auto()  #: the intent to remove is being written
    REMOVING = enum.auto()
    DELETING = enum.auto()
    RELEASING = enum.auto()
    DONE = enum.auto()


class Why(enum.StrEnum):
    """Why a drain failed; also a label of metrics."""

    PLAN_CHANGED = "plan-changed"  #: the plan no longer held once the taint was on
    PODS_RETURN = "pods-return"  #: pods that tolerate the taint are put back on the node
    EVICTION_TIMEOUT = "eviction-timeout"
    EVICTION_FAILED = "eviction-failed"
    TERMINATION_TIMEOUT = "termination-timeout"
    NODE_GONE = "node-gone"
    API_ERROR = "api-error"
    PROVIDER = "provider"  #: it failed
    REFUSED = "refused"  #: the provider keeps the machine: protected, at the minimum
    STOPPED = "stopped"
    LEADERSHIP_LOST = "leadership-lost"


@dataclass(frozen=True, slots=True)
class Failure:
    why: Why
    detail: str
    pods: tuple[PodRef, ...] = ()  #: those that stood in the way


@dataclass(frozen=True, slots=True)
class Victim:
    """A pod that must leave the node."""

    pod: PodRef
    grace: int | None  #: what the eviction asks for, in seconds; None: the pod's own
    patience: float  #: seconds from its eviction to its end
    ask_at: float = NEVER  #: when to ask (again)
    refusals: int = 0  #: in a row
    said: str = ""  #: the last refusal
    leaves_by: float | None = None  #: set once it is being deleted

    @property
    def accepted(self) -> bool:
        return self.leaves_by is not None


@dataclass(frozen=True, slots=True)
class Drain:
    """Where a drain stands. Moments are monotonic seconds."""

    node: str
    limits: Limits
    phase: Phase
    intended: tuple[str, ...] = ()  #: UIDs of the pods that were to move when it was decided
    marked: bool = False  #: our taint may be on the node
    victims: Mapping[str, Victim] = field(default_factory=dict)  #: by UID, those that are still there
    placements: tuple[Placement, ...] = ()  #: all that were to move, and where to, by forecast
    evicted: tuple[PodRef, ...] = ()  #: whose eviction was accepted
    returns: int = 0  #: how often pods were found on the node after all were gone
    deadline: float = NEVER  #: of the phase, or of the evictions
    retry_at: float = NEVER  #: of what the phase does over and over
    group: str | None = None  #: of the provider that takes the machine
    ordered_at: datetime | None = None  #: when an earlier process may have ordered the removal
    ordered: bool = False  #: by us, in this drain
    stopping: bool = False  #: told to stop once the machine was ordered away: its end is awaited, but not for long
    failure: Failure | None = None
    released: bool = False  #: taint and intent are off, or the node is gone

    @property
    def done(self) -> bool:
        return self.phase is Phase.DONE

    @property
    def succeeded(self) -> bool:
        return self.done and self.failure is None and self.released

    @property
    def handed_over(self) -> bool:
        """The machine was ordered away, its end was not seen: the intent stays on the node for a later look."""
        return self.done and self.failure is None and not self.released


#: What an event makes of a drain, and what is to be done.
Result: TypeAlias = tuple[Drain, tuple[Action, ...]]


def victims(plan: Plan, limits: Limits, now: float) -> dict[str, Victim]:
    """The pods of *plan* that must leave; those being deleted already are only waited for."""
    leaves_by = now + limits.grace + limits.headroom
    found = {pod.uid: Victim(pod, None, limits.grace, leaves_by=leaves_by) for pod in plan.leaving}
    for placement in plan.placements:
        own = DEFAULT_GRACE if placement.grace_period is None else placement.grace_period
        capped = own > limits.grace
        found[placement.pod.uid] = Victim(placement.pod, int(limits.grace) if capped else None, min(own, limits.grace))
    return found


def without(drain: Drain, uids: frozenset[str]) -> Drain:
    """*drain* after the pods *uids* have left."""
    left = {uid: victim for uid, victim in drain.victims.items() if uid not in uids}
    return replace(drain, victims=left)
