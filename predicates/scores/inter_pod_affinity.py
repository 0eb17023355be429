"""InterPodAffinity: preferred terms of the pod and terms of placed pods (``interpodaffinity/scoring.go``)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from predicates.indexes.counts import DomainCounts
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.preferences import AffinityWeights
from predicates.indexes.terms import preferred_terms
from predicates.indexes.topology import PodSet, TopologyIndex
from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.scores.frame import MAX_SCORE, ScoringRequest

_Weighted: TypeAlias = tuple[DomainCounts, int]


def score(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no term matches, or if all nodes have the same score."""
    snapshot, pod = request.snapshot, request.pod
    index = snapshot.index(TopologyIndex)
    own_terms = index.cached(_preferred)[pod]
    existing_terms = snapshot.index(AffinityWeights).for_pod(pod, index.namespaces)
    if not own_terms and not existing_terms:
        return None
    scores = np.zeros(len(request.rows), np.int64)
    for domains, sums in _by_domains([*own_terms, *((sums, 1) for sums in existing_terms)]).items():
        sums[-1] = 0  # Nodes without the label are in no domain.
        scores += sums.take(domains.slots.take(request.rows))
    min_score, max_score = int(scores.min()), int(scores.max())
    if min_score == max_score:
        return None
    normalized: Numbers = (MAX_SCORE * ((scores - min_score) / (max_score - min_score))).astype(np.int64)
    return normalized


def _preferred(index: TopologyIndex, pod: PodClass) -> tuple[_Weighted, ...]:
    """Return, for each preferred term of the class, the matching pods by domain and the weight of each pod."""
    return tuple(
        (
            index.counts(
                PodSet(frozenset((term.pod_selector(index.namespaces, index.version),)), terminating=True),
                Topology(term.topology_key),
            ),
            weight,
        )
        for term, weight in preferred_terms(pod)
    )


def _by_domains(weighted: Iterable[_Weighted]) -> dict[Domains, Numbers]:
    """Return the weighted sum of all counts over the same domains, one entry per domain."""
    groups: defaultdict[Domains, list[Numbers]] = defaultdict(list)
    for counts, weight in weighted:
        current = counts.current()
        if counts.counter.rows:
            groups[counts.domains].append(current.astype(np.int64) * weight)
    return {domains: np.sum(sums, axis=0) for domains, sums in groups.items()}
