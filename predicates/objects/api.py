"""Objects as in the API, except pods and their controllers: metadata, selectors, nodes, storage and devices."""

from typing import Annotated, Final, TypeAlias

import msgspec

from predicates.texts import reference_fault

# Object metadata, and the base class of all structs that mirror the API.

QuantityText: TypeAlias = str | int | float
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Amounts: TypeAlias = tuple[tuple[str, int], ...]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Base class of structs with the JSON shape of the Kubernetes API."""


class Empty(Wire, frozen=True):
    """An object whose fields are not read; only its presence matters."""


class OwnerReference(Wire, frozen=True):
    """A reference to an owner. The API server does not check its texts."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False

    @property
    def fault(self) -> str:
        """Which field no object can have, with the expected form, or ""."""
        return reference_fault(self.kind, self.name, self.uid, self.api_version)


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

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object, or None."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class VersionedMeta(ObjectMeta, frozen=True):
    generation: Int64 = 0  #: the version of the spec


class VersionedStatus(Wire, frozen=True):
    """Base class of statuses that tell from which version of the spec the controller computed them."""

    observed_generation: Int64 = 0

    def has_observed(self, metadata: VersionedMeta) -> bool:
        """Return whether the controller has seen the current spec of the object with *metadata*."""
        return self.observed_generation >= metadata.generation


# Label selectors and node selectors, as in the API.


class Requirement(Wire, frozen=True):
    """An entry of ``matchExpressions`` or ``matchFields``."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """A node selector term: requirements are ANDed; a term without requirements matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """A node selector: its terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


# Nodes, as in the API.


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


class NodeSystemInfo(Wire, frozen=True):
    kubelet_version: str = ""
    operating_system: str = ""
    architecture: str = ""


class RuntimeHandlerFeatures(Wire, frozen=True):
    recursive_read_only_mounts: bool | None = None
    user_namespaces: bool | None = None


class RuntimeHandler(Wire, frozen=True):
    name: str = ""  #: "" is the default handler
    features: RuntimeHandlerFeatures = RuntimeHandlerFeatures()


class NodeFeatures(Wire, frozen=True):
    supplemental_groups_policy: bool | None = None


class NodeStatus(Wire, frozen=True):
    allocatable: dict[str, QuantityText] = {}
    capacity: dict[str, QuantityText] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    runtime_handlers: tuple[RuntimeHandler, ...] = ()
    features: NodeFeatures = NodeFeatures()


#: Kubernetes sets the first on control-plane nodes; the second was used before 1.24.
CONTROL_PLANE_LABELS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


class Node(Wire, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, kind: str) -> str:
        """Return the status (True, False, Unknown) of the condition of type *kind*, or "" if the node has none."""
        return next((c.status for c in self.status.conditions if c.type == kind), "")


# Volumes, claims, storage classes, CSI objects, namespaces and PodDisruptionBudgets, as in the API.


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
    nfs: Empty | None = None


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
    attach_required: bool = True
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


class VolumeError(Wire, frozen=True):
    message: str = ""


class VolumeAttachmentStatus(Wire, frozen=True):
    attached: bool = False
    detach_error: VolumeError | None = None


class VolumeAttachment(Wire, frozen=True):
    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
    status: VolumeAttachmentStatus = VolumeAttachmentStatus()


class Namespace(Wire, frozen=True):
    metadata: ObjectMeta


class ServerVersion(Wire, frozen=True):
    """The version of the API server in a snapshot file; not an object of the API."""

    metadata: ObjectMeta
    git_version: str = ""


class PodDisruptionBudgetSpec(Wire, frozen=True):
    selector: LabelSelector | None = None
    min_available: Int32 | str | None = None
    max_unavailable: Int32 | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class DisruptionCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class PodDisruptionBudgetStatus(VersionedStatus, frozen=True):
    disruptions_allowed: Int32 = 0
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    expected_pods: Int32 = 0
    disrupted_pods: dict[str, str] = {}
    conditions: tuple[DisruptionCondition, ...] = ()


class PodDisruptionBudget(Wire, frozen=True):
    metadata: VersionedMeta
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


# Objects of dynamic resource allocation (DRA), as in the API.


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
    """A device allocated to a claim. A device with binding conditions is not usable until its driver sets them."""

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
