"""Pods that matter to other pods, counted by topology domain: topology spread, pod affinity and anti-affinity.

One index serves both plugins. Counters are made when they are first asked for, and kept right from there on by
every placement; nothing is counted twice for two classes that ask same_content.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from predicates.indexes.counts import Counter, DomainCounts
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.scopes import Directory, Register, Scope
from predicates.indexes.terms import AffinityTerm, affinity_terms
from predicates.objects import Namespace, PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot

_T = TypeVar("_T")

#: So many classes and counters may have fallen out of use before they are looked for and dropped.
_SPARE = 1000


class Kind(NamedTuple):
    """The pods that all of the scopes mean; those being deleted count only if ``terminating``."""

    scopes: frozenset[Scope]
    terminating: bool

    def matches(self, pod: PodClass) -> bool:
        """Whether pods of the class count."""
        return (self.terminating or not pod.terminating) and all(scope.matches(pod) for scope in self.scopes)


class _Memory(dict[PodClass, _T]):
    """What was prepared for each class."""

    def __init__(self, index: "TopologyIndex", prepare: Callable[["TopologyIndex", PodClass], _T]) -> None:
        super().__init__()
        self._index = index
        self._prepare = prepare

    def __missing__(self, pod: PodClass) -> _T:
        found = self[pod] = self._prepare(self._index, pod)
        return found


class TopologyIndex:
    """Counters of pods by kind, and of pods that carry an anti-affinity term, by term.

    Costs: a placement O(counters of the class); a class met for the first time O(its labels + the kinds that may
    match); a kind asked for the first time O(classes that may match + where those that do stand).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._namespaces: Mapping[str, Mapping[str, str]] = {}
        self._epoch = -1
        self._memory: dict[Callable[..., object], _Memory[Any]] = {}
        self._clear()

    def _clear(self) -> None:
        self.terms = 0  #: how many distinct anti-affinity terms were met
        self._routes: dict[PodClass, Watchers] = {}  #: as given to the snapshot, which tells them of every pod
        self._classes = Directory()
        self._kinds: Register[tuple[Kind, Counter]] = Register()
        self._carried: Register[AffinityTerm] = Register()
        self._counters: dict[Hashable, Counter] = {}
        self._counts: dict[tuple[Hashable, Topology], DomainCounts] = {}
        self._domains: dict[Topology, Domains] = {}
        self._settled = 0  #: how many classes and counters were in use a turn after the start
        self._memory.clear()

    # What the snapshot tells

    def watch(self, pod: PodClass) -> Watchers:
        """The counters of the class. For most none at first: a selector that comes later may count any class."""
        if (route := self._routes.get(pod)) is None:
            route = Watchers()
            self._meet(pod, route)
        return route

    # What the plugins ask

    def current(self, prepare: Callable[["TopologyIndex", PodClass], _T]) -> Mapping[PodClass, _T]:
        """By class: ``prepare(self, pod)``, made when it is first asked for.

        Remembered for as long as the namespaces and the counters stay what they are, which is seen to here: what is
        given is good for one question.
        """
        if self._epoch != self._snapshot.epoch:
            self._epoch = self._snapshot.epoch
            self._turn()
        memory: _Memory[_T] | None = self._memory.get(prepare)
        if memory is None:
            memory = self._memory[prepare] = _Memory(self, prepare)
        return memory

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of the namespaces whose objects are known, by name."""
        return self._namespaces

    def counts(self, kind: Kind, topology: Topology) -> DomainCounts:
        """How many pods of the *kind* stand in each domain of the *topology*."""
        if (found := self._counts.get((kind, topology))) is None:
            counter = self._counters.get(kind) or self._count(kind)
            found = self._counts[kind, topology] = DomainCounts(counter, self._domains_of(topology))
        return found

    def repelling(self, pod: PodClass) -> Iterator[DomainCounts]:
        """For each anti-affinity term of placed pods that means the class: how many carry it in each domain."""
        for term in self._carried.candidates(pod):
            if term.concerns(pod, self._labels_of):
                topology = Topology(term.topology_key)
                if (found := self._counts.get((term, topology))) is None:
                    found = DomainCounts(self._counters[term], self._domains_of(topology))
                    self._counts[term, topology] = found
                yield found

    # How it is kept

    def _meet(self, pod: PodClass, route: Watchers) -> None:
        """Find what counts the class, which was not seen before."""
        self._classes.add(pod)
        self._routes[pod] = route
        counters = [counter for kind, counter in self._kinds.candidates(pod) if kind.matches(pod)]
        if repelled := affinity_terms(pod).anti_affinity:
            # A term that stands twice repels no more than one that stands once.
            counters += [self._carriers(term) for term in dict.fromkeys(repelled)]
        route.callbacks = tuple([counter.shift for counter in counters])

    def _meet_again(self, pod: PodClass, route: Watchers, row: int, by: int) -> None:
        """A pod comes of a class that was dropped."""
        self._meet(pod, route)
        for told in route.callbacks:
            told(row, by)

    def _carriers(self, term: AffinityTerm) -> Counter:
        if (counter := self._counters.get(term)) is None:
            counter = self._counters[term] = Counter()
            self._carried.add(term, term.widest)
            self.terms += 1
        return counter

    def _count(self, kind: Kind) -> Counter:
        counter = self._counters[kind] = Counter()
        first = min(kind.scopes, key=lambda scope: (scope.namespaces is None, not scope.selector.pairs))
        self._kinds.add((kind, counter), first)
        for pod in self._classes.matching(first):
            if kind.matches(pod):
                self._routes[pod].callbacks += (counter.shift,)
                counter.start(self._snapshot.rows_of(pod))
        return counter

    def _domains_of(self, topology: Topology) -> Domains:
        if (found := self._domains.get(topology)) is None:
            found = self._domains[topology] = Domains(topology, self._snapshot)
        return found

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return self._namespaces.get(namespace, {})

    def _turn(self) -> None:
        """A new epoch: see what the namespaces have become, and drop what fell out of use if it may be much."""
        known = self._snapshot.of("Namespace")
        namespaces = {name: one.metadata.labels for name, one in known.items() if isinstance(one, Namespace)}
        if namespaces != self._namespaces:
            self._namespaces = namespaces
            self._memory.clear()
        size = len(self._routes) + len(self._counters)
        self._settled = self._settled or size
        if size > 2 * self._settled + _SPARE:
            self._start_over()

    def _start_over(self) -> None:
        """Keep only classes with pods; counters are made again when they are asked for again."""
        routes = self._routes
        self._clear()
        for pod, route in routes.items():
            if self._snapshot.rows_of(pod):
                self._meet(pod, route)
                self._snapshot.replay_placements(route, pod)
            else:
                route.callbacks = (partial(self._meet_again, pod, route),)
