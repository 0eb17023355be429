"""Placed pods counted and weighted by topology domain, for topology spread, pod affinity and pod anti-affinity.

Both plugins share the index. A counter is created on first use and updated by every placement from then on; classes
of a namespace with equal constraints share counters.

A namespace whose terms and selectors are too many to judge is given up. All of its pods are then rejected by all nodes,
so they keep the nodes that they run on, and take no room while they are pending. Its terms decide about its own pods
only, with one exception: an anti-affinity term that names other namespaces. The scheduler keeps pods away from such
terms, so a plan must not ignore them. Without reading their selectors, each is taken for one that repels every pod: a
node is no target if a pod with such a term runs in its domain. That may reject more nodes than the scheduler does, and
never fewer. A single term with an empty selector has the same effect in the scheduler, so nobody gains power by this.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from predicates.indexes.domains import Counts, DomainCounts, Domains, PodCounter, Topology
from predicates.indexes.terms import (
    AffinityTerm,
    ClassDirectory,
    PodSelector,
    SelectorRegistry,
    affinity_terms,
    keys_repelling_others,
    reading_units,
    repelling_all,
    terms_scoring_others,
)
from predicates.objects import Namespace, PodClass, TopologySpreadConstraint
from predicates.placed import Watcher, Watchers
from predicates.selectors import NOTHING, Selector
from predicates.snapshot import Snapshot
from predicates.versions import SchedulerVersion, VersionRule
from predicates.work import MOST_TERMS, NamespaceWork

_T = TypeVar("_T")

#: The units of a new counter, and of new domains: they are read again whenever a node changes.
_NEW_COUNTER: Final = 80
_NEW_DOMAINS: Final = 200

#: The units of each value that is compared with the labels of nodes, when the domains are read.
_VALUE: Final = 2

#: The units to count the pods of a class in a pod set.
_PAIR: Final = 8

#: The number of unused classes and counters that may accumulate before the index is rebuilt.
_SPARE = 1000


class TooManySelectorsError(Exception):
    """The pods of a namespace have more selectors of other pods than are judged."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f"too many different affinity terms and topology spread constraints in namespace {namespace}")


class PodSet(NamedTuple):
    """The pods that all selectors select; pods that are being deleted are included only if ``terminating``."""

    selectors: frozenset[PodSelector]
    terminating: bool

    def matches(self, pod: PodClass, known: PodSelector | None = None) -> bool:
        """Return whether pods of the class belong to the set. A *known* selector is known to select them."""
        if pod.terminating and not self.terminating:
            return False
        return all(selector is known or selector.matches(pod) for selector in self.selectors)

    @property
    def narrowest(self) -> PodSelector:
        """The selector that is likely to select the fewest pods."""
        return min(self.selectors, key=lambda each: (each.namespaces is None, not each.selector.pairs))

    @property
    def units(self) -> int:
        """The units of work of one evaluation."""
        return sum(each.selector.units for each in self.selectors)


class _CountedSet(NamedTuple):
    """A pod set that pods of the counter's namespace depend on."""

    pods: PodSet
    counter: PodCounter


