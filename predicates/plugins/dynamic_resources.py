"""DynamicResources: the devices of the pod's resource claims (``dynamicresources/dynamicresources.go``).

Missing claims and device classes, and claims that are already allocated, are evaluated as in the scheduler. The
allocation of free devices (a search over the drivers' ResourceSlices with CEL expressions) is not implemented. A pod
that needs it is rejected on all nodes, with a reason of our own, because nothing proves that it can be moved. The
same applies to a claim that only this pod uses: it is deallocated together with the pod.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from predicates.devices import CLASS_PREFIX, device_resources
from predicates.framework import Codes, Plugin, Rejections, Scope
from predicates.node_selectors import all_terms_valid, node_selector_mask
from predicates.nodes import Rows
from predicates.objects import Amounts, PodClass, PodResourceClaim, ResourceClaim
from predicates.requests import is_extended
from predicates.snapshot import Snapshot

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


def _pre_filter(pod: PodClass) -> _DeviceDemand | None:
    resources = _extended_resources(pod.requests)
    if not (pod.spec.resource_claims or resources):
        return None
    return _DeviceDemand(pod.namespace, pod.name, pod.spec.resource_claims, resources)


@lru_cache(maxsize=4096)
def _extended_resources(requests: Amounts) -> tuple[str, ...]:
    return tuple(name for name, _ in requests if is_extended(name) or name.startswith(CLASS_PREFIX))


def _pre_filter_claims(pod: PodClass) -> _DeviceDemand | None:
    return _pre_filter(pod) if pod.spec.resource_claims else None


def _pre_enqueue(state: _DeviceDemand, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Check that the claims exist, before the pod enters the scheduling queue (PreEnqueue)."""
    if (reason := _missing_claim(state, snapshot)) is None:
        return None
    return _reject_all(reason, snapshot, rows)


def _filter(state: _DeviceDemand, snapshot: Snapshot, rows: Rows) -> Rejections | None:
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
PLUGIN: Final = Plugin("DynamicResources", Scope.NODE, _pre_filter, _filter)
