"""The fields of Kubernetes objects that the filters, the planner and the drainer read, and nothing else.

Structs with ``rename="camel"`` are the API's own shape: they decode from JSON, unknown fields are skipped.
:class:`Pod` and :class:`PodClass` are ours: see :mod:`predicates.wire`.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

QuantityText: TypeAlias = str | int | float
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Amounts: TypeAlias = tuple[tuple[str, int], ...]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The base of all structs in the API's own shape."""


class OwnerReference(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


# Selectors


class Requirement(Wire, frozen=True):
    """One ``matchExpressions`` entry of a label selector, or of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """All of it must hold; a term without any requirement matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


# Nodes


class Taint(Wire, frozen=True):
    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: str | None = None


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class ContainerImage(Wire, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class NodeSpec(Wire, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(Wire, frozen=True):
    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    declared_features: tuple[str, ...] = ()


class Node(Wire, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, kind: str) -> str:
        """The status (True, False, Unknown) of the condition *kind*, "" where the node has none."""
        return next((c.status for c in self.status.conditions if c.type == kind), "")


# Storage, namespaces, budgets


class ResourceRequirements(Wire, frozen=True):
    requests: dict[str, QuantityText] = {}
    limits: dict[str, QuantityText] = {}


class PersistentVolumeClaimSpec(Wire, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(Wire, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class CSIVolumeSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class GCEPersistentDisk(Wire, frozen=True):
    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class AzureDisk(Wire, frozen=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")
    kind: str | None = None


class CinderVolume(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class PortworxVolume(Wire, frozen=True):
    volume_id: str = msgspec.field(default="", name="volumeID")


class ObjectReference(Wire, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True):
    capacity: dict[str, QuantityText] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworx_volume: PortworxVolume | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    metadata: ObjectMeta
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyLabelRequirement(Wire, frozen=True):
    key: str = ""
    values: tuple[str, ...] = ()


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyLabelRequirement, ...] = ()


class StorageClass(Wire, frozen=True):
    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class VolumeNodeResources(Wire, frozen=True):
    count: Int32 | None = None


class CSINodeDriver(Wire, frozen=True):
    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    topology_keys: tuple[str, ...] = ()
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Wire, frozen=True):
    metadata: ObjectMeta
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Wire, frozen=True):
    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool = False


class CSIDriver(Wire, frozen=True):
    metadata: ObjectMeta
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Wire, frozen=True):
    metadata: ObjectMeta
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


class VolumeAttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class Namespace(Wire, frozen=True):
    metadata: ObjectMeta


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    observed_generation: Int64 = 0
    disrupted_pods: dict[str, str] = {}


class PodDisruptionBudget(Wire, frozen=True):
    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# Devices (Dynamic Resource Allocation)


class DeviceSubRequest(Wire, frozen=True):
    name: str = ""
    device_class_name: str = ""


class DeviceRequest(Wire, frozen=True):
    name: str = ""
    exactly: DeviceSubRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceClaim(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceAllocation(Wire, frozen=True):
    """A device given to a claim; one with binding conditions is not ready until its driver says so."""

    binding_conditions: tuple[str, ...] = ()


class DeviceAllocations(Wire, frozen=True):
    results: tuple[DeviceAllocation, ...] = ()


class AllocationResult(Wire, frozen=True):
    devices: DeviceAllocations = DeviceAllocations()
    node_selector: NodeSelector | None = None


class ConsumerReference(Wire, frozen=True):
    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()


class ResourceClaim(Wire, frozen=True):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(Wire, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


# Pods, in the API's shape


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class ContainerPort(Wire, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class ContainerRestartRule(Wire, frozen=True):
    action: str = ""


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()


class PodAffinityTerm(Wire, frozen=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: Int32 = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Of ``podAffinity`` and ``podAntiAffinity`` alike."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: Int32 = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ClaimVolume(Wire, frozen=True):
    claim_name: str = ""


class RBDVolume(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = ""
    read_only: bool = False


class ISCSIVolume(Wire, frozen=True):
    target_portal: str = ""
    iqn: str = ""
    read_only: bool = False


class InlineCSI(Wire, frozen=True):
    driver: str = ""


class EmptyDir(Wire, frozen=True):
    medium: str = ""


class Empty(Wire, frozen=True):
    """An object of which only the presence matters."""


class Volume(Wire, frozen=True):
    """The sources that a filter or a drain rule reads; any other kind of volume leaves all of them unset."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: Empty | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworx_volume: PortworxVolume | None = None
    rbd: RBDVolume | None = None
    iscsi: ISCSIVolume | None = None
    csi: InlineCSI | None = None
    empty_dir: EmptyDir | None = None
    host_path: Empty | None = None


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class PodResourceClaim(Wire, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodOS(Wire, frozen=True):
    name: str = ""


class PodSpec(Wire, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    overhead: dict[str, QuantityText] = {}
    resources: ResourceRequirements | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    priority: Int32 | None = None
    scheduler_name: str = ""
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    os: PodOS | None = None


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, QuantityText] = {}


class PodStatus(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, QuantityText] = {}
    start_time: str | None = None
    nominated_node_name: str = ""


class PodObject(Wire, frozen=True):
    """A whole pod in the API's shape. Decoded once for each class of pods; what is kept is :class:`Pod`."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Pods, as we keep them


class HostPort(msgspec.Struct, frozen=True, gc=False):
    protocol: str
    ip: str
    port: int


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim that a pod uses, in the pod's namespace."""

    name: str
    ephemeral: bool  #: made for this very pod from a template in its spec
    pod: str = ""  #: the name of that pod; "" unless ephemeral


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What the scheduler may know of a pod before it has a node. Pods that schedule alike share one object.

    Classes are interned (:class:`predicates.wire.Interner`) and compare by identity, so a dict keyed by class
    costs nothing to look up, and work done for a class is done once for all its pods.
    """

    namespace: str
    labels: Mapping[str, str]
    requests: Amounts  #: cpu in thousandths, everything else in units; sorted; zeros left out
    nonzero: tuple[int, int]  #: cpu (thousandths) and memory with the scheduler's scoring defaults filled in
    spec: PodSpec  #: of one pod of the class; ``nodeName`` is blank unless the class is pinned
    ports: tuple[HostPort, ...] = ()
    claims: tuple[Claim, ...] = ()
    disks: tuple[Volume, ...] = ()  #: the volumes that name a disk in the pod itself, in their order
    terminating: bool = False  #: being deleted: topology spread does not count it, pod affinity does
    name: str = ""  #: the pod's, where the verdict names it (resource claims): a class of its own

    @property
    def affinity_terms(self) -> tuple[PodAffinityTerm, ...]:
        return _required(self.spec.affinity.pod_affinity if self.spec.affinity else None)

    @property
    def anti_affinity_terms(self) -> tuple[PodAffinityTerm, ...]:
        return _required(self.spec.affinity.pod_anti_affinity if self.spec.affinity else None)


def _required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required if affinity else ()


class Pod(msgspec.Struct, frozen=True, eq=True, kw_only=True):
    """One pod, without what nobody reads."""

    namespace: str
    name: str
    uid: str
    node_name: str  #: "" while it has no node
    cls: PodClass
    load: Amounts  #: what it takes on its node; other than ``cls.requests`` only around an in-place resize
    owner: OwnerReference | None = None  #: the owner with ``controller: true``
    annotations: Mapping[str, str] = {}
    phase: str = ""
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    start_time: str | None = None
    ready: bool = True  #: False where its Ready condition says anything but True
    unschedulable_since: str | None = None  #: when the scheduler first said ``Unschedulable``

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """It has ended and takes no room: neither the scheduler nor a drain counts it."""
        return self.phase in ("Succeeded", "Failed")


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
)
