"""Terms of pod affinity and anti-affinity, and the selectors with namespaces that they consist of."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from predicates.objects import LabelSelector, PodAffinityTerm, PodClass, WeightedPodAffinityTerm
from predicates.selectors import EVERYTHING, Pair, Selector, compile_selector, forget_selectors, joined
from predicates.versions import SchedulerVersion, VersionRule

# Pod selectors with namespaces, and lookups in both directions: from selector to classes and from class to selectors.
#
# Both lookups use the labels that a selector requires, so the cost depends on the number of candidates only.

_T = TypeVar("_T")

#: A lookup key: a namespace and a label; None means any.
_LookupKey: TypeAlias = tuple[str | None, Pair | None]

#: A selector with more namespaces than this is registered under its label only.
_FEW_NAMESPACES = 4


#: At most this many of the labels that a selector requires are compared by how many classes have them.
_FEW_CHOICES: Final = 8

#: With more labels than this, those that no selector requires are left out first.
_FEW_LABELS: Final = 20


class PodSelector(NamedTuple):
    """Selects pods by label in these namespaces (None: in all)."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, pod: PodClass) -> bool:
        """Return whether pods of the class are selected."""
        namespaces = self.namespaces
        return (namespaces is None or pod.namespace in namespaces) and self.selector.matches(pod.labels)


class ClassDirectory:
    """A lookup of pod classes by namespace and label: finds the classes that a selector selects."""

    def __init__(self) -> None:
        self._classes: defaultdict[str, list[PodClass]] = defaultdict(list)  #: by namespace
        #: By namespace and label key: how many classes of the namespace are indexed, and the indexed ones by value.
        self._indexed: dict[tuple[str, str], tuple[int, defaultdict[str, list[PodClass]]]] = {}

    def add(self, pod: PodClass) -> None:
        """Add a new class. It is indexed by a label when a selector requires the label."""
        self._classes[pod.namespace].append(pod)

    def matching(self, pods: PodSelector) -> Iterator[PodClass]:
        """Yield the classes that *pods* selects. Costs O(classes that have the rarest label of the selector)."""
        selector = pods.selector
        for found in self._candidates(pods):
            for classes in found:
                yield from (pod for pod in classes if selector.matches(pod.labels))

    def count(self, pods: PodSelector) -> int:
        """Return for how many classes :meth:`matching` has to evaluate the selector of *pods*."""
        return sum(sum(map(len, found)) for found in self._candidates(pods))

    def _candidates(self, pods: PodSelector) -> Iterator[list[Sequence[PodClass]]]:
        """Yield, for each namespace, the lists of classes that *pods* may select."""
        if pods.selector.nothing:
            return
        choices = _required_labels(pods.selector)
        for name in tuple(self._classes) if pods.namespaces is None else pods.namespaces:
            if name in self._classes:
                candidates = [[self._with_label(name, pair) for pair in pairs] for pairs in choices]
                yield min(candidates, key=lambda lists: sum(map(len, lists)))

    def _with_label(self, namespace: str, pair: Pair | None) -> Sequence[PodClass]:
        """Return the classes of *namespace* that have the label; all if it is None."""
        classes = self._classes[namespace]
        if pair is None:
            return classes
        key, value = pair
        number, by_value = self._indexed.get((namespace, key)) or (0, defaultdict(list))
        if number < len(classes):
            for pod in classes[number:]:
                if (own := pod.labels.get(key)) is not None:
                    by_value[own].append(pod)
            self._indexed[namespace, key] = len(classes), by_value
        return by_value.get(value, ())


class SelectorRegistry(Generic[_T]):
    """A lookup of items by pod selector: finds the items that may select a class, at O(its labels + candidates)."""

    def __init__(self) -> None:
        self._items: defaultdict[_LookupKey, list[_T]] = defaultdict(list)
        self._keys: set[str] = set()  #: of the labels in the lookup keys

    def add(self, item: _T, pods: PodSelector) -> None:
        """Register *item*, which must not select any class that *pods* does not select."""
        if pods.selector.nothing:
            return
        has_few = pods.namespaces is not None and len(pods.namespaces) <= _FEW_NAMESPACES
        namespaces = tuple(pods.namespaces) if pods.namespaces is not None and has_few else (None,)
        choices = [
            [(namespace, pair) for namespace in namespaces for pair in pairs]
            for pairs in _required_labels(pods.selector)
        ]
        for key in min(choices, key=lambda keys: sum(len(self._items.get(key, ())) for key in keys)):
            self._items[key].append(item)
            if (pair := key[1]) is not None:
                self._keys.add(pair[0])

    def discard(self, dropped: Callable[[_T], bool]) -> None:
        """Remove the items that are *dropped*."""
        kept = {key: [item for item in items if not dropped(item)] for key, items in self._items.items()}
        self._items = defaultdict(list, {key: items for key, items in kept.items() if items})

    def candidates(self, pod: PodClass) -> Iterator[_T]:
        """Yield the items that may select the class, each once. Callers must check whether they do."""
        items, namespace = self._items, pod.namespace
        if not items:
            return
        labels = pod.labels
        known = labels.keys() & self._keys if len(labels) > _FEW_LABELS else labels
        for pair in (None, *[(key, value) for key, value in labels.items() if key in known]):
            yield from items.get((namespace, pair), ())
            yield from items.get((None, pair), ())


