"""What a change of an object may make out of date."""

from msgspec.structs import replace

from predicates.objects import CSINode, Object, Pod, VolumeAttachment


def alike(one: Object, other: Object) -> bool:
    """Whether they are the same but for the resource version, which heartbeats change."""
    if one == other:
        return True
    if isinstance(one, Pod) or isinstance(other, Pod) or type(one) is not type(other):
        return False
    meta = replace(other.metadata, resource_version=one.metadata.resource_version)
    return meta == one.metadata and one == replace(other, metadata=meta)


def node_of(one: Object) -> str | None:
    """The one node that the object says something of, None where it concerns more than that."""
    if isinstance(one, CSINode):
        return one.metadata.name
    return one.spec.node_name if isinstance(one, VolumeAttachment) else None
