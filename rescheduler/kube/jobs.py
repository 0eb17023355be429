"""Jobs as API objects: the desired number of pods of a Job, and the failures that count. Pure.

Source: ``kubernetes/pkg/controller/job`` (``manageJob``, ``pastBackoffLimitOnFailure``, ``matchPodFailurePolicy``).
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Raw

from predicates.objects import OwnerReference, Wire
from rescheduler import decoding
from rescheduler.kube.workloads import WorkloadCondition, WorkloadMeta
from rescheduler.planning.controllers import Disruption, JobFacts

#: A Job with one of these conditions creates no more pods.
_FINISHED: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})

#: Actions of a podFailurePolicy that fail the Job or one of its indexes regardless of the backoff limits.
_FAILS: Final = frozenset({"FailJob", "FailIndex"})

#: Usual exit codes of the containers of an evicted pod: SIGTERM, SIGKILL.
_EVICTED_CODES: Final = frozenset({143, 137})


class ExitCodes(Wire, frozen=True):
    operator: str = ""
    values: tuple[int, ...] | None = None

    @property
    def match_evicted(self) -> bool:
        """Whether a container that was terminated by an eviction may match."""
        values = frozenset(self.values or ())
        return bool(_EVICTED_CODES & values) if self.operator == "In" else not values >= _EVICTED_CODES


class PodConditionPattern(Wire, frozen=True):
    type: str = ""
    status: str = "True"


class FailureRule(Wire, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] | None = None

    @property
    def match_evicted(self) -> bool:
        """Whether a pod that failed because of an eviction may match."""
        if self.on_exit_codes is not None:
            return self.on_exit_codes.match_evicted
        return any(
            condition.type == "DisruptionTarget" and condition.status == "True"
            for condition in self.on_pod_conditions or ()
        )


class FailurePolicy(Wire, frozen=True):
    rules: tuple[FailureRule, ...] | None = None


class JobSelector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None


class JobSpec(Wire, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    selector: JobSelector | None = None
    suspend: bool | None = None
    template: Raw = Raw(b"{}")


class UncountedPods(Wire, frozen=True):
    """UIDs of finished pods that are not part of the counts yet."""

    succeeded: tuple[str, ...] | None = None
    failed: tuple[str, ...] | None = None


class JobStatus(Wire, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    uncounted_terminated_pods: UncountedPods | None = None
    conditions: tuple[WorkloadCondition, ...] | None = None


class Job(Wire, frozen=True):
    metadata: WorkloadMeta
    spec: JobSpec = JobSpec()
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


def wanted(job: Job) -> int:
    """Return the number of pods of *job* that should run at present."""
    if (
        job.metadata.ends_with_its_pods
        or job.suspended
        or any(condition.type in _FINISHED and condition.status == "True" for condition in job.status.conditions or ())
    ):
        return 0
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    succeeded = job.status.succeeded + len(_uncounted(job).succeeded or ())
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


def facts(job: Job, restarted: int) -> JobFacts:
    """Return the facts that decide whether an eviction can fail *job*.

    *restarted* is the number of container restarts that count as failures. The Job controller compares failed pods and
    restarts with the limit separately. Using their sum is conservative.
    """
    return JobFacts(
        backoff_limit=6 if job.spec.backoff_limit is None else job.spec.backoff_limit,
        backoff_limit_per_index=job.spec.backoff_limit_per_index,
        failures=job.status.failed + len(_uncounted(job).failed or ()) + restarted,
        disruption=_disruption(job.spec.pod_failure_policy),
    )


def _disruption(policy: FailurePolicy | None) -> Disruption:
    """Return the effect of an eviction. The first matching rule decides; a rule about exit codes may or may not match.

    Therefore an eviction is ignored only if no earlier rule may count it, and it fails the Job if any rule may do so.
    """
    certain = True
    for rule in (policy.rules if policy else None) or ():
        if not rule.match_evicted:
            continue
        if rule.action in _FAILS:
            return Disruption.FAILS
        ignored = rule.action == "Ignore"
        if rule.on_exit_codes is None:
            return Disruption.IGNORED if ignored and certain else Disruption.COUNTS
        certain = certain and ignored
    return Disruption.COUNTS


def _uncounted(job: Job) -> UncountedPods:
    return job.status.uncounted_terminated_pods or UncountedPods()
