"""NodePorts: the host ports of the pod must be free on the node (``nodeports/node_ports.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Refusal, Scope
from predicates.indexes.ports import PortsIndex
from predicates.nodes import Rows
from predicates.objects import HostPort, PodClass
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


def _reads(pod: PodClass) -> tuple[HostPort, ...] | None:
    return pod.ports or None


def _refuse(ports: tuple[HostPort, ...], snapshot: Snapshot, rows: Rows) -> Refusal | None:
    taken = snapshot.index(PortsIndex).conflicts(ports, rows)
    if not taken.any():
        return None
    return Refusal(taken.astype(np.int64), lambda _: (REASON,))


PLUGIN: Final = Plugin("NodePorts", Scope.PODS, _reads, _refuse)
