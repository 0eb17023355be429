"""Which pods are meant: a selector and namespaces. Found from either side at the cost of what can match.

A new selector looks for the classes it selects, a new class for the selectors that select it. Both go by the
label pairs that a selector cannot do without.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from predicates.objects import PodClass
from predicates.selectors import Pair, Selector

_T = TypeVar("_T")

#: A namespace and a label that a class must have to be found here; None stands for any.
_Anchor: TypeAlias = tuple[str | None, Pair | None]

#: With more namespaces than this, a selector is looked for under its label alone.
_FEW_NAMESPACES = 4


class Scope(NamedTuple):
    """Pods of these namespaces (None: of all) that the selector takes."""

    namespaces: frozenset[str] | None
    selector: Selector

    def matches(self, pod: PodClass) -> bool:
        """Whether pods of the class are meant."""
        namespaces = self.namespaces
        return (namespaces is None or pod.namespace in namespaces) and self.selector.matches(pod.labels)


class Directory:
    """Classes of pods by namespace and label pair."""

    def __init__(self) -> None:
        self._spaces: dict[str, dict[Pair | None, list[PodClass]]] = {}
        self._added: defaultdict[str, list[PodClass]] = defaultdict(list)  #: not entered by their labels yet

    def add(self, pod: PodClass) -> None:
        """Enter a class that was not here before. Costs O(its labels) once somebody looks into its namespace."""
        self._added[pod.namespace].append(pod)

    def matching(self, scope: Scope) -> Iterator[PodClass]:
        """The classes that are meant. Costs O(those that share the rarest of the selector's pairs)."""
        selector = scope.selector
        if selector.nothing:
            return
        ways = _ways(selector)
        for name in {**self._spaces, **self._added} if scope.namespaces is None else scope.namespaces:
            if here := self._here(name):
                listed = [[here.get(pair, []) for pair in way] for way in ways]
                for found in min(listed, key=lambda lists: sum(map(len, lists))):
                    yield from (pod for pod in found if selector.matches(pod.labels))

    def _here(self, namespace: str) -> dict[Pair | None, list[PodClass]]:
        here = self._spaces.get(namespace, {})
        if added := self._added.pop(namespace, None):
            self._spaces[namespace] = here
            here.setdefault(None, []).extend(added)
            for pod in added:
                for pair in pod.labels.items():
                    here.setdefault(pair, []).append(pod)
        return here


class Register(Generic[_T]):
    """Things that select classes, found from a class at the cost of its labels and of what may select it."""

    def __init__(self) -> None:
        self._things: defaultdict[_Anchor, list[_T]] = defaultdict(list)

    def add(self, thing: _T, scope: Scope) -> None:
        """Enter a *thing* that selects no class outside *scope*."""
        if scope.selector.nothing:
            return
        some = scope.namespaces
        spaces = (None,) if some is None or len(some) > _FEW_NAMESPACES else tuple(some)
        choices = [[(space, pair) for space in spaces for pair in way] for way in _ways(scope.selector)]
        for anchor in min(choices, key=lambda anchors: sum(len(self._things.get(one, ())) for one in anchors)):
            self._things[anchor].append(thing)

    def candidates(self, pod: PodClass) -> Iterator[_T]:
        """What may select the class, each thing once; whether it does is for the caller to see."""
        things, namespace = self._things, pod.namespace
        if not things:
            return
        for pair in (None, *pod.labels.items()):
            yield from things.get((namespace, pair), ())
            yield from things.get((None, pair), ())


def _ways(selector: Selector) -> list[tuple[Pair | None, ...]]:
    """Sets of label pairs, of each of which everything selected has exactly one; (None,) where there is no such set."""
    ways: list[tuple[Pair | None, ...]] = [(pair,) for pair in selector.pairs]
    ways += [tuple((key, value) for value in values) for key, operator, values in selector.tests if operator == "In"]
    return ways or [(None,)]
