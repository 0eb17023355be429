"""InterPodAffinity: what the pod prefers of neighbours, and what placed pods prefer of it (``scoring.go``)."""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from predicates.indexes.counts import DomainCounts
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.preferences import Preferences
from predicates.indexes.terms import preferred_terms
from predicates.indexes.topology import Kind, TopologyIndex
from predicates.nodes import Numbers
from predicates.objects import PodClass
from predicates.scores.frame import MAX_SCORE, Question

_Weighted: TypeAlias = tuple[DomainCounts, int]


def score(question: Question) -> Numbers | None:
    """None where no term of either side says anything."""
    snapshot, pod = question.snapshot, question.pod
    index = snapshot.index(TopologyIndex)
    own = index.current(_preferred)[pod]
    others = snapshot.index(Preferences).towards(pod, index.namespaces)
    if not own and not others:
        return None
    worth = np.zeros(len(question.rows), np.int64)
    for domains, sums in _by_domains([*own, *((one, 1) for one in others)]).items():
        sums[-1] = 0  # Nodes without the label lie in no domain.
        worth += sums.take(domains.slots.take(question.rows))
    least, most = int(worth.min()), int(worth.max())
    if least == most:
        return None
    found: Numbers = (MAX_SCORE * ((worth - least) / (most - least))).astype(np.int64)
    return found


def _preferred(index: TopologyIndex, pod: PodClass) -> tuple[_Weighted, ...]:
    """Whom the class prefers to be near to, or far from: how many there are in each domain, and the weight of one."""
    return tuple(
        (
            index.counts(
                Kind(frozenset((term.resolved(index.namespaces),)), terminating=True), Topology(term.topology_key)
            ),
            weight,
        )
        for term, weight in preferred_terms(pod)
    )


def _by_domains(weighted: Iterable[_Weighted]) -> dict[Domains, Numbers]:
    """The sums over the same domains together, one entry a domain."""
    groups: defaultdict[Domains, list[Numbers]] = defaultdict(list)
    for counts, weight in weighted:
        current = counts.current()
        if counts.counter.rows:
            groups[counts.domains].append(current.astype(np.int64) * weight)
    return {domains: np.sum(sums, axis=0) for domains, sums in groups.items()}
