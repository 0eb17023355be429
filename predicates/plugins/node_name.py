"""NodeName: a pod that names its node takes no other (``nodename/node_name.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Refusal, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match the requested node name"


def _reads(pod: PodClass) -> str | None:
    return pod.spec.node_name or None


def _refuse(wanted: str, snapshot: Snapshot, rows: Rows) -> Refusal:
    others = np.ones(len(snapshot.nodes), np.int64)
    if (row := snapshot.nodes.row.get(wanted)) is not None:
        others[row] = 0
    return Refusal(others[rows], lambda _: (REASON,))


PLUGIN: Final = Plugin("NodeName", Scope.NODE, _reads, _refuse)
