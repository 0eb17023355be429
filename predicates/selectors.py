"""Label selectors compiled for repeated matching, and the validation of label keys and values."""

import json
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from predicates.objects import LabelSelector, Requirement

# Validation of label keys and values, with the error messages of the API server.
#
# Source: ``apimachinery/pkg/api/validate/content/kube.go``, ``pkg/labels/selector.go`` (``NewRequirement``). The
# scheduler quotes these messages when it rejects a pod with an invalid selector. Lengths are in bytes of UTF-8.

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_IS_NAME: Final = re.compile(_NAME)
_ARE_VALUES: Final = re.compile(f"(?>(?:{_NAME})?\n)*(?:{_NAME})?")  #: one in each line
_IS_DOMAIN: Final = re.compile(_DOMAIN)
_LONGEST_NAME: Final = 63
_LONGEST_DOMAIN: Final = 253

_CHARACTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_RULE: Final = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_RULE: Final = (
    f"a valid label must be an empty string or {_CHARACTERS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_NAME})?')"
)
_DOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_DOMAIN}')"
)


@lru_cache(maxsize=4096)
def key_errors(key: str) -> Sequence[str]:
    """Return the reasons why *key* is not a valid label key; empty if it is valid."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    errors = [f"prefix part {error}" for error in _domain_errors(prefix)] if slash else []
    if not name:
        errors.append("name part must be non-empty")
    elif _bytes(name) > _LONGEST_NAME:
        errors.append(f"name part {_too_long(_LONGEST_NAME)}")
    if not _IS_NAME.fullmatch(name):
        errors.append(f"name part {_NAME_RULE}")
    return errors


def value_errors(value: str) -> Sequence[str]:
    """Return the reasons why *value* is not a valid label value; empty if it is valid."""
    if not value or (_IS_NAME.fullmatch(value) and len(value) <= _LONGEST_NAME):
        return ()
    errors = [_too_long(_LONGEST_NAME)] if _bytes(value) > _LONGEST_NAME else []
    if not _IS_NAME.fullmatch(value):
        errors.append(_VALUE_RULE)
    return errors


def requirement_errors(key: str, values: Sequence[str], values_error: str | None) -> list[str]:
    """Return all errors of a requirement. *values_error* is the error if the values are invalid for its operator."""
    errors = []
    if invalid := key_errors(key):
        errors.append(f"key: Invalid value: {_quoted(key)}: {'; '.join(invalid)}")
    if values_error is not None:
        values_json = json.dumps(values, ensure_ascii=False, separators=(",", ":")) if values else "null"
        errors.append(f"values: Invalid value: {values_json}: {values_error}")
    for position, value in enumerate(() if _are_values(values) else values):
        if invalid := value_errors(value):
            errors.append(f"values[{position}][{key}]: Invalid value: {_quoted(value)}: {'; '.join(invalid)}")
    return errors


def _are_values(values: Sequence[str]) -> bool:
    """Return whether all *values* are valid label values, faster than one by one."""
    lines = "\n".join(values)
    one_each = lines.count("\n") == len(values) - 1 and max(map(len, values)) <= _LONGEST_NAME
    return one_each and _ARE_VALUES.fullmatch(lines) is not None


def joined(errors: Sequence[str]) -> str:
    """Join *errors* into one message without duplicates (``apimachinery/pkg/util/errors``)."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def _domain_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["must be non-empty"]
    errors = [_too_long(_LONGEST_DOMAIN)] if _bytes(prefix) > _LONGEST_DOMAIN else []
    if not _IS_DOMAIN.fullmatch(prefix):
        errors.append(_DOMAIN_RULE)
    return errors


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


# Label selectors compiled for repeated matching.
#
# Source: ``metav1.LabelSelectorAsSelector``, ``apimachinery/pkg/labels/selector.go``.

Pair: TypeAlias = tuple[str, str]

SET_OPERATORS: Final = ("In", "NotIn")
OPERATORS: Final = (*SET_OPERATORS, "Exists", "DoesNotExist")


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
            is_allowed(operator, labels.get(key), values) for key, operator, values in self.tests
        )

    @property
    def units(self) -> int:
        """The units of work (:mod:`predicates.work`) of one evaluation."""
        return 1 + (len(self.pairs) + len(self.tests)) // 4

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


def forget_selectors() -> None:
    """Drop the compiled selectors: those of workloads that are gone would stay. They are compiled again on demand."""
    _compile.cache_clear()


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


def is_allowed(operator: str, value: str | None, values: Container[str]) -> bool:
    """Return whether a label with *value*, or without one, meets a requirement with one of :data:`OPERATORS`."""
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
    if requirement.operator not in OPERATORS:
        return f'"{requirement.operator}" is not a valid label selector operator'
    errors = requirement_errors(requirement.key, requirement.values, _values_error(requirement))
    return joined(errors) if errors else ""


def _values_error(requirement: Requirement) -> str | None:
    if requirement.operator in SET_OPERATORS:
        return None if requirement.values else "for 'in', 'notin' operators, values set can't be empty"
    return "values set must be empty for exists and does not exist" if requirement.values else None
