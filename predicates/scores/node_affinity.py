"""NodeAffinity: the sum of the weights of matching preferred terms (``nodeaffinity/node_affinity.go``).

A term that cannot be parsed has no effect here. In the scheduler the pod would fail, but the API rejects such terms.
"""

import numpy as np

from predicates.node_selectors import node_selector_mask
from predicates.nodes import Numbers
from predicates.objects import NodeSelector
from predicates.scores.frame import ScoringRequest, normalized


def score(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if neither the pod nor its profile has preferred terms."""
    affinity = request.pod.spec.affinity
    terms = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
    if (added := request.snapshot.scheduler.profile(request.pod.spec.scheduler_name).added_affinity) is not None:
        terms += added.preferred
    if not terms:
        return None
    scores = np.zeros(len(request.rows), np.int64)
    for term in terms:
        selector = NodeSelector(node_selector_terms=(term.preference,))
        scores += term.weight * node_selector_mask(selector, request.snapshot, request.rows)
    return normalized(scores)
