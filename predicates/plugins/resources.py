"""The filter plugins of resources: NodeResourcesFit, and DynamicResources for devices. One module for each kind
of plugin: plugins do not import each other.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from predicates.framework import Codes, Plugin, Reasons, Rejections, RejectsRow, Scope
from predicates.node_selectors import all_terms_valid, node_selector_mask
from predicates.nodes import PODS, Rows
from predicates.objects import Amounts, DeviceClass, PodClass, PodResourceClaim, ResourceClaim
from predicates.placed import Needs
from predicates.requests import is_extended
from predicates.scheduler import Profile
from predicates.snapshot import Snapshot
from predicates.versions import VersionRule

# Extended resources backed by DRA (KEP-5004): a DeviceClass can provide its devices as an extended resource.

#: Every DeviceClass is also available as the resource with this prefix and its own name.
CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


def device_resources(snapshot: Snapshot) -> frozenset[str]:
    """Return the resources that a DeviceClass provides (``extendedresourcecache``). Costs O(device classes)."""
    if not snapshot.scheduler.version.has(VersionRule.DEVICES_AS_RESOURCES):
        return frozenset()
    names = []
    for device_class in snapshot.of("DeviceClass").values():
        assert isinstance(device_class, DeviceClass)
        names.append(CLASS_PREFIX + device_class.metadata.name)
        if device_class.spec.extended_resource_name is not None:
            names.append(device_class.spec.extended_resource_name)
    return frozenset(names)


# NodeResourcesFit: the node must have enough free resources for the pod's requests (``noderesources/fit.go``).
#
# All insufficient resources are reported. The scheduler lists extended resources in random order; here they are sorted
# by name.

TOO_MANY_PODS: Final = "Too many pods"

#: The order in which the scheduler reports native resources; extended resources follow.
_ORDER: Final = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}

#: A code has one bit per insufficient resource; resources beyond this number share the last bit.
_BITS: Final = 62


def _pre_filter(pod: PodClass) -> Amounts:
    return _in_report_order(pod.requests)


@lru_cache(maxsize=16384)
def _in_report_order(requests: Amounts) -> Amounts:
    """Return the positive *requests* in the order in which the scheduler reports them."""
    positive = [request for request in requests if request[1] > 0]
    return tuple(sorted(positive, key=lambda request: (_ORDER.get(request[0], len(_ORDER)), request[0])))


def _filter(requests: Amounts, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Set one bit per insufficient resource: the lowest for the number of pods, then *requests* in order."""
    table = snapshot.nodes
    codes = (table.free[rows, PODS] < 1).astype(np.int64)
    for bit, (resource, amount) in enumerate(requests, 1):
        column = table.resources.get(resource)
        insufficient = table.free[rows, column] < amount if column is not None else np.ones(len(codes), np.bool_)
        if resource not in _ORDER and resource in device_resources(snapshot):
            # DynamicResources decides about nodes on which no device plugin provides the resource.
            insufficient &= table.allocatable[rows, column] > 0 if column is not None else False
        codes[insufficient] |= 1 << min(bit, _BITS)
    return Rejections(codes, lambda code: _reasons(code, requests)) if codes.any() else None


def _row_filter(requests: Amounts, snapshot: Snapshot) -> RejectsRow:
    table = snapshot.nodes
    columns = table.resources

    def rejects(row: int) -> bool:
        free = table.free_rows[row].tolist()
        if free[PODS] < 1:
            return True
        for resource, amount in requests:
            column = columns.get(resource)
            if (column is None or free[column] < amount) and (
                resource in _ORDER
                or resource not in device_resources(snapshot)
                or (column is not None and bool(table.allocatable[row, column] > 0))
            ):
                return True
        return False

    return rejects


def _needs(requests: Amounts, snapshot: Snapshot) -> Needs | None:
    """Return the amounts of the requested resources; None if there are others than those that every node has."""
    columns = snapshot.nodes.resources
    if not all(resource in _ORDER for resource, _ in requests):
        return None
    return ((PODS, 1), *((columns[resource], amount) for resource, amount in requests))


