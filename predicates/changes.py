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


#: An annotation with which a pod says that it belongs to its node. Such pods are counted apart.
_DAEMONSET_POD: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"


def same_placement(old: Pod, new: Pod) -> bool:
    """Return whether neither a filter nor a count of the controller's pods can distinguish two versions of a pod."""
    if old.annotations.get(_DAEMONSET_POD) != new.annotations.get(_DAEMONSET_POD):
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
