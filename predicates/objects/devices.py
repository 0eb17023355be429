"""Objects of dynamic resource allocation (DRA), as in the API."""

from predicates.objects.meta import ObjectMeta, Wire
from predicates.objects.selectors import NodeSelector


class DeviceSubRequest(Wire, frozen=True):
    name: str = ""
    device_class_name: str = ""


class DeviceRequest(Wire, frozen=True):
    name: str = ""
    exactly: DeviceSubRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceClaim(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceAllocation(Wire, frozen=True):
    """A device allocated to a claim. A device with binding conditions is not usable until its driver sets them."""

    binding_conditions: tuple[str, ...] = ()


class DeviceAllocations(Wire, frozen=True):
    results: tuple[DeviceAllocation, ...] = ()


class AllocationResult(Wire, frozen=True):
    devices: DeviceAllocations = DeviceAllocations()
    node_selector: NodeSelector | None = None


class ConsumerReference(Wire, frozen=True):
    uid: str = ""


class ResourceClaimStatus(Wire, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ConsumerReference, ...] = ()


class ResourceClaim(Wire, frozen=True):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(Wire, frozen=True):
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()
