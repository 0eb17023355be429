"""NodeName: a pod that names its node takes no other (``nodename/node_name.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match the requested node name"


def _pre_filter(pod: PodClass) -> str | None:
    return pod.spec.node_name or None


def _filter(wanted: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    others = np.ones(len(snapshot.nodes), np.int64)
    if (row := snapshot.nodes.row.get(wanted)) is not None:
        others[row] = 0
    return Rejections(others[rows], lambda _: (REASON,))


PLUGIN: Final = Plugin("NodeName", Scope.NODE, _pre_filter, _filter)
