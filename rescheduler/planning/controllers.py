"""Topmost controllers of pods, which recreate pods after evictions: their names, and their state in the API server.

A Deployment's pod names a ReplicaSet as its controller; the ReplicaSet names the Deployment. Drains count replacement
pods per topmost controller, because roll-outs and scale-downs happen there.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from predicates.objects import FailurePolicy, FailureRule, JobCounts, OwnerReference, Pod
from predicates.snapshot import Snapshot


class Controller(msgspec.Struct, frozen=True, order=True):
    """A topmost controller, identified by its UID."""

    namespace: str
    kind: str  #: with its API group if a built-in kind has the same name: ``Job.batch.volcano.sh``
    name: str
    uid: str
    api_version: str = ""  #: of a custom resource; "" for built-in kinds

    @property
    def built_in(self) -> bool:
        return not self.api_version

    def is_named(self, names: Collection[str]) -> bool:
        """Return whether *names* contains the controller (``namespace/Kind/name``) or its namespace."""
        return str(self) in names or self.namespace in names

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


#: Kinds of owners whose pods are evicted after those of others.
_LATE: Final = ("StatefulSet", "Job")


def is_evicted_late(owner: OwnerReference | None) -> bool:
    """Return whether pods of *owner* are evicted after others: others show sooner whether replacement pods can run."""
    return owner is not None and owner.kind in _LATE


class Disruption(enum.Enum):
    """The effect of evicting a pod on its Job, according to the podFailurePolicy of the Job."""

    COUNTS = enum.auto()  #: the eviction is a failure and counts against the backoff limits
    IGNORED = enum.auto()
    FAILS = enum.auto()  #: the Job, or the pod's index, may fail at once


@dataclass(frozen=True, slots=True)
class JobFacts:
    """The properties of a Job that decide whether the eviction of its pods can make the Job fail."""

    backoff_limit: int = 6  #: pod failures after which the Job fails
    backoff_limit_per_index: int | None = None  #: the same for each index of an Indexed Job
    failures: int = 0  #: pod failures so far, with container restarts where ``restartPolicy`` is OnFailure
    disruption: Disruption = Disruption.COUNTS
    managed_by: str = ""  #: who manages the Job instead of the built-in controller


class _Limits(Protocol):
    """The fields of a Job's spec that limit its failures."""

    @property
    def backoff_limit(self) -> int | None: ...

    @property
    def backoff_limit_per_index(self) -> int | None: ...

    @property
    def pod_failure_policy(self) -> FailurePolicy | None: ...

    @property
    def managed_by(self) -> str: ...


#: The value of ``spec.managedBy`` for the built-in controller. No value means the same.
JOB_CONTROLLER: Final = "kubernetes.io/job-controller"


#: Actions of a podFailurePolicy that fail the Job or one of its indexes regardless of the backoff limits.
_FAILS: Final = frozenset({"FailJob", "FailIndex"})

#: Usual exit codes of the containers of an evicted pod: SIGTERM, SIGKILL.
_EVICTED_CODES: Final = frozenset({143, 137})


def job_facts(limits: _Limits, counts: JobCounts, restarted: int) -> JobFacts:
    """Return the facts that decide whether an eviction can fail a Job with these *limits* and *counts*.

    *restarted* is the number of container restarts that count as failures. The Job controller
    (``pkg/controller/job``: ``pastBackoffLimitOnFailure``) compares failed pods and restarts with the limit
    separately. Using their sum is conservative.
    """
    return JobFacts(
        backoff_limit=6 if limits.backoff_limit is None else limits.backoff_limit,
        backoff_limit_per_index=limits.backoff_limit_per_index,
        failures=counts.failed + len(counts.uncounted.failed or ()) + restarted,
        disruption=_disruption(limits.pod_failure_policy),
        managed_by="" if limits.managed_by == JOB_CONTROLLER else limits.managed_by,
    )


def _disruption(policy: FailurePolicy | None) -> Disruption:
    """Return the effect of an eviction. The first matching rule decides; a rule about exit codes may or may not match.

    Therefore an eviction is ignored only if no earlier rule may count it, and it fails the Job if any rule may do so.
    """
    certain = True
    for rule in (policy.rules if policy else None) or ():
        if not _may_match_evicted(rule):
            continue
        if rule.action in _FAILS:
            return Disruption.FAILS
        ignored = rule.action == "Ignore"
        if rule.on_exit_codes is None:
            return Disruption.IGNORED if ignored and certain else Disruption.COUNTS
        certain = certain and ignored
    return Disruption.COUNTS


def _may_match_evicted(rule: FailureRule) -> bool:
    """Return whether a pod that failed because of an eviction may match *rule* (``matchPodFailurePolicy``)."""
    if (codes := rule.on_exit_codes) is not None:
        values = frozenset(codes.values or ())
        return bool(_EVICTED_CODES & values) if codes.operator == "In" else not values >= _EVICTED_CODES
    patterns = rule.on_pod_conditions or ()
    return any(pattern.type == "DisruptionTarget" and pattern.status == "True" for pattern in patterns)