def _reasons(code: int, requests: Amounts) -> Reasons:
    reasons = (TOO_MANY_PODS, *(f"Insufficient {resource}" for resource, _ in requests))
    return tuple(reason for bit, reason in enumerate(reasons) if code >> min(bit, _BITS) & 1)


NODE_RESOURCES_FIT: Final = Plugin("NodeResourcesFit", Scope.PODS, _pre_filter, _filter, _row_filter, needs=_needs)


def plugin(profile: Profile) -> Plugin:
    """Return the plugin without the resources that *profile* ignores."""
    if not profile.ignored_resources and not profile.ignored_groups:
        return NODE_RESOURCES_FIT

    def checked(pod: PodClass) -> Amounts:
        return _in_report_order(profile.checked(pod.requests))

    return Plugin("NodeResourcesFit", Scope.PODS, checked, _filter, _row_filter, needs=_needs)


# DynamicResources: the devices of the pod's resource claims (``dynamicresources/dynamicresources.go``).
#
# Missing claims and device classes, and claims that are already allocated, are evaluated as in the scheduler. The
# allocation of free devices (a search over the drivers' ResourceSlices with CEL expressions) is not implemented. A pod
# that needs it is rejected on all nodes, with a reason of our own, because nothing proves that it can be moved. The
# same applies to a claim that only this pod uses: it is deallocated together with the pod.

UNPROVEN: Final = "cannot tell whether the devices of the pod's resource claims will be free"
UNAVAILABLE: Final = "resourceclaim not available on the node"
CANNOT_FIT: Final = "cannot fit resource"

#: The prefix of the scheduler's message if the plugin fails with an error instead of rejecting the pod.
_ERROR: Final = 'running PreFilter plugin "DynamicResources": '

_REASONS: Final = ("", UNPROVEN, UNAVAILABLE, CANNOT_FIT)
_UNPROVEN, _UNAVAILABLE, _CANNOT_FIT = 1, 2, 3


class _DeviceDemand(NamedTuple):
    """The claims and extended resources of a pod class."""

    namespace: str
    pod: str
    claims: tuple[PodResourceClaim, ...]
    resources: tuple[str, ...]  #: extended resources, which a DeviceClass can provide


def _dynamic_resources_pre_filter(pod: PodClass) -> _DeviceDemand | None:
    resources = _extended_resources(pod.requests)
    if not (pod.spec.resource_claims or resources):
        return None
    return _DeviceDemand(pod.namespace, pod.name, pod.spec.resource_claims, resources)


@lru_cache(maxsize=4096)
def _extended_resources(requests: Amounts) -> tuple[str, ...]:
    return tuple(name for name, _ in requests if is_extended(name) or name.startswith(CLASS_PREFIX))


def _pre_filter_claims(pod: PodClass) -> _DeviceDemand | None:
    return _dynamic_resources_pre_filter(pod) if pod.spec.resource_claims else None