class _ExistingTerm(NamedTuple):
    """An anti-affinity term of pods of the counter's namespace."""

    term: AffinityTerm
    counter: PodCounter


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

    __slots__ = ("counters", "numbers")

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, int] = {}  #: of the counters, by namespace
        self.counters: tuple[PodCounter, ...] | None = ()  #: None if they are not known, after the class was dropped

    def add(self, *counters: PodCounter) -> None:
        """Let these *counters*, too, count the pods of the class."""
        for counter in counters:
            self.numbers[counter.namespace] = self.numbers.get(counter.namespace, 0) + 1
        self.counters = (*(self.counters or ()), *counters)
        self.callbacks = (*self.callbacks, *[counter.shift for counter in counters])

    def remove(self, namespace: str) -> None:
        """Let the counters of *namespace* no longer count the pods of the class."""
        self.set(*(counter for counter in self.counters or () if counter.namespace != namespace))

    def set(self, *counters: PodCounter) -> None:
        """Let only these *counters* count the pods of the class."""
        self.counters, self.callbacks, self.numbers, self.first = (), (), {}, False
        self.add(*counters)

    def drop(self, add_again: Watcher) -> None:
        """Let no counter count the pods of the class: *add_again* is called with the next one."""
        self.counters, self.callbacks, self.first = None, (add_again,), True


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
        self.term_count = 0  #: changes with each distinct anti-affinity term, and with each namespace that is given up
        self._watchers: dict[PodClass, _Counted] = {}  #: as registered with the snapshot
        self._classes = ClassDirectory()
        self._pod_sets: SelectorRegistry[_CountedSet] = SelectorRegistry()
        self._existing_terms: SelectorRegistry[_ExistingTerm] = SelectorRegistry()
        self._new_terms: list[_ExistingTerm] = []  #: in the order in which they were added
        self._counters: dict[tuple[str, Hashable], PodCounter] = {}  #: by namespace, and term or pod set
        self._counts: dict[tuple[PodCounter, Topology], DomainCounts] = {}
        self._domains: dict[Topology, Domains] = {}
        self._given_up: dict[str, frozenset[str]] = {}  #: namespaces, with the labels of nodes at that time
        self._work = NamespaceWork(len(self._snapshot.nodes))  #: to register selectors
        self._preferences = NamespaceWork(len(self._snapshot.nodes))  #: the same for those that only change scores
        self._initial_size = 0  #: classes and counters after the first epoch, to detect growth
        self._drop_caches()

    def _drop_caches(self) -> None:
        self._caches.clear()
        self._evaluations = NamespaceWork(len(self._snapshot.nodes))  #: of existing terms, for the classes in caches

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

    def counts(self, pods: PodSet, topology: Topology, namespace: str, *, required: bool = True) -> DomainCounts:
        """Return the number of *pods* in each domain of *topology*, for pods of *namespace*.

        Raises TooManySelectorsError if there are too many to judge. If it is *required*, the namespace is given up.
        """
        counter = self._counters.get((namespace, pods))
        counts = self._counts.get((counter, topology)) if counter is not None else None
        if counts is not None:
            return counts
        work = self._work if required else self._preferences
        may_read = namespace not in self._given_up and self._may_read(topology, namespace, work)
        if may_read and counter is None:
            counter = self._new_counter(pods, namespace, work)
        if not may_read or counter is None:
            if required:
                self.give_up(namespace)
            raise TooManySelectorsError(namespace)
        return self._counts_of(counter, topology)

    def is_given_up(self, namespace: str) -> bool:
        """Return whether the terms and selectors of *namespace* are too many to judge."""
        return namespace in self._given_up

    def require(self, pod: PodClass, terms: int = 0) -> None:
        """Raise TooManySelectorsError if pods of the class, which has this many *terms*, are too many to judge."""
        if terms > MOST_TERMS:
            self.give_up(pod.namespace)
        if self.is_given_up(pod.namespace):
            raise TooManySelectorsError(pod.namespace)

    def give_up(self, namespace: str) -> None:
        """Judge nothing any more that depends on the selectors of *namespace*. See the top of this module."""
        if namespace in self._given_up:
            return
        keys = (node.metadata.labels for node in self._snapshot.nodes)
        self._given_up[namespace] = frozenset(chain.from_iterable(keys))
        self._counters = {key: counter for key, counter in self._counters.items() if key[0] != namespace}
        self._counts = {key: counts for key, counts in self._counts.items() if key[0].namespace != namespace}
        self._pod_sets.discard(lambda each: each.counter.namespace == namespace)
        self._existing_terms.discard(lambda each: each.counter.namespace == namespace)
        self._new_terms = []
        for pod, watchers in self._watchers.items():
            if pod.namespace == namespace:
                watchers.remove(namespace)
                for counter in (coarse := self._coarse_counters(pod)):
                    counter.add(self._snapshot.rows_of(pod))
                watchers.add(*coarse)
        self._drop_caches()
        self.term_count += 1
        self._snapshot.ties += 1

    def counters_of(self, pod: PodClass) -> Collection[PodCounter] | None:
        """Return the counters that count pods of the class, or None if that is not known."""
        watchers = self._watchers.get(pod)
        return None if watchers is None else watchers.counters

    @property
    def new_terms(self) -> int:
        """The number of anti-affinity terms that were added since a namespace was given up."""
        return len(self._new_terms)

    def existing_anti_affinity(self, pod: PodClass, start: int | None) -> list[DomainCounts]:
        """Return, for each anti-affinity term that matches the class, the counts of placed pods that have the term.

        *start* is the value of :attr:`new_terms` from which on they are asked for; None for all. Namespaces of which
        too many terms match are given up, which changes :attr:`term_count`: then the result is of no use.
        """
        candidates = self._existing_terms.candidates(pod) if start is None else self._new_terms[start:]
        evaluated: Counter[str] = Counter()
        found: list[_ExistingTerm] = []
        for each in candidates:
            if each.term.may_concern(pod.namespace):
                evaluated[each.counter.namespace] += each.term.units
                if each.term.matches(pod, self._labels_of):
                    found.append(each)
        too_many = _beyond_most(each.counter for each in found)
        domains = {(each.counter.namespace, Topology(each.term.topology_key)) for each in found}
        too_many += [name for name, units in evaluated.items() if not self._evaluations.take(name, units)]
        too_many += [name for name, topology in domains if not self._may_read(topology, name, self._work)]
        # The terms of namespaces that are given up are few: at most one for each label of nodes.
        too_many = [name for name in too_many if name not in self._given_up]
        for name in too_many:
            self.give_up(name)
        return [] if too_many else [self._counts_of(each.counter, Topology(each.term.topology_key)) for each in found]

    # Maintenance

    def _add_class(self, pod: PodClass, watchers: _Counted) -> None:
        """Add a new class, and set *watchers* to the counters that include it."""
        self._classes.add(pod)
        of_sets, of_terms = self._set_counters(pod), self._term_counters(pod)
        self._watchers[pod] = watchers
        watchers.set(*(each for each in of_sets if each.namespace not in self._given_up), *of_terms)

    def _set_counters(self, pod: PodClass) -> list[PodCounter]:
        """Return the counters of the pod sets that include the class. Their namespaces may be given up meanwhile."""
        evaluated: Counter[str] = Counter()
        found: list[PodCounter] = []
        for each in self._pod_sets.candidates(pod):
            evaluated[each.counter.namespace] += _PAIR * each.pods.units
            if each.pods.matches(pod):
                found.append(each.counter)
        too_many = [name for name, units in evaluated.items() if not self._work.take(name, units)]
        for name in (*too_many, *_beyond_most(found)):
            self.give_up(name)
        return found

    def _term_counters(self, pod: PodClass) -> list[PodCounter]:
        """Return the counters of the anti-affinity terms of the class."""
        name = pod.namespace
        if name not in self._given_up and not self._work.take(name, reading_units(pod)):
            self.give_up(name)
        if name in self._given_up:
            return self._coarse_counters(pod)
        terms = affinity_terms(pod)
        if len(terms.affinity) + len(terms.anti_affinity) > MOST_TERMS:
            self.give_up(name)
            return self._coarse_counters(pod)
        # A term that is listed twice counts once.
        return [self._term_counter(name, term) for term in dict.fromkeys(terms.anti_affinity)]

    def _coarse_counters(self, pod: PodClass) -> list[PodCounter]:
        """Return the counters of a class of a namespace that is given up: of the terms that may repel other pods."""
        known = self._given_up[pod.namespace]
        return [self._term_counter(pod.namespace, repelling_all(key)) for key in keys_repelling_others(pod) & known]

    def _add_dropped_class(self, pod: PodClass, watchers: _Counted, row: int, delta: int) -> None:
        """Add a dropped class again when one of its pods is placed."""
        self._add_class(pod, watchers)
        for callback in watchers.callbacks:
            callback(row, delta)

    def _term_counter(self, namespace: str, term: AffinityTerm) -> PodCounter:
        if (counter := self._counters.get((namespace, term))) is None:
            counter = self._counters[namespace, term] = PodCounter(namespace)
            added = _ExistingTerm(term, counter)
            self._existing_terms.add(added, term.broadest_selector)
            self._new_terms.append(added)
            self.term_count += 1
            self._snapshot.ties += 1
        return counter

    def _new_counter(self, pods: PodSet, namespace: str, work: NamespaceWork) -> PodCounter | None:
        """Return a counter of *pods*, for pods of *namespace*; None if it is beyond this *work*."""
        narrowest = pods.narrowest
        if not work.take(namespace, _NEW_COUNTER * pods.units):
            return None
        if not work.take(namespace, _PAIR * pods.units * self._classes.count(narrowest)):
            return None
        classes = [pod for pod in self._classes.matching(narrowest) if pods.matches(pod, known=narrowest)]
        if any(self._watchers[pod].numbers.get(namespace, 0) >= MOST_TERMS for pod in classes):
            return None
        counter = self._counters[namespace, pods] = PodCounter(namespace)
        self._pod_sets.add(_CountedSet(pods, counter), narrowest)
        for pod in classes:
            self._watchers[pod].add(counter)
            counter.add(self._snapshot.rows_of(pod))
        return counter

    def _may_read(self, topology: Topology, namespace: str, work: NamespaceWork) -> bool:
        """Return whether the domains of *topology* may be read for pods of *namespace*, or are read already."""
        return topology in self._domains or work.take(namespace, _NEW_DOMAINS + _VALUE * topology.values)

    def _counts_of(self, counter: PodCounter, topology: Topology) -> DomainCounts:
        if (counts := self._counts.get((counter, topology))) is None:
            counts = self._counts[counter, topology] = DomainCounts(counter, self._domains_of(topology))
        return counts

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
            self._drop_caches()
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
                watchers.drop(partial(self._add_dropped_class, pod, watchers))


