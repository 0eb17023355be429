"""The effect of a changed object on its node and on the results of filters."""

from typing import Final

from msgspec.structs import replace

from predicates.objects import CSINode, Object, Pod, VolumeAttachment


def same_content(old: Object, new: Object) -> bool:
    """Return whether two objects are equal except for the resource version, which every heartbeat changes."""
    if old == new:
        return True
    if isinstance(old, Pod) or isinstance(new, Pod) or type(old) is not type(new):
        return False
    meta = replace(new.metadata, resource_version=old.metadata.resource_version)
    return meta == old.metadata and old == replace(new, metadata=meta)


def affected_node(changed: Object) -> str | None:
    """Return the name of the only node that *changed* affects, or None if it can affect others."""
    if isinstance(changed, CSINode):
        return changed.metadata.name
    return changed.spec.node_name if isinstance(changed, VolumeAttachment) else None


#: Annotations with which a pod says that it belongs to its node, or to a group of pods. Such pods are counted apart.
_COUNTED_APART: Final = (
    "cluster-autoscaler.kubernetes.io/daemonset-pod",
    "gang.scheduling.koordinator.sh/",
    "kueue.x-k8s.io/pod-group-",
    "leaderworkerset.sigs.k8s.io/size",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
)


def counted_apart(pod: Pod) -> tuple[tuple[str, str], ...]:
    """Return the annotations of *pod* because of which it is counted apart from equal pods."""
    if not pod.annotations:
        return ()
    return tuple(sorted(item for item in pod.annotations.items() if item[0].startswith(_COUNTED_APART)))


def same_placement(old: Pod, new: Pod) -> bool:
    """Return whether neither a filter nor a count of the pods of a controller or group can distinguish two versions."""
    if old.annotations != new.annotations and counted_apart(old) != counted_apart(new):
        return False
    return (old.node_name, old.cls, old.added_labels, old.load, old.older_loads, old.uid, old.owner) == (
        new.node_name,
        new.cls,
        new.added_labels,
        new.load,
        new.older_loads,
        new.uid,
        new.owner,
    )
