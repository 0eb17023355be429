"""TaintToleration: NoSchedule and NoExecute taints must be tolerated (``tainttoleration/taint_toleration.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Refusal, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import first_untolerated

REASON: Final = "node(s) had untolerated taint(s)"


def _reads(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _refuse(tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows) -> Refusal | None:
    """Judges each distinct set of taints once, whatever the number of nodes that carry it."""
    sets = snapshot.nodes.taint_sets
    refused = np.array([first_untolerated(taints, tolerations) is not None for taints in sets], np.int64)
    if not refused.any():
        return None
    return Refusal(refused[snapshot.nodes.taint_set[rows]], lambda _: (REASON,))


PLUGIN: Final = Plugin("TaintToleration", Scope.NODE, _reads, _refuse)
