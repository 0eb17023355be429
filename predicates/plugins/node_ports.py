"""NodePorts: the pod's host ports must be free on the node (``nodeports/node_ports.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.indexes.ports import PortsIndex
from predicates.nodes import Rows
from predicates.objects import HostPort, PodClass
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


def _pre_filter(pod: PodClass) -> tuple[HostPort, ...] | None:
    return pod.ports or None


def _filter(ports: tuple[HostPort, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    conflicts = snapshot.index(PortsIndex).conflicts(ports, rows)
    if not conflicts.any():
        return None
    return Rejections(conflicts.astype(np.int64), lambda _: (REASON,))


PLUGIN: Final = Plugin("NodePorts", Scope.PODS, _pre_filter, _filter)
