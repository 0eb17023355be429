"""NodeResourcesFit: what the pod requests must be free; every shortage is named (``noderesources/fit.go``).

The scheduler names extended resources in random order, this plugin by name.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from predicates.devices import device_resources
from predicates.framework import Plugin, Reasons, Rejections, RejectsRow, Scope
from predicates.nodes import PODS, Rows
from predicates.objects import Amounts, PodClass
from predicates.snapshot import Snapshot

TOO_MANY: Final = "Too many pods"

#: The scheduler names these first, in this order; extended resources follow.
_ORDER: Final = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}

#: A code has one bit a shortage; past this many resources the rest share the last.
_BITS: Final = 62


def _pre_filter(pod: PodClass) -> Amounts:
    return _in_order(pod.requests)


@lru_cache(maxsize=16384)
def _in_order(requests: Amounts) -> Amounts:
    """What counts, as the scheduler names it; negative amounts ask for nothing."""
    asked = [one for one in requests if one[1] > 0]
    return tuple(sorted(asked, key=lambda one: (_ORDER.get(one[0], len(_ORDER)), one[0])))


def _filter(asked: Amounts, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """A code has one bit a shortage: the lowest for the number of pods, then the resources in order."""
    table = snapshot.nodes
    codes = (table.free[rows, PODS] < 1).astype(np.int64)
    for bit, (resource, amount) in enumerate(asked, 1):
        column = table.resources.get(resource)
        short = table.free[rows, column] < amount if column is not None else np.ones(len(codes), np.bool_)
        if resource not in _ORDER and resource in device_resources(snapshot):
            # Where no device plugin gives the resource DynamicResources answers for it.
            short &= table.allocatable[rows, column] > 0 if column is not None else False
        codes[short] |= 1 << min(bit, _BITS)
    return Rejections(codes, lambda code: _reasons(code, asked)) if codes.any() else None


def _rejects_row(asked: Amounts, snapshot: Snapshot) -> RejectsRow:
    table = snapshot.nodes
    columns = table.resources

    def refuses(row: int) -> bool:
        free = table.free_rows[row].tolist()
        if free[PODS] < 1:
            return True
        for resource, amount in asked:
            column = columns.get(resource)
            if (column is None or free[column] < amount) and (
                resource in _ORDER
                or resource not in device_resources(snapshot)
                or (column is not None and bool(table.allocatable[row, column] > 0))
            ):
                return True
        return False

    return refuses


def _reasons(code: int, asked: Amounts) -> Reasons:
    sentences = (TOO_MANY, *(f"Insufficient {resource}" for resource, _ in asked))
    return tuple(sentence for bit, sentence in enumerate(sentences) if code >> min(bit, _BITS) & 1)


PLUGIN: Final = Plugin("NodeResourcesFit", Scope.PODS, _pre_filter, _filter, _rejects_row)
