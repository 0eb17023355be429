"""Placed pods counted and weighted by topology domain, for topology spread, pod affinity and pod anti-affinity.

Both plugins share the index. A counter is created on first use and updated by every placement from then on; classes
with equal constraints share counters.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from predicates.indexes.domains import Counts, DomainCounts, Domains, PodCounter, Topology
from predicates.indexes.terms import (
    AffinityTerm,
    ClassDirectory,
    PodSelector,
    SelectorRegistry,
    affinity_terms,
    terms_scoring_others,
)
from predicates.objects import Namespace, PodClass, TopologySpreadConstraint
from predicates.placed import Watchers
from predicates.selectors import NOTHING, Selector
from predicates.snapshot import Snapshot
from predicates.versions import SchedulerVersion

_T = TypeVar("_T")

#: At most this many evaluations of selectors, each for a class of pods, are made for the pods of a namespace. Selectors
#: that require a label, as those of most workloads do, are evaluated for few classes. So a namespace with thousands of
#: selectors that match everything cannot make each plan take minutes.
MOST_EVALUATIONS: Final = 200_000

#: The number of unused classes and counters that may accumulate before the index is rebuilt.
_SPARE = 1000


class TooManySelectorsError(Exception):
    """The pods of a namespace have more selectors of other pods than are evaluated."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f"too many different affinity terms and topology spread constraints in namespace {namespace}")


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


