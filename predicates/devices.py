"""Devices that stand behind extended resources (KEP-5004): a DeviceClass can lend its devices a resource's name."""

from typing import Final

from predicates.objects import DeviceClass
from predicates.snapshot import Snapshot

#: Every class also goes by this prefix and its own name.
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


def device_resources(snapshot: Snapshot) -> frozenset[str]:
    """The names of resources that some DeviceClass answers for (``extendedresourcecache``). Costs O(classes)."""
    names = []
    for one in snapshot.of("DeviceClass").values():
        assert isinstance(one, DeviceClass)
        names.append(CLASS_PREFIX + one.metadata.name)
        if one.spec.extended_resource_name is not None:
            names.append(one.spec.extended_resource_name)
    return frozenset(names)
