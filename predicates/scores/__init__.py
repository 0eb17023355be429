"""The score plugins by name, and those of a profile with their weights (``apis/config/v1/default_plugins.go``).

Not implemented: DynamicResources, which scores alternative devices of pods with resource claims.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from predicates.nodes import Numbers
from predicates.plugins.volumes import VOLUME_BINDING_NAME
from predicates.scheduler import Profile
from predicates.scores import nodes, pods
from predicates.scores.frame import Score, Scorer, ScoringRequest

_SCORES: Final[Mapping[str, Score]] = {
    "TaintToleration": nodes.taint_toleration,
    "NodeAffinity": nodes.node_affinity,
    "NodeResourcesFit": nodes.node_resources_fit,
    "VolumeBinding": nodes.volume_binding,
    "PodTopologySpread": pods.pod_topology_spread,
    "InterPodAffinity": pods.inter_pod_affinity,
    "NodeResourcesBalancedAllocation": nodes.node_resources_balanced_allocation,
    "ImageLocality": nodes.image_locality,
}


@lru_cache(maxsize=64)
def of(profile: Profile) -> tuple[Scorer, ...]:
    """Return the score plugins of *profile*. VolumeBinding scores what its Filter found, so without it nothing."""
    return tuple(
        Scorer(name, weight, _SCORES[name])
        for name, weight in profile.weights
        if name in _SCORES and (name != VOLUME_BINDING_NAME or profile.has(name))
    )


def totals(request: ScoringRequest, scorers: Sequence[Scorer] | None = None) -> Numbers:
    """Return the weighted sum of all scores of the pod's profile by requested row.

    The scheduler chooses one of the highest.
    """
    if scorers is None:
        scorers = of(request.snapshot.scheduler.profile(request.pod.spec.scheduler_name))
    total = np.zeros(len(request.rows), np.int64)
    if len(request.rows):
        for scorer in scorers:
            if (scores := scorer.score(request)) is not None:
                total += scorer.weight * scores
    return total
