"""Controllers of pods as API objects, their desired numbers of pods, and the failures of Jobs that count. Pure."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from predicates.objects import FailurePolicy, JobCounts, ObjectMeta, OwnerReference, Wire
from rescheduler import decoding
from rescheduler.planning.forms import fenceposts, scaled

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
        """Return the limit in pods."""
        limits = strategy.rolling_update or RollingUpdate("25%", "25%")
        return fenceposts(limits.max_surge or 0, limits.max_unavailable or 0, self.wanted)[1]

    @property
    def refusal(self) -> str:
        """The message of the ReplicaFailure condition, or ""."""
        for condition in self.status.conditions or ():
            if condition.type == "ReplicaFailure" and condition.status == "True" and condition.reason != "FailedDelete":
                return condition.message or condition.reason
        return ""


def controller_of(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """Return the owner with ``controller: true``, or None."""
    return next((owner for owner in owners if owner.controller), None)


def digest(template: Raw) -> str:
    """Return a digest of a pod template. It does not depend on the formatting of the JSON."""
    return decoded_digest(msgspec.json.decode(template))


def decoded_digest(template: Any) -> str:
    """Return the :func:`digest` of a pod template that is decoded already."""
    canonical = msgspec.json.encode(template, order="deterministic")
    return hashlib.sha256(canonical).hexdigest()[:_DIGITS]


# Source: ``kubernetes/pkg/controller/job`` (``manageJob``).

#: A Job with one of these conditions creates no more pods.
_FINISHED: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})


class JobSelector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None


class JobObjectSpec(Wire, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    managed_by: str = ""
    selector: JobSelector | None = None
    suspend: bool | None = None
    template: Raw = Raw(b"{}")


class JobStatus(JobCounts, frozen=True):
    conditions: tuple[WorkloadCondition, ...] | None = None


class JobObject(Wire, frozen=True):
    metadata: WorkloadMeta
    spec: JobObjectSpec = JobObjectSpec()
    status: JobStatus = JobStatus()

    @property
    def suspended(self) -> bool:
        return bool(self.spec.suspend)

    @property
    def counts_restarts(self) -> bool:
        """Whether restarts of containers count against the backoff limit."""
        return decoding.decode(bytes(self.spec.template), JobTemplate).spec.restart_policy == "OnFailure"

    @property
    def selector(self) -> str:
        """A label selector that matches all pods of the Job."""
        labels = (self.spec.selector.match_labels if self.spec.selector else None) or {}
        return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


class JobTemplateSpec(Wire, frozen=True):
    restart_policy: str = ""


class JobTemplate(Wire, frozen=True):
    spec: JobTemplateSpec = JobTemplateSpec()


class ContainerRestarts(Wire, frozen=True):
    restart_count: int = 0


class JobPodStatus(Wire, frozen=True):
    phase: str = ""
    container_statuses: tuple[ContainerRestarts, ...] | None = None
    init_container_statuses: tuple[ContainerRestarts, ...] | None = None


class JobPodMeta(Wire, frozen=True):
    """Metadata of a pod. The name is used in errors about pods that cannot be decoded."""

    name: str = ""
    namespace: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class JobPod(Wire, frozen=True):
    metadata: JobPodMeta
    status: JobPodStatus = JobPodStatus()


# Pods that do not run yet, and why. Pure.


class WaitingContainer(Wire, frozen=True):
    """Why a container does not run, for example with the reason ImagePullBackOff or CrashLoopBackOff."""

    reason: str = ""
    message: str = ""


class ContainerState(Wire, frozen=True):
    waiting: WaitingContainer | None = None


class StartingContainer(Wire, frozen=True):
    name: str = ""
    state: ContainerState = ContainerState()


class StartingPodStatus(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] | None = None
    container_statuses: tuple[StartingContainer, ...] | None = None
    init_container_statuses: tuple[StartingContainer, ...] | None = None


class StartingPodMeta(JobPodMeta, frozen=True):
    deletion_timestamp: str | None = None


class StartingPod(Wire, frozen=True):
    metadata: StartingPodMeta
    status: StartingPodStatus = StartingPodStatus()

    @property
    def hindrance(self) -> str:
        """Why the pod is not Ready: a container that waits for more than its start, or the scheduler's message."""
        for container in (*(self.status.init_container_statuses or ()), *(self.status.container_statuses or ())):
            waiting = container.state.waiting
            if waiting is not None and waiting.reason not in _STARTING:
                message = f": {waiting.message}" if waiting.message else ""
                return f"container {container.name} waits: {waiting.reason}{message}"
        for condition in self.status.conditions or ():
            if (condition.type, condition.status) == ("PodScheduled", "False") and condition.message:
                return condition.message
        return ""


#: Reasons of containers whose start is normal.
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})


def wanted(job: JobObject) -> int:
    """Return the number of pods of *job* that should run at present."""
    if (
        job.metadata.ends_with_its_pods
        or job.suspended
        or any(condition.type in _FINISHED and condition.status == "True" for condition in job.status.conditions or ())
    ):
        return 0
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    succeeded = job.status.succeeded + len(job.status.uncounted.succeeded or ())
    if job.spec.completions is not None:
        return max(0, min(parallelism, job.spec.completions - succeeded))
    return job.status.active if succeeded else parallelism


def restarts(pods: Iterable[JobPod], uid: str) -> int:
    """Count the container restarts of those active *pods* that the Job *uid* controls."""
    total = 0
    for pod in pods:
        ours = any(owner.controller and owner.uid == uid for owner in pod.metadata.owner_references)
        if ours and pod.status.phase in ("Running", "Pending"):
            statuses = (*(pod.status.init_container_statuses or ()), *(pod.status.container_statuses or ()))
            total += sum(status.restart_count for status in statuses)
    return total