@dataclass(frozen=True, slots=True)
class ControllerState:
    """A topmost controller as returned by the API server."""

    controller: Controller
    #: UIDs that its pods name as their controller: its own UID, or the UIDs of the ReplicaSets that were read.
    owner_uids: frozenset[str]
    wanted: int | None = None  #: desired number of pods now; None if this kind cannot be read
    template: str = ""  #: a digest of its pod template; "" if it cannot be read
    exists: bool = True  #: False if it is gone
    #: It is being deleted: nothing recreates its pods reliably. `wanted` are the pods that the deletion keeps.
    deleting: bool = False
    suspended: bool = False
    finished: bool = False  #: it ran to completion, and creates no more pods
    unreadable: str = ""  #: why it cannot be read, so that `exists` and `wanted` are not known; "" if it was read
    #: It is gone, but another one has its name, or its own controller exists and may create it again. If `wanted` is
    #: not known then, as much as before is owed.
    returning: bool = False
    #: Its pods are not interchangeable, although it is not built in: they are moved one at a time.
    one_at_a_time: bool = False
    refusal: str = ""  #: why it cannot create pods: a ReplicaFailure condition or a FailedCreate event
    hindrance: str = ""  #: why one of its pods does not run: a container that waits, or what the scheduler says
    succeeded: int = 0  #: pods that succeeded, for kinds whose `wanted` does not already account for them
    job: JobFacts | None = None  #: only for a Job
    min_ready_seconds: int = 0  #: a pod is available once it has been Ready for this time
    #: Number of pods that the roll-out in progress leaves available; None if none is in progress.
    least_available: int | None = None
    above: tuple[Controller, ...] = ()  #: the controllers above it, as far as they are known, its own first

    @property
    def owners(self) -> frozenset[tuple[str, str]]:
        """Return what its pods name as their controller, each with the namespace: pods of others may name it, too."""
        return frozenset((self.controller.namespace, uid) for uid in self.owner_uids)

    @property
    def recreates(self) -> bool:
        """Return whether evicted pods of the controller come back: it is neither gone, finished nor being deleted."""
        return self.exists and not self.deleting and not self.finished

    @property
    def ordered(self) -> bool:
        """Return whether the controller replaces its pods one at a time and keeps their names."""
        return self.one_at_a_time or self.controller.kind.partition(".")[0] == "StatefulSet"


@dataclass(frozen=True, slots=True)
class ControllerReading:
    """The controllers of pods, as the API server or a snapshot has them."""

    states: Mapping[Controller, ControllerState]
    topmost: Mapping[tuple[str, str], Controller]  #: by namespace and UID of a pod's owner

    def of(self, pods: Iterable[Pod]) -> "ControllerReading":
        """Return the part about the controllers of *pods*."""
        keys = {(pod.namespace, pod.owner.uid) for pod in pods if pod.owner is not None}
        topmost = {key: self.topmost[key] for key in keys & self.topmost.keys()}
        return ControllerReading({each: self.states[each] for each in topmost.values()}, topmost)


# Names of the controllers of pods, in the form that users see and write.

#: By label: the kind of workload that appends the label's value to the names of its ReplicaSets.
_TEMPLATE_HASHES: Final[Mapping[str, str]] = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",  # Argo Rollouts
}


@dataclass(frozen=True, slots=True, order=True)
class ControllerName:
    """A controller, or an object without a controller, such as ``Pod ci/build`` or ``Node worker-1``."""

    namespace: str  #: "" for nodes
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def text(self) -> str:
        """The name as records and :class:`Controller` write it: ``namespace/Kind/name``."""
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def path(self) -> str:
        """Return the name as an argument of ``--what-if``: ``namespace/deployment/name``."""
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"


def controller_of(pod: Pod) -> ControllerName:
    """Return the controller of *pod* as users know it.

    That is the Deployment or the Rollout if a ReplicaSet owns the pod, and the pod itself if it has no owner or if the
    owner is a pod, such as the driver of a Spark executor.
    """
    owner = pod.owner
    if owner is None or owner.kind == "Pod":
        return ControllerName(pod.namespace, "Pod", pod.name)
    if owner.kind == "ReplicaSet":
        for label, kind in _TEMPLATE_HASHES.items():
            suffix = f"-{pod.cls.labels.get(label, '')}"
            if 1 < len(suffix) < len(owner.name) and owner.name.endswith(suffix):
                return ControllerName(pod.namespace, kind, owner.name.removesuffix(suffix))
    return ControllerName(pod.namespace, owner.kind, owner.name)


#: Returns the controller of the pod ``namespace/name``, such as ``Deployment data/api``.
ControllerLookup: TypeAlias = Callable[[str], str]


def controllers_in(snapshot: Snapshot) -> ControllerLookup:
    """Return the lookup for the pods of *snapshot*. For an unknown pod, the lookup returns the pod itself."""

    def controller(pod: str) -> str:
        known = snapshot.pods.get(pod)
        return str(controller_of(known)) if known is not None else f"Pod {pod}"

    return controller
