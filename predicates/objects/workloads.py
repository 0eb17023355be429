"""Controllers with a pod template, and the objects that change the pods that are created from it, as in the API."""

import msgspec

from predicates.objects.meta import Int32, ObjectMeta, QuantityText, Wire
from predicates.objects.pods import PodSpec


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


class ResourceQuotaSpec(Wire, frozen=True):
    hard: dict[str, QuantityText] = {}


class ResourceQuotaStatus(Wire, frozen=True):
    hard: dict[str, QuantityText] = {}
    used: dict[str, QuantityText] = {}


class ResourceQuota(Wire, frozen=True):
    metadata: ObjectMeta
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


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
