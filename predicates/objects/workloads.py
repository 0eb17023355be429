"""Controllers with a pod template, and the objects that change the pods that are created from it, as in the API."""

import msgspec

from predicates.objects.meta import Int32, ObjectMeta, QuantityText, Wire
from predicates.objects.pods import Empty, PodSpec


class PodTemplate(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class TemplateSpec(Wire, frozen=True):
    template: PodTemplate = PodTemplate()


class Workload(Wire, frozen=True):
    """A controller that creates all of its pods from one template."""

    metadata: ObjectMeta
    spec: TemplateSpec = TemplateSpec()


class ReplicaSet(Workload, frozen=True):
    pass


class ReplicationController(Workload, frozen=True):
    pass


class Job(Workload, frozen=True):
    pass


class StatefulSetPartition(Wire, frozen=True):
    partition: Int32 = 0


class StatefulSetStrategy(Wire, frozen=True):
    type: str = "RollingUpdate"
    rolling_update: StatefulSetPartition | None = None


class StatefulSetSpec(TemplateSpec, frozen=True):
    update_strategy: StatefulSetStrategy = StatefulSetStrategy()


class StatefulSetStatus(Wire, frozen=True):
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Wire, frozen=True):
    metadata: ObjectMeta
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


class LimitRangeItem(Wire, frozen=True):
    type: str = ""
    default: dict[str, QuantityText] = {}
    default_request: dict[str, QuantityText] = {}


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


class PodGroup(Wire, frozen=True):
    metadata: ObjectMeta
    api_version: str = ""
    spec: PodGroupSpec = PodGroupSpec()


class LeaderWorkerTemplate(Wire, frozen=True):
    restart_policy: str = ""


class LeaderWorkerSetSpec(Wire, frozen=True):
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Wire, frozen=True):
    metadata: ObjectMeta
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class ScaleTarget(Wire, frozen=True):
    kind: str = ""
    name: str = ""


class VPAUpdatePolicy(Wire, frozen=True):
    update_mode: str = "Auto"


class VPAContainerPolicy(Wire, frozen=True):
    container_name: str = ""
    mode: str = "Auto"
    controlled_resources: tuple[str, ...] | None = None


class VPAResourcePolicy(Wire, frozen=True):
    container_policies: tuple[VPAContainerPolicy, ...] = ()


class VPASpec(Wire, frozen=True):
    target_ref: ScaleTarget = ScaleTarget()
    update_policy: VPAUpdatePolicy | None = None
    resource_policy: VPAResourcePolicy | None = None


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
