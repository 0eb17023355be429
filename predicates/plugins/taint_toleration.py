"""TaintToleration: NoSchedule and NoExecute taints must be tolerated (``tainttoleration/taint_toleration.go``)."""

from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass, Toleration
from predicates.snapshot import Snapshot
from predicates.tolerations import first_untolerated

REASON: Final = "node(s) had untolerated taint(s)"


def _pre_filter(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _filter(tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Evaluate each distinct set of taints once, regardless of the number of nodes that have it."""
    sets = snapshot.nodes.taint_sets
    untolerated = np.array([first_untolerated(taints, tolerations) is not None for taints in sets], np.int64)
    if not untolerated.any():
        return None
    return Rejections(untolerated[snapshot.nodes.taint_set[rows]], lambda _: (REASON,))


PLUGIN: Final = Plugin("TaintToleration", Scope.NODE, _pre_filter, _filter)