def _pre_enqueue(state: _DeviceDemand, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Check that the claims exist, before the pod enters the scheduling queue (PreEnqueue)."""
    if (reason := _missing_claim(state, snapshot)) is None:
        return None
    return _reject_all(reason, snapshot, rows)


def _dynamic_resources_filter(state: _DeviceDemand, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    provided = device_resources(snapshot).intersection(state.resources)
    if not (state.claims or provided) or _missing_claim(state, snapshot) is not None:
        return None
    claims = _claims(state, snapshot)
    for claim in claims:
        if (reason := _claim_rejection(claim, snapshot)) is not None:
            return _reject_all(reason, snapshot, rows)
    codes = _claim_codes(claims, snapshot, rows)
    if provided:
        _add_resource_codes(state, provided, snapshot, rows, codes)
    return Rejections(codes, lambda code: (_REASONS[code],)) if codes.any() else None


def _reject_all(reason: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
    return Rejections(codes, lambda _: (reason,), prefilter=True)


def _missing_claim(state: _DeviceDemand, snapshot: Snapshot) -> str | None:
    """Return the reason for the first claim that does not exist or is being deleted, or None."""
    pod = f'pod "{state.namespace}/{state.pod}"'
    for reference in state.claims:
        if reference.resource_claim_name is None:
            if reference.resource_claim_template_name is not None:
                return f"{pod}: ResourceClaim not created yet"
            return f'{pod}, spec.resourceClaim "{reference.name}": none of the supported fields are set'
        key = f"{state.namespace}/{reference.resource_claim_name}"
        claim = snapshot.of("ResourceClaim").get(key)
        if not isinstance(claim, ResourceClaim):
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{reference.resource_claim_name}" is being deleted'
    return None


def _claims(state: _DeviceDemand, snapshot: Snapshot) -> list[ResourceClaim]:
    objects = snapshot.of("ResourceClaim")
    claims = (objects[f"{state.namespace}/{reference.resource_claim_name}"] for reference in state.claims)
    return [claim for claim in claims if isinstance(claim, ResourceClaim)]


def _claim_rejection(claim: ResourceClaim, snapshot: Snapshot) -> str | None:
    """Return the reason if the claim cannot be satisfied on any node, or None."""
    if (allocation := claim.status.allocation) is not None:
        is_invalid = allocation.node_selector is not None and not all_terms_valid(allocation.node_selector)
        return f"{_ERROR}the node selector of the allocation is invalid" if is_invalid else None
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            requests = [(request.name, request.exactly.device_class_name)]
        elif request.first_available:
            alternatives = request.first_available
            requests = [(f"{request.name}/{sub.name}", sub.device_class_name) for sub in alternatives]
        else:
            key = f"{claim.metadata.namespace}/{claim.metadata.name}"
            return f"resource claim {key}, request {request.name}: unknown request type"
        for name, device_class in requests:
            if not device_class:
                return f"{_ERROR}request {name}: unsupported request type"
            if device_class not in snapshot.of("DeviceClass"):
                return f"request {name}: device class {device_class} does not exist"
    return None


def _claim_codes(claims: list[ResourceClaim], snapshot: Snapshot, rows: Rows) -> Codes:
    codes: Codes = np.zeros(len(snapshot.nodes.alive[rows]), np.int64)
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is not None and allocation.node_selector is not None:
            codes[~node_selector_mask(allocation.node_selector, snapshot, rows)] = _UNAVAILABLE
    if not all(map(_stays_allocated, claims)):
        codes[:] = _UNPROVEN
    return codes


def _stays_allocated(claim: ResourceClaim) -> bool:
    """Return whether the claim stays allocated when one of its pods is deleted, and its devices are ready for use."""
    allocation = claim.status.allocation
    if allocation is None or len(claim.status.reserved_for) <= 1:
        return False
    return not any(device.binding_conditions for device in allocation.devices.results)


def _add_resource_codes(
    state: _DeviceDemand, provided: frozenset[str], snapshot: Snapshot, rows: Rows, codes: Codes
) -> None:
    """Reject nodes on which no device plugin provides a resource: they would have to allocate devices for it."""
    nodes = snapshot.nodes
    for position, row in enumerate(np.arange(len(nodes))[rows].tolist()):
        node = nodes.nodes[row]
        allocatable = node.status.allocatable if node is not None else {}
        for name in state.resources:
            column = nodes.resources.get(name)
            if name not in provided:
                if name not in allocatable:
                    codes[position] = _CANNOT_FIT
            elif (column is None or nodes.allocatable[row, column] == 0) and codes[position] != _CANNOT_FIT:
                codes[position] = _UNPROVEN


PRE_ENQUEUE: Final = Plugin("DynamicResources", Scope.NODE, _pre_filter_claims, _pre_enqueue)
DYNAMIC_RESOURCES: Final = Plugin(
    "DynamicResources", Scope.NODE, _dynamic_resources_pre_filter, _dynamic_resources_filter
)
