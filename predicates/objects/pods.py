"""Pods, and the controllers with a pod template, as in the API. Separate from the other objects by length:
`predicates.objects` exports both.
"""

from typing import Any, Final

import msgspec

from predicates.objects.api import (
    AWSElasticBlockStore,
    AzureDisk,
    CinderVolume,
    Condition,
    Empty,
    GCEPersistentDisk,
    Int32,
    Int64,
    LabelSelector,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    PortworxVolume,
    QuantityText,
    Requirement,
    ResourceRequirements,
    Taint,
    VersionedMeta,
    VersionedStatus,
    Wire,
)

# Pods, as in the API.


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


class VolumeMount(Wire, frozen=True):
    bind_mount_options: tuple[str, ...] = ()
    recursive_read_only: str = ""


class Capabilities(Wire, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SecurityProfile(Wire, frozen=True):
    """A profile of seccomp or AppArmor."""

    type: str = ""


class SELinuxOptions(Wire, frozen=True):
    user: str = ""
    role: str = ""
    type: str = ""


class WindowsOptions(Wire, frozen=True):
    host_process: bool | None = None


class Sysctl(Wire, frozen=True):
    name: str = ""


class SecurityContext(Wire, frozen=True):
    """The value of ``securityContext`` of a pod or a container: what Pod Security admission and kubelets read."""

    privileged: bool | None = None
    allow_privilege_escalation: bool | None = None
    capabilities: Capabilities | None = None
    proc_mount: str | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    seccomp_profile: SecurityProfile | None = None
    app_armor_profile: SecurityProfile | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsOptions | None = None
    sysctls: tuple[Sysctl, ...] = ()
    supplemental_groups_policy: str = ""


class Container(Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    security_context: SecurityContext | None = None


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
    """The value of both ``podAffinity`` and ``podAntiAffinity``."""

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


class ImageVolume(Wire, frozen=True):
    reference: str = ""


class PodCertificate(Wire, frozen=True):
    key_type: str = ""


class ProjectedSource(Wire, frozen=True):
    pod_certificate: PodCertificate | None = None


class ProjectedVolume(Wire, frozen=True):
    """Of pods in a snapshot, only the sources of volumes with a certificate are kept."""

    sources: tuple[ProjectedSource, ...] = ()


class Volume(Wire, frozen=True):
    """A pod volume. Has only the sources that rules read; all are None for other volume types."""

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
    image: ImageVolume | None = None
    projected: ProjectedVolume | None = None
    config_map: Empty | None = None
    secret: Empty | None = None
    downward_api: Empty | None = msgspec.field(default=None, name="downwardAPI")


class SchedulingGate(Wire, frozen=True):
    name: str = ""


class PodResourceClaim(Wire, frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class EvictionResponder(Wire, frozen=True):
    name: str = ""


#: The responder that evicts pods through the eviction API, like a drain. Every pod has it as the last one.
IMPERATIVE_EVICTION: Final = "imperative-eviction.k8s.io/evictor"


class PodOS(Wire, frozen=True):
    name: str = ""


class PodSchedulingGroup(Wire, frozen=True):
    pod_group_name: str = ""


class WorkloadReference(Wire, frozen=True):
    """The reference to a group of Kubernetes 1.35, which later versions do not have."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


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
    preemption_policy: str = ""
    scheduler_name: str = ""
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    os: PodOS | None = None
    active_deadline_seconds: Int64 | None = None
    priority_class_name: str = ""
    runtime_class_name: str = ""
    eviction_responders: tuple[EvictionResponder, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    security_context: SecurityContext | None = None
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")


class ContainerStatus(Wire, frozen=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: dict[str, QuantityText] = {}
    restart_count: Int32 = 0


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
    """A complete pod as in the API. Decoded once per pod class; long-lived pods are stored as :class:`Pod`."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Controllers with a pod template, and the objects that change the pods that are created from it, as in the API.


class PodTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class TemplateSpec(Wire, frozen=True):
    replicas: Int32 = 1  #: Jobs have none
    template: PodTemplate = PodTemplate()


class Workload(Wire, frozen=True):
    """A controller that creates all of its pods from one template.

    *admitted* and *rejected* are not fields of the API: they are the result of the creation of a pod in a dry run.
    """

    metadata: ObjectMeta
    spec: TemplateSpec = TemplateSpec()
    admitted: PodTemplate | None = None  #: the template as admission changes it; None if that was not tried
    rejected: str = ""  #: why admission rejects the pods of this controller


class ReplicaSet(Workload, frozen=True):
    pass


class ReplicationController(Workload, frozen=True):
    pass


class ExitCodes(Wire, frozen=True):
    operator: str = ""
    values: tuple[int, ...] | None = None


class PodConditionPattern(Wire, frozen=True):
    type: str = ""
    status: str = "True"


class FailureRule(Wire, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] | None = None


class FailurePolicy(Wire, frozen=True):
    rules: tuple[FailureRule, ...] | None = None


class UncountedPods(Wire, frozen=True):
    """UIDs of finished pods that are not part of the counts yet."""

    succeeded: tuple[str, ...] | None = None
    failed: tuple[str, ...] | None = None


class JobCounts(Wire, frozen=True):
    """The numbers in the status of a Job."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    uncounted_terminated_pods: UncountedPods | None = None

    @property
    def uncounted(self) -> UncountedPods:
        return self.uncounted_terminated_pods or UncountedPods()


class JobSpec(TemplateSpec, frozen=True):
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None
    managed_by: str = ""
    pod_replacement_policy: str = ""  #: "" in files without it: the API server sets it


class Job(Workload, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobCounts = JobCounts()

    @property
    def replaces_only_finished(self) -> bool:
        """Whether a pod is replaced only when it is gone, and not already while it is terminating."""
        policy = self.spec.pod_replacement_policy
        return policy == "Failed" if policy else self.spec.pod_failure_policy is not None


class StatefulSetPartition(Wire, frozen=True):
    partition: Int32 = 0


class StatefulSetStrategy(Wire, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: StatefulSetPartition | None = None


class StatefulSetOrdinals(Wire, frozen=True):
    start: Int32 = 0


class StatefulSetSpec(TemplateSpec, frozen=True):
    ordinals: StatefulSetOrdinals = StatefulSetOrdinals()
    update_strategy: StatefulSetStrategy = StatefulSetStrategy()


class StatefulSetStatus(VersionedStatus, frozen=True):
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Wire, frozen=True):
    metadata: VersionedMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()
    admitted: PodTemplate | None = None  #: as in :class:`Workload`
    rejected: str = ""


class ControllerRevision(Wire, frozen=True):
    """A version of the pod template of a StatefulSet. Other controllers store other data."""

    metadata: ObjectMeta
    data: Any = None


class RevisionData(Wire, frozen=True):
    """The data of a revision of a StatefulSet: a patch with its pod template."""

    spec: TemplateSpec = TemplateSpec()


class PriorityClass(Wire, frozen=True):
    metadata: ObjectMeta
    value: Int32 = 0
    global_default: bool = False


class RuntimeOverhead(Wire, frozen=True):
    pod_fixed: dict[str, QuantityText] = {}


class RuntimeScheduling(Wire, frozen=True):
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Wire, frozen=True):
    metadata: ObjectMeta
    handler: str = ""
    overhead: RuntimeOverhead = RuntimeOverhead()
    scheduling: RuntimeScheduling = RuntimeScheduling()


class DeploymentRollingUpdate(Wire, frozen=True):
    max_unavailable: Int32 | str | None = None
    max_surge: Int32 | str | None = None


class DeploymentStrategy(Wire, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: DeploymentRollingUpdate | None = None


class DeploymentSpec(Wire, frozen=True):
    """The spec of a Deployment, without its template: the replacement pods are derived from its ReplicaSet's."""

    replicas: Int32 | None = None
    paused: bool = False
    strategy: DeploymentStrategy = DeploymentStrategy()


class DeploymentStatus(VersionedStatus, frozen=True):
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    available_replicas: Int32 = 0


class Deployment(Wire, frozen=True):
    metadata: VersionedMeta
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus | None = None


class LimitRangeItem(Wire, frozen=True):
    type: str = ""
    default: dict[str, QuantityText] = {}
    default_request: dict[str, QuantityText] = {}
    min: dict[str, QuantityText] = {}
    max: dict[str, QuantityText] = {}
    max_limit_request_ratio: dict[str, QuantityText] = {}


class LimitRangeSpec(Wire, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Wire, frozen=True):
    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


class QuotaScopeTerm(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class QuotaScopeSelector(Wire, frozen=True):
    match_expressions: tuple[QuotaScopeTerm, ...] = ()


class ResourceQuotaSpec(Wire, frozen=True):
    hard: dict[str, QuantityText] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: QuotaScopeSelector | None = None


class ResourceQuotaStatus(Wire, frozen=True):
    hard: dict[str, QuantityText] = {}
    used: dict[str, QuantityText] = {}


class ResourceQuota(Wire, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class GangPolicy(Wire, frozen=True):
    min_count: Int32 = 0


class PodGroupPolicy(Wire, frozen=True):
    gang: GangPolicy | None = None


class PodGroupConstraints(Wire, frozen=True):
    topology: tuple[Empty, ...] = ()


class PodGroupSpec(Wire, frozen=True):
    """The spec of a PodGroup in any API group and version.

    ``minMember`` is the minimum in the API groups of schedulers. In ``scheduling.k8s.io`` it is a part of the policy,
    and ``disruptionMode`` is ``Pod`` or ``PodGroup`` (v1alpha2), or ``{single: {}}`` or ``{all: {}}`` (v1alpha3 on).
    """

    min_member: Int32 = 0
    scheduling_policy: PodGroupPolicy = PodGroupPolicy()
    scheduling_constraints: PodGroupConstraints | None = None
    disruption_mode: str | dict[str, Empty] | None = None
    parent_composite_pod_group_name: str = ""


class PodGroup(Wire, frozen=True):
    metadata: ObjectMeta
    api_version: str = ""
    spec: PodGroupSpec = PodGroupSpec()


class CompositePodGroup(PodGroup, frozen=True):
    """A group of PodGroups, and of others of its kind, from 1.37 on. Its minimum, a number of groups, is not read."""


class WorkloadGroup(Wire, frozen=True):
    """A group of pods in a Workload; each of its replicas is a group of its own."""

    name: str = ""
    policy: PodGroupPolicy = PodGroupPolicy()


class GangWorkloadSpec(Wire, frozen=True):
    pod_groups: tuple[WorkloadGroup, ...] = ()


class GangWorkload(Wire, frozen=True):
    """A Workload of ``scheduling.k8s.io/v1alpha1`` (Kubernetes 1.35). Later versions, and other groups, have no groups.

    The Workloads of Kueue have the same kind.
    """

    metadata: ObjectMeta
    api_version: str = ""
    spec: GangWorkloadSpec = GangWorkloadSpec()


class LeaderWorkerTemplate(Wire, frozen=True):
    restart_policy: str = ""


class LeaderWorkerSetSpec(Wire, frozen=True):
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Wire, frozen=True):
    metadata: ObjectMeta
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


#: The API group of Karpenter, and its label with the NodePool of a node.
KARPENTER: Final = "karpenter.sh"
NODE_POOL: Final = f"{KARPENTER}/nodepool"
CAPACITY_TYPE: Final = f"{KARPENTER}/capacity-type"  #: "spot", "on-demand" or "reserved"
INITIALIZED: Final = f"{KARPENTER}/initialized"  #: "true" on a Node since Karpenter has found it ready once
DO_NOT_DISRUPT: Final = f"{KARPENTER}/do-not-disrupt"  #: "true" on a Node, NodeClaim or pod; on a pod also a duration


class PoolTaint(Wire, frozen=True):
    key: str = ""


class PoolNodeSpec(Wire, frozen=True):
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[PoolTaint, ...] = ()
    requirements: tuple[Requirement, ...] = ()


class PoolNodeMeta(Wire, frozen=True):
    labels: dict[str, str] = {}


class PoolNodes(Wire, frozen=True):
    metadata: PoolNodeMeta = PoolNodeMeta()
    spec: PoolNodeSpec = PoolNodeSpec()


class DisruptionBudget(Wire, frozen=True):
    nodes: str = "10%"
    reasons: tuple[str, ...] | None = None  #: None: all of them
    schedule: str | None = None
    duration: str | None = None


class NodePoolDisruption(Wire, frozen=True):
    consolidate_after: str | None = None
    budgets: tuple[DisruptionBudget, ...] | None = None


class NodePoolSpec(Wire, frozen=True):
    replicas: int | None = None  #: the number of nodes of a pool with static capacity; None: as many as pods need
    weight: int | None = None  #: pools with a higher weight are tried first for pending pods; None: 0
    limits: dict[str, QuantityText] = {}  #: of what all of its nodes have together; ``nodes`` is their number
    template: PoolNodes = PoolNodes()
    disruption: NodePoolDisruption = NodePoolDisruption()


class NodePool(Wire, frozen=True):
    """A NodePool of Karpenter (karpenter.sh)."""

    metadata: ObjectMeta
    spec: NodePoolSpec = NodePoolSpec()


class MachinePlacement(Wire, frozen=True):
    availability_zone: str = ""


class MachineProviderSpec(Wire, frozen=True):
    instance_type: str = ""
    placement: MachinePlacement = MachinePlacement()


class MachineProvider(Wire, frozen=True):
    value: MachineProviderSpec = MachineProviderSpec()


class TemplateMachineSpec(Wire, frozen=True):
    metadata: PoolNodeMeta = PoolNodeMeta()  #: of its nodes, in OpenShift
    taints: tuple[Taint, ...] = ()
    failure_domain: str = ""  #: in Cluster API
    provider_spec: MachineProvider = MachineProvider()


class MachineSetTemplate(Wire, frozen=True):
    metadata: PoolNodeMeta = PoolNodeMeta()  #: of its Machines
    spec: TemplateMachineSpec = TemplateMachineSpec()


class MachineSetSpec(Wire, frozen=True):
    replicas: int | None = None
    template: MachineSetTemplate = MachineSetTemplate()


class MachineSet(Wire, frozen=True):
    """A MachineSet of OpenShift or Cluster API, or a MachineDeployment. Its annotations tell the capacity of a node."""

    metadata: ObjectMeta
    spec: MachineSetSpec = MachineSetSpec()


class AutoscalerGroup(Wire, frozen=True):
    name: str
    target: Int32 = 0  #: the number of nodes that the cloud keeps
    minimum: Int32 = 0
    maximum: Int32 | None = None  #: None: it is not known
    template: Node | None = None  #: what its next node is like, if the cloud provider says so


class AutoscalerGroups(Wire, frozen=True):
    """Node groups of the status of Cluster Autoscaler or of the cloud provider. Not an object of the API."""

    metadata: ObjectMeta = ObjectMeta(name="cluster-autoscaler-status")
    groups: tuple[AutoscalerGroup, ...] = ()


class PodTemplateObject(Wire, frozen=True):
    """A PodTemplate of the API, which has no controller."""

    metadata: ObjectMeta
    template: PodTemplate = PodTemplate()


class LocalObject(Wire, frozen=True):
    name: str = ""


class ScalableObject(Wire, frozen=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class CapacityBufferSpec(Wire, frozen=True):
    pod_template_ref: LocalObject | None = None
    scalable_ref: ScalableObject | None = None
    provisioning_strategy: str = ""


class CapacityBufferStatus(Wire, frozen=True):
    pod_template_ref: LocalObject | None = None
    replicas: Int32 = 0
    conditions: tuple[Condition, ...] = ()
    provisioning_strategy: str = ""


class CapacityBuffer(Wire, frozen=True):
    """A CapacityBuffer (autoscaling.x-k8s.io): room that Cluster Autoscaler or Karpenter keeps free.

    *template* is no field of the API: it is the pod template that the buffer refers to, if it was read with it.
    """

    metadata: ObjectMeta
    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: CapacityBufferStatus = CapacityBufferStatus()
    template: PodTemplate | None = None


class ScaleTarget(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class VPAUpdatePolicy(Wire, frozen=True):
    update_mode: str = "Auto"


class VPABoost(Wire, frozen=True):
    """How much more CPU a new container requests until it has started."""

    type: str = ""  #: "" means Factor
    factor: Int32 | None = None
    quantity: QuantityText | None = None


class VPAStartupBoost(Wire, frozen=True):
    cpu: VPABoost | None = None


class VPAContainerPolicy(Wire, frozen=True):
    container_name: str = ""
    mode: str = "Auto"
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str = ""
    min_allowed: dict[str, QuantityText] = {}
    max_allowed: dict[str, QuantityText] = {}
    startup_boost: VPAStartupBoost | None = None


class VPAResourcePolicy(Wire, frozen=True):
    container_policies: tuple[VPAContainerPolicy, ...] = ()


class VPASpec(Wire, frozen=True):
    target_ref: ScaleTarget = ScaleTarget()
    update_policy: VPAUpdatePolicy | None = None
    resource_policy: VPAResourcePolicy | None = None
    startup_boost: VPAStartupBoost | None = None


class VPAContainerRecommendation(Wire, frozen=True):
    container_name: str = ""
    target: dict[str, QuantityText] = {}


class VPARecommendation(Wire, frozen=True):
    container_recommendations: tuple[VPAContainerRecommendation, ...] = ()


class VPAStatus(Wire, frozen=True):
    recommendation: VPARecommendation | None = None


class VerticalPodAutoscaler(Wire, frozen=True):
    metadata: ObjectMeta
    spec: VPASpec = VPASpec()
    status: VPAStatus = msgspec.field(default_factory=VPAStatus)
