"""NodeResourcesFit: what the pod requests must be free; every shortage is named (``noderesources/fit.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Reasons, Refusal, Scope
from predicates.nodes import PODS, Rows
from predicates.objects import Amounts, PodClass
from predicates.snapshot import Snapshot

TOO_MANY: Final = "Too many pods"

#: The scheduler names these first, in this order; extended resources follow.
_ORDER: Final = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


def _reads(pod: PodClass) -> Amounts:
    return pod.requests


def _refuse(requests: Amounts, snapshot: Snapshot, rows: Rows) -> Refusal | None:
    """A code has one bit a shortage: the lowest for the number of pods, then the resources in order."""
    table = snapshot.nodes
    free = table.allocatable[rows] - table.requested[rows]
    codes = (free[:, PODS] < 1).astype(np.int64)
    asked = sorted(requests, key=lambda one: (_ORDER.get(one[0], len(_ORDER)), one[0]))
    for bit, (resource, amount) in enumerate(asked, 1):
        column = table.resources.get(resource)
        short = free[:, column] < amount if column is not None else np.ones(len(codes), np.bool_)
        codes |= short.astype(np.int64) << bit
    if not codes.any():
        return None
    sentences = (TOO_MANY, *(f"Insufficient {resource}" for resource, _ in asked))

    def reasons(code: int) -> Reasons:
        return tuple(sentence for bit, sentence in enumerate(sentences) if code >> bit & 1)

    return Refusal(codes, reasons)


PLUGIN: Final = Plugin("NodeResourcesFit", Scope.PODS, _reads, _refuse)
