"""SchedulingGates: a pod with scheduling gates is not scheduled (``schedulinggates/scheduling_gates.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot


def _pre_filter(pod: PodClass) -> tuple[str, ...] | None:
    gates = pod.spec.scheduling_gates
    return tuple(gate.name for gate in gates) if gates else None


def _filter(gates: tuple[str, ...], snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
    return Rejections(codes, lambda _: (f"waiting for scheduling gates: [{' '.join(gates)}]",), prefilter=True)


PLUGIN: Final = Plugin("SchedulingGates", Scope.NODE, _pre_filter, _filter)
