"""Properties of pods: the kind of their owner, and the data that they store on the node."""

from typing import Final

from predicates.objects import OwnerReference, Pod, Volume

MIRROR: Final = "kubernetes.io/config.mirror"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


def belongs_to_node(pod: Pod) -> bool:
    """Return whether *pod* is a mirror pod or belongs to a DaemonSet. Such pods are ignored."""
    return MIRROR in pod.annotations or (pod.owner is not None and pod.owner.kind == "DaemonSet")


def is_job(owner: OwnerReference | None) -> bool:
    """Return whether *owner* is a Kubernetes Job, not a custom resource of the same kind."""
    return owner is not None and owner.kind == "Job" and owner.api_version.partition("/")[0] in ("batch", "")


def local_volumes(pod: Pod) -> list[Volume]:
    """Return the volumes of *pod* whose data is lost when the pod leaves its node."""
    return [volume for volume in pod.cls.spec.volumes if _is_local(volume)]


def expendable_volumes(pod: Pod) -> list[str]:
    """Return the names of the local volumes whose loss an annotation allows."""
    return pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"
