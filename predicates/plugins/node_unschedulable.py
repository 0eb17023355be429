"""NodeUnschedulable: a cordoned node rejects pods that do not tolerate it.

Source: ``nodeunschedulable/node_unschedulable.go``.
"""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass, Taint, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import tolerated

REASON: Final = "node(s) were unschedulable"

_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _pre_filter(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _filter(tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    cordoned = snapshot.nodes.unschedulable[rows]
    if not cordoned.any() or tolerated(_UNSCHEDULABLE, tolerations):
        return None
    return Rejections(cordoned.astype(np.int64), lambda _: (REASON,))


PLUGIN: Final = Plugin("NodeUnschedulable", Scope.NODE, _pre_filter, _filter)
