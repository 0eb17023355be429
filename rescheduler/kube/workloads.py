"""Controllers of pods in the API's shape, and what they want. Pure."""

import hashlib
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


class WorkloadSpec(Wire, frozen=True):
    replicas: int | None = None
    template: Raw = Raw(b"{}")


class WorkloadStatus(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] | None = None


class Workload(Wire, frozen=True):
    """A Deployment, ReplicaSet, StatefulSet or ReplicationController."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def wanted(self) -> int:
        """Pods that it wants to run."""
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def refusal(self) -> str:
        """Why it cannot create pods, by its condition; "" where it can."""
        for one in self.status.conditions or ():
            if one.type == "ReplicaFailure" and one.status == "True" and one.reason != "FailedDelete":
                return one.message or one.reason
        return ""


def controller_of(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The owner with ``controller: true``."""
    return next((one for one in owners if one.controller), None)


def digest(template: Raw) -> str:
    """A digest of a pod template: equal for equal templates, however their JSON is written."""
    canonical = msgspec.json.encode(msgspec.json.decode(template), order="deterministic")
    return hashlib.sha256(canonical).hexdigest()[:_DIGITS]
