"""The score plugins of the default profile with their weights (``apis/config/v1/default_plugins.go``).

Not implemented: DynamicResources, which scores alternative devices of pods with resource claims, and image volumes in
ImageLocality. VolumeBinding does not score by default (``StorageCapacityScoring`` is off in 1.36).
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from predicates.nodes import Numbers
from predicates.scores import (
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_resources_balanced_allocation,
    node_resources_fit,
    pod_topology_spread,
    taint_toleration,
)
from predicates.scores.frame import Scorer, ScoringRequest

DEFAULT: Final[tuple[Scorer, ...]] = (
    Scorer("TaintToleration", 3, taint_toleration.score),
    Scorer("NodeAffinity", 2, node_affinity.score),
    Scorer("NodeResourcesFit", 1, node_resources_fit.score),
    Scorer("PodTopologySpread", 2, pod_topology_spread.score),
    Scorer("InterPodAffinity", 2, inter_pod_affinity.score),
    Scorer("NodeResourcesBalancedAllocation", 1, node_resources_balanced_allocation.score),
    Scorer("ImageLocality", 1, image_locality.score),
)


def totals(request: ScoringRequest, scorers: Sequence[Scorer] = DEFAULT) -> Numbers:
    """Return the weighted sum of all scores by requested row. The scheduler chooses one of the highest."""
    total = np.zeros(len(request.rows), np.int64)
    if len(request.rows):
        for scorer in scorers:
            if (scores := scorer.score(request)) is not None:
                total += scorer.weight * scores
    return total
