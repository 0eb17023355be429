"""What the affinity terms of placed pods are worth to other pods, summed by topology domain.

Kept apart from :class:`~predicates.indexes.topology.TopologyIndex`, which filters read: a placement pays for this
only once somebody has asked for scores.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from predicates.indexes.counts import Counter, DomainCounts
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.scopes import Register
from predicates.indexes.terms import AffinityTerm, attracting_terms
from predicates.objects import PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot


class Preferences:
    """The weights of terms, by term and domain. A placement costs O(terms of the class)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._generation = snapshot.generation
        self._domains: dict[Topology, Domains] = {}
        self._clear()

    def _clear(self) -> None:
        self._routes: dict[PodClass, list[tuple[Counter, int]]] = {}
        self._sums: dict[AffinityTerm, DomainCounts] = {}
        self._carried: Register[AffinityTerm] = Register()
        self._known: dict[PodClass, tuple[DomainCounts, ...]] = {}
        self._namespaces: Mapping[str, Mapping[str, str]] | None = None

    def watch(self, pod: PodClass) -> Watchers | None:
        """Only pods with terms matter to others."""
        return Watchers(partial(self._shift, pod)) if attracting_terms(pod) else None

    def _shift(self, pod: PodClass, row: int, by: int) -> None:
        if (routes := self._routes.get(pod)) is None:
            routes = self._meet(pod)
        for counter, weight in routes:
            counter.shift(row, by * weight)

    def towards(self, pod: PodClass, namespaces: Mapping[str, Mapping[str, str]]) -> tuple[DomainCounts, ...]:
        """For each term of placed pods that means the class: its weight in each domain.

        *namespaces* are the labels of namespaces by name; another object than last time if they have changed.
        """
        if self._generation != self._snapshot.generation:
            self._start_over()
        if self._namespaces is not namespaces:
            self._namespaces = namespaces
            self._known.clear()
        if (found := self._known.get(pod)) is None:
            terms = (
                term
                for term in self._carried.candidates(pod)
                if term.concerns(pod, lambda name: namespaces.get(name, {}))
            )
            found = self._known[pod] = tuple(self._sums[term] for term in terms)
        return found

    def _meet(self, pod: PodClass) -> list[tuple[Counter, int]]:
        weights: defaultdict[AffinityTerm, int] = defaultdict(int)
        for term, weight in attracting_terms(pod):
            weights[term] += weight
        routes = self._routes[pod] = [(self._sum(term).counter, weight) for term, weight in weights.items()]
        return routes

    def _sum(self, term: AffinityTerm) -> DomainCounts:
        if (found := self._sums.get(term)) is None:
            topology = Topology(term.topology_key)
            if (domains := self._domains.get(topology)) is None:
                domains = self._domains[topology] = Domains(topology, self._snapshot)
            found = self._sums[term] = DomainCounts(Counter(), domains)
            self._carried.add(term, term.widest)
            self._known.clear()
        return found

    def _start_over(self) -> None:
        """Classes were forgotten: keep what those that are left carry."""
        self._generation = self._snapshot.generation
        self._clear()
        for pod in self._snapshot.classes():
            if (watchers := self.watch(pod)) is not None:
                self._snapshot.replay_placements(watchers, pod)
