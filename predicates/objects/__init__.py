"""Typed Kubernetes objects, with only the fields that the filters, the planner and the drain read.

Pods are kept in a compact form: pods with equal scheduling properties share one :class:`PodClass`.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import force_setattr

from predicates.objects.api import (
    AllocationResult,
    Amounts,
    AWSElasticBlockStore,
    AzureDisk,
    CinderVolume,
    Condition,
    ConsumerReference,
    ContainerImage,
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIStorageCapacity,
    CSIVolumeSource,
    DeviceAllocation,
    DeviceAllocations,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSubRequest,
    Empty,
    GCEPersistentDisk,
    Int32,
    Int64,
    LabelSelector,
    Namespace,
    Node,
    NodeAddress,
    NodeFeatures,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    ObjectReference,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PortworxVolume,
    QuantityText,
    Requirement,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceRequirements,
    RuntimeHandler,
    RuntimeHandlerFeatures,
    ServerVersion,
    StorageClass,
    Taint,
    TopologyLabelRequirement,
    TopologyTerm,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeAttachmentStatus,
    VolumeError,
    VolumeNodeAffinity,
    VolumeNodeResources,
    Wire,
)
from predicates.objects.pods import (
    IMPERATIVE_EVICTION,
    Affinity,
    AutoscalerGroup,
    AutoscalerGroups,
    CapacityBuffer,
    ClaimVolume,
    CompositePodGroup,
    Container,
    ContainerPort,
    ContainerRestartRule,
    ContainerStatus,
    ControllerRevision,
    Deployment,
    DisruptionBudget,
    EmptyDir,
    EvictionResponder,
    FailurePolicy,
    FailureRule,
    GangWorkload,
    InlineCSI,
    ISCSIVolume,
    Job,
    JobCounts,
    LeaderWorkerSet,
    LimitRange,
    LimitRangeItem,
    MachineSet,
    NodeAffinity,
    NodePool,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupPolicy,
    PodObject,
    PodOS,
    PodResourceClaim,
    PodSpec,
    PodStatus,
    PodTemplate,
    PodTemplateObject,
    PreferredSchedulingTerm,
    PriorityClass,
    QuotaScopeTerm,
    RBDVolume,
    ReplicaSet,
    ReplicationController,
    ResourceQuota,
    RevisionData,
    RuntimeClass,
    ScaleTarget,
    SchedulingGate,
    SecurityContext,
    StatefulSet,
    Toleration,
    TopologySpreadConstraint,
    VerticalPodAutoscaler,
    Volume,
    VPABoost,
    VPAContainerPolicy,
    WeightedPodAffinityTerm,
    Workload,
)

# The compact representation of pods. Pods with equal scheduling properties share one :class:`PodClass`.

#: Phases of pods that no longer use resources of their node.
FINISHED: Final = ("Succeeded", "Failed")


class HostPort(msgspec.Struct, frozen=True, gc=False):
    """A port that a pod occupies on its node."""

    protocol: str
    ip: str
    port: int


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A reference to a PersistentVolumeClaim in the pod's namespace."""

    name: str
    ephemeral: bool  #: created for this pod from a volume claim template in its spec
    pod: str = ""  #: the name of the pod if ephemeral, else ""
    #: Whether it is ephemeral, and of a pod that replaces a running one: created with it like the present claim.
    renewed: bool = False


