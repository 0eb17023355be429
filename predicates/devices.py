"""Extended resources backed by DRA (KEP-5004): a DeviceClass can provide its devices as an extended resource."""

from typing import Final

from predicates.objects import DeviceClass
from predicates.snapshot import Snapshot
from predicates.versions import Rule

#: Every DeviceClass is also available as the resource with this prefix and its own name.
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


def device_resources(snapshot: Snapshot) -> frozenset[str]:
    """Return the resources that a DeviceClass provides (``extendedresourcecache``). Costs O(device classes)."""
    if not snapshot.scheduler.version.has(Rule.DEVICES_AS_RESOURCES):
        return frozenset()
    names = []
    for device_class in snapshot.of("DeviceClass").values():
        assert isinstance(device_class, DeviceClass)
        names.append(CLASS_PREFIX + device_class.metadata.name)
        if device_class.spec.extended_resource_name is not None:
            names.append(device_class.spec.extended_resource_name)
    return frozenset(names)
