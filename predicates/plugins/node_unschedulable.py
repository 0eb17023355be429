"""NodeUnschedulable: a cordoned node takes only pods that tolerate it (``nodeunschedulable/node_unschedulable.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Refusal, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass, Taint, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import tolerated

REASON: Final = "node(s) were unschedulable"

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _reads(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _refuse(tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows) -> Refusal | None:
    cordoned = snapshot.nodes.unschedulable[rows]
    if not cordoned.any() or tolerated(_CORDON, tolerations):
        return None
    return Refusal(cordoned.astype(np.int64), lambda _: (REASON,))


PLUGIN: Final = Plugin("NodeUnschedulable", Scope.NODE, _reads, _refuse)
