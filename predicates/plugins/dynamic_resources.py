"""DynamicResources: the devices that the pod claims (``dynamicresources/dynamicresources.go``).

What the scheduler says of claims and device classes that are missing, and of devices given already, is said here
too. Which devices are free it finds out by a search over drivers' inventories and expressions in CEL; that is not
repeated here. A pod that needs such a search is refused everywhere, in words of our own: it must not be called
movable where nobody has proved it. The same goes for a claim that only this pod uses: it is freed with the pod.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from predicates.devices import CLASS_PREFIX, device_resources
from predicates.framework import Codes, Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import Amounts, PodClass, PodResourceClaim, ResourceClaim
from predicates.requests import is_extended
from predicates.selectors import all_terms_valid, node_selector_mask
from predicates.snapshot import Snapshot

UNPROVEN: Final = "cannot tell whether the devices of the pod's resource claims will be free"
UNAVAILABLE: Final = "resourceclaim not available on the node"
CANNOT_FIT: Final = "cannot fit resource"

#: What the scheduler puts before the words of a plugin that fails instead of refusing.
_ERROR: Final = 'running PreFilter plugin "DynamicResources": '

_SENTENCES: Final = ("", UNPROVEN, UNAVAILABLE, CANNOT_FIT)
_UNPROVEN, _UNAVAILABLE, _CANNOT_FIT = 1, 2, 3


class _Asked(NamedTuple):
    namespace: str
    pod: str
    claims: tuple[PodResourceClaim, ...]
    resources: tuple[str, ...]  #: that a DeviceClass may stand behind


def _pre_filter(pod: PodClass) -> _Asked | None:
    resources = _given_by_devices(pod.requests)
    if not (pod.spec.resource_claims or resources):
        return None
    return _Asked(pod.namespace, pod.name, pod.spec.resource_claims, resources)


@lru_cache(maxsize=4096)
def _given_by_devices(requests: Amounts) -> tuple[str, ...]:
    return tuple(name for name, _ in requests if is_extended(name) or name.startswith(CLASS_PREFIX))


def _pre_filter_claims(pod: PodClass) -> _Asked | None:
    return _pre_filter(pod) if pod.spec.resource_claims else None


def _pre_enqueue(asked: _Asked, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Before the pod enters the queue: its claims must be there (PreEnqueue)."""
    if (sentence := _missing(asked, snapshot)) is None:
        return None
    return _everywhere(sentence, snapshot, rows)


def _filter(asked: _Asked, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    backed = device_resources(snapshot).intersection(asked.resources)
    if not (asked.claims or backed) or _missing(asked, snapshot) is not None:
        return None
    claims = _claims(asked, snapshot)
    for claim in claims:
        if (sentence := _refused_claim(claim, snapshot)) is not None:
            return _everywhere(sentence, snapshot, rows)
    codes = _of_claims(claims, snapshot, rows)
    if backed:
        _of_resources(asked, backed, snapshot, rows, codes)
    return Rejections(codes, lambda code: (_SENTENCES[code],)) if codes.any() else None


def _everywhere(sentence: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
    return Rejections(codes, lambda _: (sentence,), prefilter=True)


def _missing(asked: _Asked, snapshot: Snapshot) -> str | None:
    """What the scheduler says of the first claim that the pod cannot have; None where all are there."""
    pod = f'pod "{asked.namespace}/{asked.pod}"'
    for one in asked.claims:
        if one.resource_claim_name is None:
            if one.resource_claim_template_name is not None:
                return f"{pod}: ResourceClaim not created yet"
            return f'{pod}, spec.resourceClaim "{one.name}": none of the supported fields are set'
        key = f"{asked.namespace}/{one.resource_claim_name}"
        claim = snapshot.of("ResourceClaim").get(key)
        if not isinstance(claim, ResourceClaim):
            return f'could not find ResourceClaim "{key}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{one.resource_claim_name}" is being deleted'
    return None


def _claims(asked: _Asked, snapshot: Snapshot) -> list[ResourceClaim]:
    known = snapshot.of("ResourceClaim")
    found = (known[f"{asked.namespace}/{one.resource_claim_name}"] for one in asked.claims)
    return [one for one in found if isinstance(one, ResourceClaim)]


def _refused_claim(claim: ResourceClaim, snapshot: Snapshot) -> str | None:
    """What the scheduler says of a claim that no node can help; None where it goes on to look at nodes."""
    if (allocation := claim.status.allocation) is not None:
        broken = allocation.node_selector is not None and not all_terms_valid(allocation.node_selector)
        return f"{_ERROR}the node selector of the allocation is invalid" if broken else None
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            wanted = [(request.name, request.exactly.device_class_name)]
        elif request.first_available:
            wanted = [(f"{request.name}/{one.name}", one.device_class_name) for one in request.first_available]
        else:
            key = f"{claim.metadata.namespace}/{claim.metadata.name}"
            return f"resource claim {key}, request {request.name}: unknown request type"
        for name, device_class in wanted:
            if not device_class:
                return f"{_ERROR}request {name}: unsupported request type"
            if device_class not in snapshot.of("DeviceClass"):
                return f"request {name}: device class {device_class} does not exist"
    return None


def _of_claims(claims: list[ResourceClaim], snapshot: Snapshot, rows: Rows) -> Codes:
    codes: Codes = np.zeros(len(snapshot.nodes.alive[rows]), np.int64)
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is not None and allocation.node_selector is not None:
            codes[~node_selector_mask(allocation.node_selector, snapshot, rows)] = _UNAVAILABLE
    if not all(map(_stays, claims)):
        codes[:] = _UNPROVEN
    return codes


def _stays(claim: ResourceClaim) -> bool:
    """Whether the claim keeps its devices when one of its pods leaves, and they are ready for use."""
    allocation = claim.status.allocation
    if allocation is None or len(claim.status.reserved_for) <= 1:
        return False
    return not any(device.binding_conditions for device in allocation.devices.results)


def _of_resources(asked: _Asked, backed: frozenset[str], snapshot: Snapshot, rows: Rows, codes: Codes) -> None:
    """Nodes where a device plugin gives no such resource need devices for it, or cannot have the pod."""
    nodes = snapshot.nodes
    for position, row in enumerate(np.arange(len(nodes))[rows].tolist()):
        node = nodes.nodes[row]
        given = node.status.allocatable if node is not None else {}
        for name in asked.resources:
            column = nodes.resources.get(name)
            if name not in backed:
                if name not in given:
                    codes[position] = _CANNOT_FIT
            elif (column is None or nodes.allocatable[row, column] == 0) and codes[position] != _CANNOT_FIT:
                codes[position] = _UNPROVEN


EARLY: Final = Plugin("DynamicResources", Scope.NODE, _pre_filter_claims, _pre_enqueue)
PLUGIN: Final = Plugin("DynamicResources", Scope.NODE, _pre_filter, _filter)
