"""NodeAffinity: the weights of the preferred terms that a node suits (``nodeaffinity/node_affinity.go``).

A term that cannot be parsed counts for nothing here; the scheduler fails the pod, and the API takes no such term.
"""

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import NodeSelector
from predicates.scores.frame import Question, normalized
from predicates.selectors import node_selector_mask


def score(question: Question) -> Numbers | None:
    """None without preferred terms."""
    affinity = question.pod.spec.affinity
    terms = affinity.node_affinity.preferred if affinity and affinity.node_affinity else ()
    if not terms:
        return None
    worth = np.zeros(len(question.rows), np.int64)
    for one in terms:
        selector = NodeSelector(node_selector_terms=(one.preference,))
        worth += one.weight * node_selector_mask(selector, question.snapshot, question.rows)
    return normalized(worth)
