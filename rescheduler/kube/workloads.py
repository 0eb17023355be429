"""Controllers of pods as API objects, and their desired numbers of pods. Pure."""

import hashlib
import math
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Raw

from predicates.objects import ObjectMeta, OwnerReference, Wire

#: Hexadecimal digits of a template's digest. Digests are compared for equality, and written into annotations.
_DIGITS: Final = 16


class WorkloadCondition(Wire, frozen=True):
    """A condition of a controller."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class RollingUpdate(Wire, frozen=True):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class RollOutStrategy(Wire, frozen=True):
    """How a controller replaces its pods when its template changes."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    template: Raw = Raw(b"{}")
    strategy: RollOutStrategy | None = None  #: of a Deployment
    update_strategy: RollOutStrategy | None = None  #: of a StatefulSet


class WorkloadStatus(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] | None = None


class WorkloadObject(Wire, frozen=True):
    """A Deployment, ReplicaSet, StatefulSet or ReplicationController."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def wanted(self) -> int:
        """The desired number of pods."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def least_available(self) -> int:
        """The number of pods that a roll-out leaves available."""
        if (strategy := self.spec.strategy) is not None:
            return 0 if strategy.type == "Recreate" else max(0, self.wanted - self._max_unavailable(strategy))
        strategy = self.spec.update_strategy
        if strategy is None or strategy.type != "RollingUpdate":
            return self.wanted
        limits = strategy.rolling_update or RollingUpdate()
        return max(0, self.wanted - max(1, scaled(limits.max_unavailable or 1, self.wanted)))

    def _max_unavailable(self, strategy: RollOutStrategy) -> int:
        """Return the limit in pods (``deploymentutil.ResolveFenceposts``)."""
        limits = strategy.rolling_update or RollingUpdate("25%", "25%")
        unavailable = scaled(limits.max_unavailable or 0, self.wanted)
        return unavailable or int(not scaled(limits.max_surge or 0, self.wanted, up=True))

    @property
    def refusal(self) -> str:
        """The message of the ReplicaFailure condition, or ""."""
        for condition in self.status.conditions or ():
            if condition.type == "ReplicaFailure" and condition.status == "True" and condition.reason != "FailedDelete":
                return condition.message or condition.reason
        return ""


def scaled(value: int | str, total: int, *, up: bool = False) -> int:
    """Return *value*, or its percentage of *total* (``intstr.GetScaledValueFromIntOrPercent``); 0 if it is invalid."""
    if isinstance(value, int):
        return value
    digits = value.removesuffix("%")
    percent = int(digits) if digits.isdecimal() and value.endswith("%") else 0
    return math.ceil(percent * total / 100) if up else percent * total // 100


def controller_of(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the owner with ``controller: true``, or None."""
    return next((owner for owner in owners if owner.controller), None)


def digest(template: Raw) -> str:
    """Return a digest of a pod template. It does not depend on the formatting of the JSON."""
    canonical = msgspec.json.encode(msgspec.json.decode(template), order="deterministic")
    return hashlib.sha256(canonical).hexdigest()[:_DIGITS]
