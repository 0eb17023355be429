"""Weights of the affinity terms of placed pods, summed by topology domain, for scoring.

It is separate from :class:`~predicates.indexes.topology.TopologyIndex`, which filters use, so that placements do not
pay for this index unless pods are scored.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from predicates.indexes.counts import DomainCounts, PodCounter
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.scopes import SelectorRegistry
from predicates.indexes.terms import AffinityTerm, terms_scoring_others
from predicates.objects import PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot


class AffinityWeights:
    """Sums of weights by term and domain. A placement costs O(terms of the class)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._generation = snapshot.generation
        self._domains: dict[Topology, Domains] = {}
        self._clear()

    def _clear(self) -> None:
        self._counters: dict[PodClass, list[tuple[PodCounter, int]]] = {}
        self._sums: dict[AffinityTerm, DomainCounts] = {}
        self._terms: SelectorRegistry[AffinityTerm] = SelectorRegistry()
        self._cache: dict[PodClass, tuple[DomainCounts, ...]] = {}
        self._namespaces: Mapping[str, Mapping[str, str]] | None = None

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if it has no terms that affect scores."""
        return Watchers(partial(self._shift, pod)) if terms_scoring_others(pod) else None

    def _shift(self, pod: PodClass, row: int, delta: int) -> None:
        if (counters := self._counters.get(pod)) is None:
            counters = self._counters_for(pod)
        for counter, weight in counters:
            counter.shift(row, delta * weight)

    def for_pod(self, pod: PodClass, namespaces: Mapping[str, Mapping[str, str]]) -> tuple[DomainCounts, ...]:
        """Return the sum of weights by domain, for each term of placed pods that matches the class.

        *namespaces* maps names of namespaces to labels; it must be a new object if they have changed.
        """
        if self._generation != self._snapshot.generation:
            self._rebuild()
        if self._namespaces is not namespaces:
            self._namespaces = namespaces
            self._cache.clear()
        if (sums := self._cache.get(pod)) is None:
            terms = (
                term for term in self._terms.candidates(pod) if term.matches(pod, lambda name: namespaces.get(name, {}))
            )
            sums = self._cache[pod] = tuple(self._sums[term] for term in terms)
        return sums

    def _counters_for(self, pod: PodClass) -> list[tuple[PodCounter, int]]:
        weights: defaultdict[AffinityTerm, int] = defaultdict(int)
        for term, weight in terms_scoring_others(pod):
            weights[term] += weight
        counters = self._counters[pod] = [(self._sums_of(term).counter, weight) for term, weight in weights.items()]
        return counters

    def _sums_of(self, term: AffinityTerm) -> DomainCounts:
        if (sums := self._sums.get(term)) is None:
            topology = Topology(term.topology_key)
            if (domains := self._domains.get(topology)) is None:
                domains = self._domains[topology] = Domains(topology, self._snapshot)
            sums = self._sums[term] = DomainCounts(PodCounter(), domains)
            self._terms.add(term, term.broadest_selector)
            self._cache.clear()
        return sums

    def _rebuild(self) -> None:
        """Rebuild the index from the remaining classes, after classes were dropped."""
        self._generation = self._snapshot.generation
        self._clear()
        for pod in self._snapshot.classes():
            if (watchers := self.watch(pod)) is not None:
                self._snapshot.replay_placements(watchers, pod)