def _beyond_most(counters: Iterable[PodCounter]) -> list[str]:
    """Return the namespaces that need more than :data:`MOST_TERMS` of the *counters* of one class."""
    numbers = Counter(counter.namespace for counter in counters)
    return [name for name, number in numbers.items() if number > MOST_TERMS]


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
        self._sums: dict[tuple[str, AffinityTerm], DomainCounts] = {}
        self._terms: SelectorRegistry[tuple[str, AffinityTerm]] = SelectorRegistry()
        self._cache: dict[PodClass, tuple[DomainCounts, ...]] = {}
        self._namespaces: Mapping[str, Mapping[str, str]] | None = None
        self._work = NamespaceWork(len(self._snapshot.nodes))
        self._too_many: set[str] = set()  #: namespaces with more terms than are read
        self._evaluations = NamespaceWork(len(self._snapshot.nodes))  #: of the terms, for the classes in the cache

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if it has no terms that affect scores.

        Terms that are too many to judge affect none: scores only tell where pods are likely to go.
        """
        if pod.namespace in self._too_many or not (units := reading_units(pod)):
            return None
        if not self._work.take(pod.namespace, units):
            self._too_many.add(pod.namespace)
            return None
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
            self._drop_cache()
        if (sums := self._cache.get(pod)) is None:
            sums = self._cache[pod] = tuple(self._matching(pod, namespaces))
        return sums

    def _matching(self, pod: PodClass, namespaces: Mapping[str, Mapping[str, str]]) -> Iterator[DomainCounts]:
        found: Counter[str] = Counter()
        for key in self._terms.candidates(pod):
            name, term = key
            judged = found[name] < MOST_TERMS and self._evaluations.take(name, term.units)
            if judged and term.matches(pod, lambda name: namespaces.get(name, {})):
                found[name] += 1
                yield self._sums[key]

    def _drop_cache(self) -> None:
        self._cache.clear()
        self._evaluations = NamespaceWork(len(self._snapshot.nodes))

    def _counters_for(self, pod: PodClass) -> list[tuple[PodCounter, int]]:
        weights: defaultdict[AffinityTerm, int] = defaultdict(int)
        for term, weight in terms_scoring_others(pod):
            weights[term] += weight
        sums = ((self._sums_of((pod.namespace, term)), weight) for term, weight in weights.items())
        counters = self._counters[pod] = [(each.counter, weight) for each, weight in sums]
        return counters

    def _sums_of(self, key: tuple[str, AffinityTerm]) -> DomainCounts:
        if (sums := self._sums.get(key)) is None:
            term = key[1]
            topology = Topology(term.topology_key)
            if (domains := self._domains.get(topology)) is None:
                domains = self._domains[topology] = Domains(topology, self._snapshot)
            sums = self._sums[key] = DomainCounts(PodCounter(), domains)
            self._terms.add(key, term.broadest_selector)
            self._drop_cache()
        return sums

    def _rebuild(self) -> None:
        """Rebuild the index from the remaining classes, after classes were dropped."""
        self._generation = self._snapshot.generation
        self._clear()
        for pod in self._snapshot.watched_classes():
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


def matching_pods(namespace: str, selector: Selector, version: SchedulerVersion) -> PodSet:
    """Return the pods that a constraint counts: until 1.37, none if its selector is empty.

    Source: ``countPodsMatchSelector`` of ``podtopologyspread/common.go``.
    """
    if selector.everything and not version.has(VersionRule.EMPTY_SELECTOR_COUNTS):
        selector = NOTHING
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
