"""The fields of cluster objects that the invariants use, decoded from the API's JSON with msgspec.

These types are deliberately independent of the daemon's types, so that decoding errors of the daemon are detected.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias

import msgspec


class Fields(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Part of an object."""


class OwnerField(Fields, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class MetaFields(Fields, frozen=True):
    name: str = ""  #: missing in watch bookmarks
    uid: str = ""
    namespace: str = ""
    resource_version: str = "0"
    generation: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    owner_references: tuple[OwnerField, ...] = ()


class ConditionFields(Fields, frozen=True):
    type: str
    status: str
    reason: str = ""
    last_transition_time: datetime | None = None


class EmptyDirFields(Fields, frozen=True):
    medium: str = ""


class VolumeFields(Fields, frozen=True):
    name: str = ""
    host_path: Mapping[str, str] | None = None
    empty_dir: EmptyDirFields | None = None


class PodSpecFields(Fields, frozen=True):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    priority: int = 0
    node_selector: Mapping[str, str] = {}
    volumes: tuple[VolumeFields, ...] = ()


class PodStatusFields(Fields, frozen=True):
    phase: str = "Pending"
    conditions: tuple[ConditionFields, ...] = ()


class SeenPod(Fields, frozen=True, tag="pods", tag_field="resource"):
    metadata: MetaFields
    spec: PodSpecFields = PodSpecFields()
    status: PodStatusFields = PodStatusFields()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def bound(self) -> bool:
        return bool(self.spec.node_name) and not self.deleting and not self.ended

    @property
    def ready(self) -> bool:
        return self.bound and self.status.phase == "Running" and is_true(self.status.conditions, "Ready")

    @property
    def ready_since(self) -> datetime | None:
        """Since when the pod has been Ready, or None."""
        times = (each.last_transition_time for each in self.status.conditions if each.type == "Ready")
        return next(times, None) if self.ready else None

    @property
    def preempted(self) -> bool:
        """Whether the scheduler deletes the pod in favor of a pod with a higher priority."""
        return any(
            (condition.type, condition.status, condition.reason)
            == ("DisruptionTarget", "True", "PreemptionByScheduler")
            for condition in self.status.conditions
        )

    @property
    def controller(self) -> OwnerField | None:
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def of_the_node(self) -> bool:
        """Whether the pod belongs to its node: a mirror pod, or a pod of a DaemonSet."""
        owner = self.controller
        return "kubernetes.io/config.mirror" in self.metadata.annotations or (
            owner is not None and owner.kind == "DaemonSet"
        )

    @property
    def keeps_node(self) -> bool:
        """Whether the pod counts as a pod of the node, so that the node is not empty."""
        return self.bound and not self.of_the_node


class TaintFields(Fields, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class NodeSpecFields(Fields, frozen=True):
    taints: tuple[TaintFields, ...] = ()
    unschedulable: bool = False


class NodeStatusFields(Fields, frozen=True):
    conditions: tuple[ConditionFields, ...] = ()


class SeenNode(Fields, frozen=True, tag="nodes", tag_field="resource"):
    metadata: MetaFields
    spec: NodeSpecFields = NodeSpecFields()
    status: NodeStatusFields = NodeStatusFields()

    @property
    def ready(self) -> bool:
        return is_true(self.status.conditions, "Ready")

    @property
    def takes_pods(self) -> bool:
        """Whether pods without tolerations can be bound to the node."""
        closed = any(taint.effect in ("NoSchedule", "NoExecute") for taint in self.spec.taints)
        return self.ready and not self.spec.unschedulable and not closed and self.metadata.deletion_timestamp is None

    def has(self, label: str) -> bool:
        """Return whether the node has *label*: KEY or KEY=VALUE."""
        key, equals, value = label.partition("=")
        return key in self.metadata.labels and (not equals or self.metadata.labels[key] == value)


class LimitFields(Fields, frozen=True):
    max_unavailable: int | str | None = None


class StrategyFields(Fields, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: LimitFields | None = None


class WorkloadSpecFields(Fields, frozen=True):
    """A workload's spec; *template* is replaced by its digest after decoding."""

    replicas: int | None = None
    strategy: StrategyFields = StrategyFields()  #: of a Deployment
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: object = None
    template: object = None


class WorkloadStatusFields(Fields, frozen=True):
    succeeded: int = 0
    failed: int = 0
    conditions: tuple[ConditionFields, ...] = ()


class SeenWorkload(Fields, frozen=True, tag="workloads", tag_field="resource"):
    """A Deployment, ReplicaSet, StatefulSet or Job."""

    metadata: MetaFields
    spec: WorkloadSpecFields = WorkloadSpecFields()
    status: WorkloadStatusFields = WorkloadStatusFields()
    kind: str = ""

    @property
    def controller(self) -> OwnerField | None:
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)

    @property
    def wanted(self) -> int:
        """The current desired number of pods."""
        if self.metadata.deletion_timestamp is not None or self.spec.suspend:
            return 0
        if self.kind != "Job":
            return 1 if self.spec.replicas is None else self.spec.replicas
        if any(is_true(self.status.conditions, name) for name in ("Complete", "Failed", "FailureTarget")):
            return 0
        parallelism = 1 if self.spec.parallelism is None else self.spec.parallelism
        if self.spec.completions is None:
            return 0 if self.status.succeeded else parallelism
        return max(0, min(parallelism, self.spec.completions - self.status.succeeded))

    @property
    def may_lack(self) -> int:
        """The number of pods that may be unavailable while a new template rolls out; 0 if that may be all of them."""
        if self.kind != "Deployment":
            return min(1, max(0, self.wanted - 1)) if self.kind == "StatefulSet" else 0
        limits = self.spec.strategy.rolling_update or LimitFields("25%")
        most = limits.max_unavailable if limits.max_unavailable is not None else "25%"
        allowed = int(most.removesuffix("%")) * self.wanted // 100 if isinstance(most, str) else most
        return allowed if self.spec.strategy.type == "RollingUpdate" and allowed < self.wanted else 0


class SelectorFields(Fields, frozen=True):
    match_labels: Mapping[str, str] = {}


class BudgetSpecFields(Fields, frozen=True):
    selector: SelectorFields = SelectorFields()


class SeenBudget(Fields, frozen=True, tag="poddisruptionbudgets", tag_field="resource"):
    metadata: MetaFields
    spec: BudgetSpecFields = BudgetSpecFields()

    def covers(self, pod: SeenPod) -> bool:
        return self.metadata.namespace == pod.metadata.namespace and (
            self.spec.selector.match_labels.items() <= pod.metadata.labels.items()
        )


SeenObject: TypeAlias = SeenPod | SeenNode | SeenWorkload | SeenBudget


def is_true(conditions: tuple[ConditionFields, ...], kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in conditions)
