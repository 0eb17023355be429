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


class WorkloadMeta(ObjectMeta, frozen=True):
    finalizers: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted. Its controller then creates no pods any more."""
        return self.deletion_timestamp is not None

    @property
    def ends_with_its_pods(self) -> bool:
        """Whether the object is being deleted together with its pods, that is, without ``--cascade=orphan``."""
        return self.deleting and "orphan" not in self.finalizers


class RollingUpdate(Wire, frozen=True):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None
    partition: int | None = None  #: of a StatefulSet: pods with smaller ordinals are not updated


class RollOutStrategy(Wire, frozen=True):
    """How a controller replaces its pods when its template changes."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    template: Raw = Raw(b"{}")
    strategy: RollOutStrategy | None = None  #: of a Deployment
    update_strategy: RollOutStrategy | None = None  #: of a StatefulSet
    paused: bool = False  #: of a Deployment: it does not roll out
    min_ready_seconds: int = 0  #: a pod is available once it has been Ready for this time


class WorkloadStatus(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] | None = None
    replicas: int = 0
    updated_replicas: int = 0
    current_replicas: int = 0  #: of a StatefulSet: pods of `current_revision`
    current_revision: str = ""
    update_revision: str = ""


class WorkloadObject(Wire, frozen=True):
    """A Deployment, ReplicaSet, StatefulSet or ReplicationController."""

    metadata: WorkloadMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def wanted(self) -> int:
        """The desired number of pods."""
        if self.metadata.ends_with_its_pods:
            return 0
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def rolling_out(self) -> bool:
        """Whether the controller is replacing pods of an older template by itself.

        A pod that is missing does not count: the numbers of a roll-out must not be mixed up with those of an eviction.
        """
        if self.spec.strategy is not None:
            return not self.spec.paused and self.status.replicas > self.status.updated_replicas
        strategy, status = self.spec.update_strategy, self.status
        if strategy is None or strategy.type != "RollingUpdate" or status.update_revision == status.current_revision:
            return False
        limits = strategy.rolling_update or RollingUpdate()
        return status.current_replicas > (limits.partition or 0)

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
