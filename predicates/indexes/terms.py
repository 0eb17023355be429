"""Terms of pod affinity and anti-affinity as the scheduler reads them (``kube-scheduler/framework/types.go``)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from predicates.indexes.scopes import Scope
from predicates.label_syntax import joined
from predicates.objects import PodAffinityTerm, PodClass, WeightedPodAffinityTerm
from predicates.selectors import Selector, compile_selector


class AffinityTerm(NamedTuple):
    """One required term. ``matchLabelKeys`` has been written into the selector by the API server already."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector
    topology_key: str

    def concerns(self, pod: PodClass, labels_of: Callable[[str], Mapping[str, str]]) -> bool:
        """Whether a placed pod that carries the term means pods of the class (``AffinityTerm.Matches``)."""
        return (
            pod.namespace in self.namespaces or self.namespace_selector.matches(labels_of(pod.namespace))
        ) and self.selector.matches(pod.labels)

    @property
    def widest(self) -> Scope:
        """All that the term can mean, whatever the namespaces are labelled."""
        return Scope(self.namespaces if self.namespace_selector.nothing else None, self.selector)

    def resolved(self, namespaces: Mapping[str, Mapping[str, str]]) -> Scope:
        """What the term of a pod that looks for a node means, with the *namespaces* (name to labels) that there are.

        The scheduler adds the selected namespaces to the listed ones but keeps the selector, and later matches it
        against no labels at all: one that holds for those (``DoesNotExist``, ``NotIn``) takes every namespace
        (``mergeAffinityTermNamespacesIfNotEmpty`` changes a copy).
        """
        selector = self.namespace_selector
        if selector.matches({}):
            return Scope(None, self.selector)
        selected = () if selector.nothing else (name for name, labels in namespaces.items() if selector.matches(labels))
        return Scope(self.namespaces.union(selected), self.selector)


class AffinityTerms(NamedTuple):
    """The required terms of a class; a list with a broken selector is empty, and ``error`` says what is broken."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    error: str = ""


_NO_TERMS: Final = AffinityTerms()


def affinity_terms(pod: PodClass) -> AffinityTerms:
    """The class's terms (``framework.NewPodInfo``): the preferred ones are read as well, for their errors."""
    if (affinity := pod.spec.affinity) is None or affinity.pod_affinity is affinity.pod_anti_affinity is None:
        return _NO_TERMS
    return _terms(pod)


@lru_cache(maxsize=8192)
def _terms(pod: PodClass) -> AffinityTerms:
    affinity = pod.spec.affinity
    assert affinity is not None
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity
    required, first = _read(pod, near.required if near else ())
    repelled, second = _read(pod, far.required if far else ())
    _, third = _read(pod, (one.pod_affinity_term for one in near.preferred) if near else ())
    _, fourth = _read(pod, (one.pod_affinity_term for one in far.preferred) if far else ())
    errors = [
        f"{name}: {error}"
        for name, error in (
            ("requiredAffinityTerms", first),
            ("requiredAntiAffinityTerms", second),
            ("preferredAffinityTerms", third),
            ("preferredAntiAffinityTerms", fourth),
        )
        if error
    ]
    return AffinityTerms(required, repelled, joined(errors) if errors else "")


class WeightedTerm(NamedTuple):
    """A term and what it is worth to whom it means; less than 0 for one that repels."""

    term: AffinityTerm
    weight: int


def preferred_terms(pod: PodClass) -> tuple[WeightedTerm, ...]:
    """What pods of the class would rather be near to, and far from."""
    if (affinity := pod.spec.affinity) is None:
        return ()
    near, far = affinity.pod_affinity, affinity.pod_anti_affinity
    return _weighted(pod, near.preferred if near else (), 1) + _weighted(pod, far.preferred if far else (), -1)


def attracting_terms(pod: PodClass) -> tuple[WeightedTerm, ...]:
    """What placed pods of the class do to the scores of others: what they require of neighbours is worth 1.

    1 is the default of ``hardPodAffinityWeight``.
    """
    required = tuple(WeightedTerm(one, 1) for one in affinity_terms(pod).affinity)
    return required + preferred_terms(pod)


def _weighted(pod: PodClass, terms: Sequence[WeightedPodAffinityTerm], sign: int) -> tuple[WeightedTerm, ...]:
    found, _ = _read(pod, (one.pod_affinity_term for one in terms))
    return tuple(WeightedTerm(term, sign * one.weight) for term, one in zip(found, terms, strict=False))


def _read(pod: PodClass, terms: Iterable[PodAffinityTerm]) -> tuple[tuple[AffinityTerm, ...], str]:
    found = []
    for one in terms:
        selector, spaces = compile_selector(one.label_selector), compile_selector(one.namespace_selector)
        if error := selector.error or spaces.error:
            return (), error
        own = not one.namespaces and one.namespace_selector is None
        names = frozenset((pod.namespace,) if own else one.namespaces)
        found.append(AffinityTerm(names, spaces, selector, one.topology_key))
    return tuple(found), ""