def _required_labels(selector: Selector) -> list[tuple[Pair | None, ...]]:
    """Return a few sets of labels, such that everything that *selector* matches has exactly one label of each set.

    Returns [(None,)] if the selector requires no label.
    """
    choices: list[tuple[Pair | None, ...]] = [(pair,) for pair in selector.pairs[:_FEW_CHOICES]]
    choices += [tuple((key, value) for value in values) for key, operator, values in selector.tests if operator == "In"]
    return choices or [(None,)]


# Terms of pod affinity and anti-affinity, as parsed by the scheduler (``kube-scheduler/framework/types.go``).


class AffinityTerm(NamedTuple):
    """A parsed term. The API server has already merged ``matchLabelKeys`` into the label selector."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def matches(self, pod: PodClass, labels_of: Callable[[str], Mapping[str, str]]) -> bool:
        """Return whether the term matches pods of the class (``AffinityTerm.Matches``).

        *labels_of* returns the labels of a namespace by name.
        """
        return (
            pod.namespace in self.namespaces or self.namespace_selector.matches(labels_of(pod.namespace))
        ) and self.selector.matches(pod.labels)

    def may_concern(self, namespace: str) -> bool:
        """Return whether the term may match pods of *namespace*, regardless of its labels."""
        return namespace in self.namespaces or not self.namespace_selector.nothing

    @property
    def units(self) -> int:
        """The units of work of one evaluation."""
        return self.selector.units + self.namespace_selector.units

    @property
    def broadest_selector(self) -> PodSelector:
        """A selector of every pod that the term can match, regardless of namespace labels."""
        return PodSelector(self.namespaces if self.namespace_selector.nothing else None, self.selector)

    def pod_selector(self, namespaces: Mapping[str, Mapping[str, str]], version: SchedulerVersion) -> PodSelector:
        """Return the pods that the term of an incoming pod selects; *namespaces* maps existing names to labels.

        The scheduler adds the selected namespaces to the listed ones (``mergeAffinityTermNamespacesIfNotEmpty``).
        Until 1.36 it keeps the namespace selector and later matches it against empty labels, so a selector that
        matches empty labels (``DoesNotExist``, ``NotIn``) selects every namespace.
        """
        selector = self.namespace_selector
        if selector.everything or (selector.matches({}) and not version.has(VersionRule.NAMESPACES_MERGED)):
            return PodSelector(None, self.selector)
        selected = () if selector.nothing else (name for name, labels in namespaces.items() if selector.matches(labels))
        return PodSelector(self.namespaces.union(selected), self.selector)


class AffinityTerms(NamedTuple):
    """The required terms of a class. If a selector is invalid, its list is empty and ``error`` is the message."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    error: str = ""


_NO_TERMS: Final = AffinityTerms()


def affinity_terms(pod: PodClass) -> AffinityTerms:
    """Return the required terms of the class. Preferred terms are parsed too, for errors (``framework.NewPodInfo``)."""
    if (affinity := pod.spec.affinity) is None or affinity.pod_affinity is affinity.pod_anti_affinity is None:
        return _NO_TERMS
    return _parse_terms(pod)


#: The units of work to read a term, a requirement, and a value.
_TERM, _REQUIREMENT, _VALUE = 20, 20, 2


def reading_units(pod: PodClass) -> int:
    """Return the units of work to read the terms of the class, required and preferred ones."""
    return sum(_TERM + len(term.namespaces) + sum(map(_selector_units, _selectors(term))) for term in _all_terms(pod))


