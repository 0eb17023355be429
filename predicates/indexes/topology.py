"""Counts of placed pods by topology domain, for topology spread, pod affinity and pod anti-affinity.

Both plugins share the index. A counter is created on first use and updated by every placement from then on; classes
with equal constraints share counters.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from predicates.indexes.counts import DomainCounts, PodCounter
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.scopes import ClassDirectory, PodSelector, SelectorRegistry
from predicates.indexes.terms import AffinityTerm, affinity_terms
from predicates.objects import Namespace, PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.versions import SchedulerVersion

_T = TypeVar("_T")

#: The number of unused classes and counters that may accumulate before the index is rebuilt.
_SPARE = 1000


class PodSet(NamedTuple):
    """The pods that all selectors select; pods that are being deleted are included only if ``terminating``."""

    selectors: frozenset[PodSelector]
    terminating: bool

    def matches(self, pod: PodClass) -> bool:
        """Return whether pods of the class belong to the set."""
        return (self.terminating or not pod.terminating) and all(selector.matches(pod) for selector in self.selectors)


class _ClassCache(dict[PodClass, _T]):
    """Computes a value for each class on first access."""

    def __init__(self, index: "TopologyIndex", compute: Callable[["TopologyIndex", PodClass], _T]) -> None:
        super().__init__()
        self._index = index
        self._compute = compute

    def __missing__(self, pod: PodClass) -> _T:
        value = self[pod] = self._compute(self._index, pod)
        return value


class TopologyIndex:
    """Counters of pod sets, and for each anti-affinity term a counter of the placed pods that have it.

    Costs: a placement O(counters of the class); a new class O(its labels + pod sets that may include it); a new pod set
    O(classes that it may include + rows of the classes that it includes).
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._namespaces: Mapping[str, Mapping[str, str]] = {}
        self._epoch = -1
        self._generation = snapshot.generation
        self._caches: dict[Callable[..., object], _ClassCache[Any]] = {}
        self._clear()

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that is indexed."""
        return self._snapshot

    def _clear(self) -> None:
        self.term_count = 0  #: the number of distinct anti-affinity terms so far
        self._watchers: dict[PodClass, Watchers] = {}  #: as registered with the snapshot
        self._classes = ClassDirectory()
        self._pod_sets: SelectorRegistry[tuple[PodSet, PodCounter]] = SelectorRegistry()
        self._existing_terms: SelectorRegistry[AffinityTerm] = SelectorRegistry()
        self._counters: dict[Hashable, PodCounter] = {}
        self._counts: dict[tuple[Hashable, Topology], DomainCounts] = {}
        self._domains: dict[Topology, Domains] = {}
        self._initial_size = 0  #: classes and counters after the first epoch, to detect growth
        self._caches.clear()

    def watch(self, pod: PodClass) -> Watchers:
        """Return the counters of the class, even if there are none yet: a later selector may add a counter."""
        if (watchers := self._watchers.get(pod)) is None:
            watchers = Watchers()
            self._add_class(pod, watchers)
        return watchers

    # For the plugins

    def cached(self, compute: Callable[["TopologyIndex", PodClass], _T]) -> Mapping[PodClass, _T]:
        """Return a mapping from class to ``compute(self, pod)``, which is computed on first access.

        Values are cached until namespaces or counters change. This is checked here, so callers must not store the
        mapping.
        """
        if self._epoch != self._snapshot.epoch:
            self._epoch = self._snapshot.epoch
            self._start_epoch()
        cache: _ClassCache[_T] | None = self._caches.get(compute)
        if cache is None:
            cache = self._caches[compute] = _ClassCache(self, compute)
        return cache

    @property
    def version(self) -> SchedulerVersion:
        """The version of the scheduler whose rules apply."""
        return self._snapshot.scheduler.version

    @property
    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of all known namespaces, by name."""
        return self._namespaces

    def counts(self, pods: PodSet, topology: Topology) -> DomainCounts:
        """Return the number of *pods* in each domain of *topology*."""
        if (counts := self._counts.get((pods, topology))) is None:
            counter = self._counters.get(pods) or self._add_pod_set(pods)
            counts = self._counts[pods, topology] = DomainCounts(counter, self._domains_of(topology))
        return counts

    def existing_anti_affinity(self, pod: PodClass) -> Iterator[DomainCounts]:
        """Yield, for each anti-affinity term that matches the class, the counts of placed pods that have the term."""
        for term in self._existing_terms.candidates(pod):
            if term.matches(pod, self._labels_of):
                topology = Topology(term.topology_key)
                if (counts := self._counts.get((term, topology))) is None:
                    counts = DomainCounts(self._counters[term], self._domains_of(topology))
                    self._counts[term, topology] = counts
                yield counts

    # Maintenance

    def _add_class(self, pod: PodClass, watchers: Watchers) -> None:
        """Add a new class, and set *watchers* to the counters that include it."""
        self._classes.add(pod)
        self._watchers[pod] = watchers
        counters = [counter for pods, counter in self._pod_sets.candidates(pod) if pods.matches(pod)]
        if terms := affinity_terms(pod).anti_affinity:
            # A term that is listed twice counts once.
            counters += [self._term_counter(term) for term in dict.fromkeys(terms)]
        watchers.callbacks = tuple([counter.shift for counter in counters])

    def _add_dropped_class(self, pod: PodClass, watchers: Watchers, row: int, delta: int) -> None:
        """Add a dropped class again when one of its pods is placed."""
        self._add_class(pod, watchers)
        for callback in watchers.callbacks:
            callback(row, delta)

    def _term_counter(self, term: AffinityTerm) -> PodCounter:
        if (counter := self._counters.get(term)) is None:
            counter = self._counters[term] = PodCounter()
            self._existing_terms.add(term, term.broadest_selector)
            self.term_count += 1
        return counter

    def _add_pod_set(self, pods: PodSet) -> PodCounter:
        counter = self._counters[pods] = PodCounter()
        narrowest = min(pods.selectors, key=lambda each: (each.namespaces is None, not each.selector.pairs))
        self._pod_sets.add((pods, counter), narrowest)
        for pod in self._classes.matching(narrowest):
            if pods.matches(pod):
                self._watchers[pod].callbacks += (counter.shift,)
                counter.add(self._snapshot.rows_of(pod))
        return counter

    def _domains_of(self, topology: Topology) -> Domains:
        if (domains := self._domains.get(topology)) is None:
            domains = self._domains[topology] = Domains(topology, self._snapshot)
        return domains

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return self._namespaces.get(namespace, {})

    def _start_epoch(self) -> None:
        """Read the namespaces again. Rebuild the index if classes were dropped or if the index has grown too much."""
        objects = self._snapshot.of("Namespace")
        namespaces = {name: obj.metadata.labels for name, obj in objects.items() if isinstance(obj, Namespace)}
        if namespaces != self._namespaces:
            self._namespaces = namespaces
            self._caches.clear()
        size = len(self._watchers) + len(self._counters)
        self._initial_size = self._initial_size or size
        if self._generation != self._snapshot.generation or size > 2 * self._initial_size + _SPARE:
            self._rebuild()

    def _rebuild(self) -> None:
        """Keep only classes with placed pods. Counters are created again on their next use."""
        watchers_by_class = self._watchers
        self._clear()
        self._generation = self._snapshot.generation
        for pod, watchers in watchers_by_class.items():
            if self._snapshot.rows_of(pod):
                self._add_class(pod, watchers)
                self._snapshot.replay_placements(watchers, pod)
            else:
                watchers.callbacks = (partial(self._add_dropped_class, pod, watchers),)
