"""Pod selectors with namespaces, and lookups in both directions: from selector to classes and from class to selectors.

Both lookups use the labels that a selector requires, so the cost depends on the number of candidates only.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from predicates.objects import PodClass
from predicates.selectors import Pair, Selector

_T = TypeVar("_T")

#: A lookup key: a namespace and a label; None means any.
_LookupKey: TypeAlias = tuple[str | None, Pair | None]

#: A selector with more namespaces than this is registered under its label only.
_FEW_NAMESPACES = 4


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
        self._namespaces: dict[str, dict[Pair | None, list[PodClass]]] = {}
        self._added: defaultdict[str, list[PodClass]] = defaultdict(list)  #: not indexed by label yet

    def add(self, pod: PodClass) -> None:
        """Add a new class. It is indexed, at O(its labels), on the first lookup in its namespace."""
        self._added[pod.namespace].append(pod)

    def matching(self, pods: PodSelector) -> Iterator[PodClass]:
        """Yield the classes that *pods* selects. Costs O(classes that have the rarest label of the selector)."""
        selector = pods.selector
        if selector.nothing:
            return
        choices = _required_labels(selector)
        for name in {**self._namespaces, **self._added} if pods.namespaces is None else pods.namespaces:
            if by_label := self._by_label(name):
                candidates = [[by_label.get(pair, []) for pair in pairs] for pairs in choices]
                for classes in min(candidates, key=lambda lists: sum(map(len, lists))):
                    yield from (pod for pod in classes if selector.matches(pod.labels))

    def _by_label(self, namespace: str) -> dict[Pair | None, list[PodClass]]:
        by_label = self._namespaces.get(namespace, {})
        if added := self._added.pop(namespace, None):
            self._namespaces[namespace] = by_label
            by_label.setdefault(None, []).extend(added)
            for pod in added:
                for pair in pod.labels.items():
                    by_label.setdefault(pair, []).append(pod)
        return by_label


class SelectorRegistry(Generic[_T]):
    """A lookup of items by pod selector: finds the items that may select a class, at O(its labels + candidates)."""

    def __init__(self) -> None:
        self._items: defaultdict[_LookupKey, list[_T]] = defaultdict(list)

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

    def candidates(self, pod: PodClass) -> Iterator[_T]:
        """Yield the items that may select the class, each once. Callers must check whether they do."""
        items, namespace = self._items, pod.namespace
        if not items:
            return
        for pair in (None, *pod.labels.items()):
            yield from items.get((namespace, pair), ())
            yield from items.get((None, pair), ())


def _required_labels(selector: Selector) -> list[tuple[Pair | None, ...]]:
    """Return sets of labels, such that everything that *selector* matches has exactly one label of each set.

    Returns [(None,)] if the selector requires no label.
    """
    choices: list[tuple[Pair | None, ...]] = [(pair,) for pair in selector.pairs]
    choices += [tuple((key, value) for value in values) for key, operator, values in selector.tests if operator == "In"]
    return choices or [(None,)]
