"""The pods that a drain evicts or waits for."""

import math
from dataclasses import dataclass
from typing import Final

from predicates.objects import OwnerReference
from rescheduler.planning.controllers import Controller
from rescheduler.planning.outcome import Placement, Plan, PodRef

#: A time that has not been reached, or that has no limit. Use it only in comparisons (<, >); a state that code has to
#: test for is a separate field or None.
NEVER: Final = math.inf

#: The API's default of ``terminationGracePeriodSeconds``.
DEFAULT_GRACE: Final = 30


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
    refusals: int = 0  #: consecutive rejected requests
    last_rejection: str = ""  #: message of the last rejection
    leaves_by: float | None = None  #: set once the pod is being deleted: when it must be gone

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
    return tuple(_victim(placement, limit) for placement in plan.placements)


def leaving(plan: Plan, limit: float, leaves_by: float) -> dict[str, Victim]:
    """Return the pods of *plan* that are already being deleted. The drain only waits for them, until *leaves_by*."""
    return {pod.uid: Victim(pod, None, limit, leaves_by=leaves_by) for pod in plan.leaving}


def targets(plan: Plan) -> frozenset[str]:
    """Return the nodes to which *plan* moves pods."""
    return frozenset(placement.node for placement in plan.placements)


def _victim(placement: Placement, limit: float) -> Victim:
    own = DEFAULT_GRACE if placement.grace_period is None else placement.grace_period
    grace = int(limit) if own > limit else None
    return Victim(placement.pod, grace, min(own, limit), placement.owner)
