"""Label selectors compiled for repeated matching.

Source: ``metav1.LabelSelectorAsSelector``, ``apimachinery/pkg/labels/selector.go``.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from predicates.label_syntax import joined, requirement_errors
from predicates.objects import LabelSelector, Requirement

Pair: TypeAlias = tuple[str, str]

SET_OPERATORS: Final = ("In", "NotIn")
_PRESENCE_OPERATORS: Final = ("Exists", "DoesNotExist")


class Selector:
    """A compiled label selector. Selectors with equal requirements are equal. Matching costs O(requirements).

    ``pairs`` are the labels that must have one given value; ``tests`` are all other requirements, as (key, operator,
    values). ``error`` is the scheduler's message if the selector is invalid; an invalid selector matches nothing.
    """

    __slots__ = ("_hash", "error", "nothing", "pairs", "tests")

    def __init__(
        self,
        pairs: Iterable[Pair] = (),
        tests: Iterable[tuple[str, str, frozenset[str]]] = (),
        *,
        nothing: bool = False,
        error: str = "",
    ) -> None:
        self.pairs: tuple[Pair, ...] = tuple(sorted(set(pairs)))
        self.tests = tuple(sorted(set(tests), key=lambda test: (test[0], test[1], sorted(test[2]))))
        self.nothing = nothing  #: whether it matches nothing
        self.error = error
        self._hash = hash((self.pairs, self.tests, nothing, error))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the selector matches *labels*."""
        if self.nothing:
            return False
        for key, value in self.pairs:
            if labels.get(key) != value:
                return False
        return not self.tests or all(
            _matches_value(operator, labels.get(key), values) for key, operator, values in self.tests
        )

    @property
    def everything(self) -> bool:
        """Whether the selector matches all labels."""
        return not (self.pairs or self.tests or self.nothing)

    def narrowed(self, pairs: Iterable[Pair]) -> "Selector":
        """Return this selector with *pairs* as additional required labels (``matchLabelKeys``)."""
        return Selector((*self.pairs, *pairs), self.tests, nothing=self.nothing, error=self.error)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selector):
            return NotImplemented
        return self is other or (
            self._hash == other._hash
            and (self.pairs, self.tests, self.nothing, self.error)
            == (other.pairs, other.tests, other.nothing, other.error)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Selector({self.pairs!r}, {self.tests!r}, nothing={self.nothing!r}, error={self.error!r})"


NOTHING: Final = Selector(nothing=True)
EVERYTHING: Final = Selector()


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile *selector*. None matches nothing, an empty selector everything. An invalid one has ``error`` set."""
    if selector is None:
        return NOTHING
    return _compile(tuple(selector.match_labels.items()), selector.match_expressions)


@lru_cache(maxsize=8192)
def _compile(labels: tuple[Pair, ...], expressions: tuple[Requirement, ...]) -> Selector:
    """Compile with a cache: workloads repeat the same selector in budgets, affinity terms and spread constraints."""
    pairs = []
    tests = []
    equals = (Requirement(key=key, operator="In", values=(value,)) for key, value in labels)
    for requirement in (*equals, *expressions):
        if error := requirement_error(requirement):
            return Selector(nothing=True, error=error)
        if requirement.operator == "In" and len(requirement.values) == 1:
            pairs.append((requirement.key, requirement.values[0]))
        else:
            tests.append((requirement.key, requirement.operator, frozenset(requirement.values)))
    return Selector(pairs, tests)


def _matches_value(operator: str, value: str | None, values: frozenset[str]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def requirement_error(requirement: Requirement) -> str:
    """Return the scheduler's error for a requirement of a label selector, or "" if it is valid."""
    if requirement.operator not in (*SET_OPERATORS, *_PRESENCE_OPERATORS):
        return f'"{requirement.operator}" is not a valid label selector operator'
    errors = requirement_errors(requirement.key, requirement.values, _values_error(requirement))
    return joined(errors) if errors else ""


def _values_error(requirement: Requirement) -> str | None:
    if requirement.operator in SET_OPERATORS:
        return None if requirement.values else "for 'in', 'notin' operators, values set can't be empty"
    return "values set must be empty for exists and does not exist" if requirement.values else None
