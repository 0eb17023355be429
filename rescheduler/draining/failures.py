"""Why a drain failed."""

import enum
from dataclasses import dataclass, field

from rescheduler.planning.controllers import Controller
from rescheduler.planning.outcome import PodRef


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
    REPLACEMENT_NOT_CREATED = "replacement-not-created"  #: a replacement pod was not created in time
    REPLACEMENT_UNSCHEDULABLE = "replacement-unschedulable"
    REPLACEMENT_NOT_BOUND = "replacement-not-bound"
    TARGET_LOST = "target-lost"  #: the remaining pods do not fit on the remaining spot nodes
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