def _all_terms(pod: PodClass) -> Iterator[PodAffinityTerm]:
    if (affinity := pod.spec.affinity) is not None:
        for kind in (affinity.pod_affinity, affinity.pod_anti_affinity):
            if kind is not None:
                yield from kind.required
                yield from (each.pod_affinity_term for each in kind.preferred)


def _selectors(term: PodAffinityTerm) -> Iterator[LabelSelector]:
    return filter(None, (term.label_selector, term.namespace_selector))


def _selector_units(selector: LabelSelector) -> int:
    values = sum(len(each.values) for each in selector.match_expressions)
    return _REQUIREMENT * (len(selector.match_labels) + len(selector.match_expressions)) + _VALUE * values


def keys_repelling_others(pod: PodClass) -> frozenset[str]:
    """Return the topology keys of the anti-affinity terms of the class that may match pods of other namespaces."""
    affinity = pod.spec.affinity
    repel = affinity.pod_anti_affinity if affinity is not None else None
    if repel is None:
        return frozenset()
    own = (pod.namespace,)
    return frozenset(
        term.topology_key
        for term in repel.required
        if term.namespace_selector is not None or (term.namespaces and tuple(term.namespaces) != own)
    )


def repelling_all(key: str) -> AffinityTerm:
    """Return an anti-affinity term that matches every pod."""
    return AffinityTerm(frozenset(), EVERYTHING, EVERYTHING, key)


def forget_terms() -> None:
    """Drop the parsed terms and selectors, which keep classes in memory; they are parsed again on demand."""
    _parse_terms.cache_clear()
    forget_selectors()


@lru_cache(maxsize=8192)
def _parse_terms(pod: PodClass) -> AffinityTerms:
    affinity = pod.spec.affinity
    assert affinity is not None
    attract, repel = affinity.pod_affinity, affinity.pod_anti_affinity
    required, affinity_error = _parse(pod, attract.required if attract else ())
    required_anti, anti_affinity_error = _parse(pod, repel.required if repel else ())
    _, preferred_error = _parse(pod, (term.pod_affinity_term for term in attract.preferred) if attract else ())
    _, preferred_anti_error = _parse(pod, (term.pod_affinity_term for term in repel.preferred) if repel else ())
    errors = [
        f"{name}: {error}"
        for name, error in (
            ("requiredAffinityTerms", affinity_error),
            ("requiredAntiAffinityTerms", anti_affinity_error),
            ("preferredAffinityTerms", preferred_error),
            ("preferredAntiAffinityTerms", preferred_anti_error),
        )
        if error
    ]
    return AffinityTerms(required, required_anti, joined(errors) if errors else "")


class WeightedAffinityTerm(NamedTuple):
    """A term and its weight in scores; negative for anti-affinity."""

    term: AffinityTerm
    weight: int


def preferred_terms(pod: PodClass) -> tuple[WeightedAffinityTerm, ...]:
    """Return the preferred affinity and anti-affinity terms of the class."""
    if (affinity := pod.spec.affinity) is None:
        return ()
    attract, repel = affinity.pod_affinity, affinity.pod_anti_affinity
    return _weighted(pod, attract.preferred if attract else (), 1) + _weighted(
        pod, repel.preferred if repel else (), -1
    )


def terms_scoring_others(pod: PodClass) -> tuple[WeightedAffinityTerm, ...]:
    """Return the terms with which placed pods of the class affect the scores of other pods.

    Required affinity terms have weight 1, the default of ``hardPodAffinityWeight``.
    """
    required = tuple(WeightedAffinityTerm(term, 1) for term in affinity_terms(pod).affinity)
    return required + preferred_terms(pod)


def _weighted(pod: PodClass, terms: Sequence[WeightedPodAffinityTerm], sign: int) -> tuple[WeightedAffinityTerm, ...]:
    parsed, _ = _parse(pod, (weighted.pod_affinity_term for weighted in terms))
    pairs = zip(parsed, terms, strict=False)
    return tuple(WeightedAffinityTerm(term, sign * weighted.weight) for term, weighted in pairs)


def _parse(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> tuple[tuple[AffinityTerm, ...], str]:
    parsed = []
    for term in terms:
        selector, namespace_selector = compile_selector(term.label_selector), compile_selector(term.namespace_selector)
        if error := selector.error or namespace_selector.error:
            return (), error
        own_namespace = not term.namespaces and term.namespace_selector is None
        namespaces = frozenset((pod.namespace,) if own_namespace else term.namespaces)
        parsed.append(AffinityTerm(namespaces, namespace_selector, selector, term.topology_key))
    return tuple(parsed), ""
