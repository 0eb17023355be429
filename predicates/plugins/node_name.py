"""NodeName: a pod with ``spec.nodeName`` fits only that node (``nodename/node_name.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match the requested node name"


def _pre_filter(pod: PodClass) -> str | None:
    return pod.spec.node_name or None


def _filter(node_name: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes), np.int64)
    if (row := snapshot.nodes.row.get(node_name)) is not None:
        codes[row] = 0
    return Rejections(codes[rows], lambda _: (REASON,))


PLUGIN: Final = Plugin("NodeName", Scope.NODE, _pre_filter, _filter)