class Load(NamedTuple):
    """What a pod is charged on its node."""

    amounts: Amounts  #: as :attr:`PodClass.requests`
    #: What scoring adds for containers without requests: cpu (thousandths) and memory (bytes).
    defaults: tuple[int, int]


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The properties of a pod that the scheduler reads before it binds the pod.

    They are the properties that a new pod has: fields that only a bound pod has are not included.
    Pods whose properties are equal share one class. Classes are interned (:class:`predicates.wire.Interner`) and
    compare by identity, so dict lookups by class are cheap and results for a class apply to all of its pods.
    """

    namespace: str
    labels: Mapping[str, str]  #: without ``Pod.added_labels``
    requests: Amounts  #: cpu in thousandths, all others in units; sorted by name; without zeros
    defaults: tuple[int, int]  #: as :attr:`Load.defaults`
    spec: PodSpec  #: of the first pod of the class; ``nodeName`` is blank
    ports: tuple[HostPort, ...] = ()
    claims: tuple[Claim, ...] = ()
    disks: tuple[Volume, ...] = ()  #: inline volumes that name a disk, in pod order
    terminating: bool = False  #: being deleted: not counted by topology spread, counted by pod affinity
    name: str = ""  #: the pod's name if reasons quote it (pods with resource claims), else ""


class Pod(msgspec.Struct, frozen=True, eq=True, kw_only=True):
    """A pod, reduced to the fields that are read."""

    namespace: str
    name: str
    uid: str
    node_name: str  #: "" until the pod is bound
    cls: PodClass
    added_labels: tuple[tuple[str, str], ...] = ()  #: labels that the API server added when it bound the pod
    #: By rule (``requests.load_rule``): what is charged to the node, if that differs from what a new pod requests. It
    #: does during an in-place resize.
    loads: tuple[Load, ...] = ()
    owner: OwnerReference | None = None  #: the owner with ``controller: true``; None if no object can have its texts
    owner_fault: str = ""  #: which field of that owner no object can have, so that it cannot be read; "" if none
    annotations: Mapping[str, str] = {}
    phase: str = ""
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    start_time: str | None = None
    ready: bool = True  #: False if the pod has a Ready condition that is not True
    #: Since when it has been Ready without a restart of a container; None if it is not Ready, or if unknown.
    ready_since: str | None = None
    generation: int = (
        0  #: number of the version of its spec: more than 1 after an edit, such as an in-place resize; 0 if unknown
    )
    unschedulable_since: str | None = None  #: since when PodScheduled has been False (Unschedulable)
    nominated_node_name: str = ""  #: of a pending pod: the node on which the scheduler makes room for it
    restarts: int = 0  #: of its containers, if ``restartPolicy`` is OnFailure: they count as failures of a Job
    preempted: bool = False  #: the scheduler deletes it in favor of a pod with a higher priority
    refused: str = ""  #: why the kubelet of its node did not admit it; it has failed
    #: Whether a client set ``spec.nodeName``, instead of a scheduler that bound the pod. Known from the managed fields
    #: (a binding manages none); False if these are missing, as in the output of ``kubectl get``.
    assigned: bool = False
    key: str = ""  #: ``namespace/name``, whatever is given: plans read it some ten times for each pod

    def __post_init__(self) -> None:
        force_setattr(self, "key", f"{self.namespace}/{self.name}")

    @property
    def noted(self) -> bool:
        """Whether a snapshot keeps it after it is gone: the drain that it replaces a pod of must learn of its end."""
        return self.preempted or bool(self.refused)

    @property
    def finished(self) -> bool:
        """Whether the pod has terminated: neither the scheduler nor a drain counts it."""
        return self.phase in FINISHED


Object: TypeAlias = (
    Node
    | Pod
    | Namespace
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | PodDisruptionBudget
    | ResourceClaim
    | DeviceClass
    | Workload
    | StatefulSet
    | ControllerRevision
    | PriorityClass
    | RuntimeClass
    | Deployment
    | LimitRange
    | ResourceQuota
    | VerticalPodAutoscaler
    | PodGroup
    | GangWorkload
    | LeaderWorkerSet
    | NodePool
    | MachineSet
    | CapacityBuffer
    | PodTemplateObject
    | AutoscalerGroups
    | ServerVersion
)


# Objects that exist but cannot be decoded. They are missing from the snapshot, which can block the drain of nodes.


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of an object that cannot be decoded."""

    kind: str
    key: str  #: ``namespace/name``, or ``name``; ``without a name`` if unknown
    why: str  #: the error in one line, with kind and name of the object
    node: str | None = None  #: of a Pod: its node; "" if unbound or finished; None if unknown


def pod_node_name(raw: bytes | Raw | memoryview) -> str | None:
    """Return the node of a Pod in JSON, as in :attr:`Unreadable.node`."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        pod = json.loads(bytes(raw).decode(errors="replace"))
        status, name = pod.get("status"), pod.get("spec").get("nodeName")
        finished = isinstance(status, dict) and status.get("phase") in FINISHED
        if name is None or finished:
            return ""
        return name if isinstance(name, str) else None
    return None
