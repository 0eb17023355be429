"""The default profile's score plugins and their weights, as data (``apis/config/v1/default_plugins.go``).

Left out: DynamicResources, which prefers among alternative devices of pods with resource claims, and the image volumes
of ImageLocality. VolumeBinding scores nothing by default (``StorageCapacityScoring`` is off in 1.36).
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
from predicates.scores.frame import Question, Scorer

DEFAULT: Final[tuple[Scorer, ...]] = (
    Scorer("TaintToleration", 3, taint_toleration.score),
    Scorer("NodeAffinity", 2, node_affinity.score),
    Scorer("NodeResourcesFit", 1, node_resources_fit.score),
    Scorer("PodTopologySpread", 2, pod_topology_spread.score),
    Scorer("InterPodAffinity", 2, inter_pod_affinity.score),
    Scorer("NodeResourcesBalancedAllocation", 1, node_resources_balanced_allocation.score),
    Scorer("ImageLocality", 1, image_locality.score),
)


def totals(question: Question, scorers: Sequence[Scorer] = DEFAULT) -> Numbers:
    """The weighted sum of all scores, by asked row: the scheduler takes one of the highest."""
    total = np.zeros(len(question.rows), np.int64)
    if len(question.rows):
        for one in scorers:
            if (scores := one.score(question)) is not None:
                total += one.weight * scores
    return total
