"""NodeResourcesFit: the node must have enough free resources for the pod's requests (``noderesources/fit.go``).

All insufficient resources are reported. The scheduler lists extended resources in random order; here they are
sorted by name.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from predicates.devices import device_resources
from predicates.framework import Plugin, Reasons, Rejections, RejectsRow, Scope
from predicates.nodes import PODS, Rows
from predicates.objects import Amounts, PodClass
from predicates.scheduler import Profile
from predicates.snapshot import Snapshot

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


def _reasons(code: int, requests: Amounts) -> Reasons:
    reasons = (TOO_MANY_PODS, *(f"Insufficient {resource}" for resource, _ in requests))
    return tuple(reason for bit, reason in enumerate(reasons) if code >> min(bit, _BITS) & 1)


PLUGIN: Final = Plugin("NodeResourcesFit", Scope.PODS, _pre_filter, _filter, _row_filter)


def plugin(profile: Profile) -> Plugin:
    """Return the plugin without the resources that *profile* ignores."""
    if not profile.ignored_resources and not profile.ignored_groups:
        return PLUGIN

    def checked(pod: PodClass) -> Amounts:
        return _in_report_order(profile.checked(pod.requests))

    return Plugin("NodeResourcesFit", Scope.PODS, checked, _filter, _row_filter)
