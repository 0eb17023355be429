"""Properties of pods: who brings them back, and the data that they store on the node."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from predicates.objects import OwnerReference, Pod, PodClass, Volume

MIRROR: Final = "kubernetes.io/config.mirror"
#: Cluster Autoscaler (``utils/pod/pod.go``): the pod is treated like the pod of a DaemonSet.
DAEMONSET_POD: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


#: Kinds that run a pod on each node, in any API group: OpenKruise has a DaemonSet, Datadog an ExtendedDaemonSet.
_OF_NODES: Final = frozenset({"DaemonSet", "ExtendedDaemonSet", "ExtendedDaemonSetReplicaSet"})

#: The API group of each built-in kind of controller. References without a group are taken for built-in kinds.
_BUILT_IN: Final[Mapping[str, str]] = {
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicationController": "",
    "Job": "batch",
}
#: The former API group of some of these kinds.
_FORMER_GROUP: Final = "extensions"

_ORDINAL: Final = re.compile(r"-[0-9]{1,4}")


def belongs_to_node(pod: Pod) -> bool:
    """Return whether *pod* belongs to its node: it is ignored, and ends with the node.

    It is a mirror pod, it belongs to a DaemonSet or to a kind like it, it says so in an annotation, or an operator
    created it for this node, without a scheduler: its owner is a custom resource.
    """
    if pod.annotations and (MIRROR in pod.annotations or pod.annotations.get(DAEMONSET_POD) == "true"):
        return True
    owner = pod.owner
    return owner is not None and (owner.kind in _OF_NODES or (pod.assigned and _is_custom(owner)))


def is_expendable(cls: PodClass, cutoff: int) -> bool:
    """Return whether pods of this class have a priority below *cutoff*, so that they end with their node.

    As in Cluster Autoscaler (``core/utils/expendable.go``), a pod without a priority is not expendable.
    """
    return cls.spec.priority is not None and cls.spec.priority < cutoff


def ends_with_node(pod: Pod, cutoff: int) -> bool:
    """Return whether *pod* belongs to its node, or is expendable by the priority *cutoff*."""
    return belongs_to_node(pod) or is_expendable(pod.cls, cutoff)


def is_built_in(owner: OwnerReference) -> bool:
    """Return whether *owner* is a controller of Kubernetes, not a custom resource that may have the same kind."""
    group = owner.api_version.rpartition("/")[0]
    return owner.kind in _BUILT_IN and group in ("", _BUILT_IN[owner.kind], _FORMER_GROUP)


def _is_custom(owner: OwnerReference) -> bool:
    """Return whether *owner* is a custom resource: their API groups have a dot, which those of Kubernetes need not."""
    return "." in owner.api_version.rpartition("/")[0] and not is_built_in(owner)


def is_job(owner: OwnerReference | None) -> bool:
    """Return whether *owner* is a Kubernetes Job, not a custom resource of the same kind."""
    return owner is not None and owner.kind == "Job" and is_built_in(owner)


def ends_by_itself(cls: PodClass) -> bool:
    """Return whether the kubelet does not restart pods of this class after success."""
    return cls.spec.restart_policy not in ("", "Always")


def runs_to_completion(pod: Pod) -> bool:
    """Return whether *pod* is not restarted and its owner is not built in: an eviction ends its run."""
    return ends_by_itself(pod.cls) and pod.owner is not None and not is_built_in(pod.owner)


def keeps_its_identity(pod: Pod) -> bool:
    """Return whether *pod* of an owner that is not built in has an ordinal name or persistent volumes.

    Such pods are not interchangeable: their owner replaces them one at a time, like a StatefulSet.
    """
    if pod.owner is None or is_built_in(pod.owner):
        return False
    return bool(pod.cls.claims) or _ORDINAL.search(pod.name, max(0, pod.name.rfind("-"))) is not None


def local_volumes(cls: PodClass) -> list[Volume]:
    """Return the volumes of pods of this class whose data is lost when a pod leaves its node."""
    return [volume for volume in cls.spec.volumes if _is_local(volume)]


def needed_volumes(pod: Pod, ignored: Collection[str] = ()) -> list[Volume]:
    """Return the local volumes of *pod* whose loss neither an annotation nor their name allows (*ignored*)."""
    allowed = {*expendable_volumes(pod), *ignored}
    return [volume for volume in local_volumes(pod.cls) if volume.name not in allowed]


def expendable_volumes(pod: Pod) -> list[str]:
    """Return the names of the local volumes whose loss an annotation allows."""
    return pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