class _Counted(Watchers):
    """The counters that count the pods of a class."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        super().__init__()
        self.counters: tuple[PodCounter, ...] | None = ()  #: None if they are not known, after the class was dropped

    def add(self, *counters: PodCounter) -> None:
        """Let these *counters*, too, count the pods of the class."""
        self.counters = (*(self.counters or ()), *counters)
        self.callbacks = (*self.callbacks, *[counter.shift for counter in counters])


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
        self._watchers: dict[PodClass, _Counted] = {}  #: as registered with the snapshot
        self._classes = ClassDirectory()
        self._pod_sets: SelectorRegistry[tuple[PodSet, PodCounter]] = SelectorRegistry()
        self._existing_terms: SelectorRegistry[AffinityTerm] = SelectorRegistry()
        self._counters: dict[Hashable, PodCounter] = {}
        self._counts: dict[tuple[Hashable, Topology], DomainCounts] = {}
        self._domains: dict[Topology, Domains] = {}
        self._evaluations: Counter[str] = Counter()  #: by the namespace whose pods needed them
        self._initial_size = 0  #: classes and counters after the first epoch, to detect growth
        self._caches.clear()

    def watch(self, pod: PodClass) -> Watchers:
        """Return the counters of the class, even if there are none yet: a later selector may add a counter."""
        if (watchers := self._watchers.get(pod)) is None:
            watchers = _Counted()
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

    def counts(self, pods: PodSet, topology: Topology, namespace: str) -> DomainCounts:
        """Return the number of *pods* in each domain of *topology*, for pods of *namespace*.

        Raises TooManySelectorsError beyond :data:`MOST_EVALUATIONS`.
        """
        if (counts := self._counts.get((pods, topology))) is None:
            counter = self._counters.get(pods) or self._add_pod_set(pods, namespace)
            counts = self._counts[pods, topology] = DomainCounts(counter, self._domains_of(topology))
        return counts

    def counters_of(self, pod: PodClass) -> Collection[PodCounter] | None:
        """Return the counters that count pods of the class, or None if that is not known."""
        watchers = self._watchers.get(pod)
        return None if watchers is None else watchers.counters

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

    def _add_class(self, pod: PodClass, watchers: _Counted) -> None:
        """Add a new class, and set *watchers* to the counters that include it."""
        self._classes.add(pod)
        self._watchers[pod] = watchers
        counters = [counter for pods, counter in self._pod_sets.candidates(pod) if pods.matches(pod)]
        if terms := affinity_terms(pod).anti_affinity:
            # A term that is listed twice counts once.
            counters += [self._term_counter(term) for term in dict.fromkeys(terms)]
        watchers.counters, watchers.callbacks = (), ()
        watchers.add(*counters)

    def _add_dropped_class(self, pod: PodClass, watchers: _Counted, row: int, delta: int) -> None:
        """Add a dropped class again when one of its pods is placed."""
        self._add_class(pod, watchers)
        for callback in watchers.callbacks:
            callback(row, delta)

    def _term_counter(self, term: AffinityTerm) -> PodCounter:
        if (counter := self._counters.get(term)) is None:
            counter = self._counters[term] = PodCounter()
            self._existing_terms.add(term, term.broadest_selector)
            self.term_count += 1
            self._snapshot.ties += 1
        return counter

    def _add_pod_set(self, pods: PodSet, namespace: str) -> PodCounter:
        narrowest = min(pods.selectors, key=lambda each: (each.namespaces is None, not each.selector.pairs))
        evaluations = self._evaluations[namespace] + self._classes.count(narrowest)
        if evaluations > MOST_EVALUATIONS:
            raise TooManySelectorsError(namespace)
        self._evaluations[namespace] = evaluations
        counter = self._counters[pods] = PodCounter()
        self._pod_sets.add((pods, counter), narrowest)
        for pod in self._classes.matching(narrowest):
            if pods.matches(pod):
                self._watchers[pod].add(counter)
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
                watchers.counters, watchers.callbacks = None, (partial(self._add_dropped_class, pod, watchers),)


# Weights of the affinity terms of placed pods, summed by topology domain, for scoring.
#
# It is separate from :class:`~predicates.indexes.topology.TopologyIndex`, which filters use, so that placements do not
# pay for this index unless pods are scored.


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


# The pods that a topology spread constraint counts, for filtering and scoring (``podtopologyspread/common.go``).

#: Labels that differ between the pods of one owner, or between its revisions.
_PER_POD_LABELS: Final = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
)


def default_selector(pod: PodClass) -> Selector:
    """Return the selector of default constraints for pods of a class: the labels that all pods of its owner share."""
    return Selector((key, value) for key, value in pod.labels.items() if key not in _PER_POD_LABELS)


def with_match_label_keys(
    selector: Selector, constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> Selector:
    """Return the constraint's *selector*, extended by the pod's *labels* listed in ``matchLabelKeys``."""
    same = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
    return selector.narrowed(same) if same else selector


def matching_pods(namespace: str, selector: Selector) -> PodSet:
    """Return the pods that a constraint counts. An empty selector counts no pods (``countPodsMatchSelector``)."""
    selector = NOTHING if selector.everything else selector
    return PodSet(frozenset((PodSelector(frozenset((namespace,)), selector),)), terminating=False)


def counting_topology(pod: PodClass, constraint: TopologySpreadConstraint, keys: frozenset[str]) -> Topology:
    """Return the topology by which a constraint counts pods.

    Only nodes with all topology *keys* of the pod's constraints count, subject to the node inclusion policies.
    """
    spec = pod.spec
    topology = Topology(constraint.topology_key, keys - {constraint.topology_key})
    if constraint.node_affinity_policy in (None, "Honor"):
        affinity = spec.affinity.node_affinity if spec.affinity else None
        topology = topology._replace(
            node_selector=tuple(sorted(spec.node_selector.items())),
            node_affinity=affinity.required if affinity else None,
        )
    if constraint.node_taints_policy == "Honor":
        topology = topology._replace(tolerations=spec.tolerations)
    return topology


def without_draining(pods: DomainCounts, counts: Counts, snapshot: Snapshot) -> Counts:
    """Return *counts* without the pods that remain on nodes being drained."""
    rows, draining_rows = pods.counter.rows, snapshot.draining_rows
    if common := list(rows.keys() & draining_rows.keys()):
        counts = counts.copy()
        np.subtract.at(counts, pods.domains.counted[common], [rows[row] for row in common])
    return counts
