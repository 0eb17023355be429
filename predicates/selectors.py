"""Selectors, compiled once and asked often: of labels (pods, namespaces), and of nodes as columns.

Source: ``metav1.LabelSelectorAsSelector``, ``apimachinery/pkg/labels/selector.go``,
``component-helpers/scheduling/corev1/nodeaffinity``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from predicates.label_syntax import joined, requirement_errors
from predicates.nodes import Flags, LabelColumn, Rows
from predicates.objects import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from predicates.snapshot import Snapshot

Pair: TypeAlias = tuple[str, str]

_SET_OPERATORS: Final = ("In", "NotIn")
_PRESENCE_OPERATORS: Final = ("Exists", "DoesNotExist")
_ORDER_OPERATORS: Final = ("Gt", "Lt")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64: Final = range(-(2**63), 2**63)
_LONGEST_INT64: Final = 19  #: digits
_NO_VALUE: Final = -2  #: is no row's
_KEPT: Final = 1024  #: judged requirements of one label


class Selector:
    """A label selector. Equal and hashed by what it asks for; asking costs O(its requirements).

    ``pairs`` are the requirements that one label has one value: what matches carries all of them.
    ``error`` is the scheduler's text where the selector is broken; such a one matches nothing.
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
        self.tests = tuple(sorted(set(tests), key=lambda one: (one[0], one[1], sorted(one[2]))))
        self.nothing = nothing  #: it matches no labels whatever
        self.error = error
        self._hash = hash((self.pairs, self.tests, nothing, error))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether something with these *labels* is selected."""
        if self.nothing:
            return False
        for key, value in self.pairs:
            if labels.get(key) != value:
                return False
        return not self.tests or all(_holds(operator, labels.get(key), values) for key, operator, values in self.tests)

    @property
    def everything(self) -> bool:
        """It matches any labels."""
        return not (self.pairs or self.tests or self.nothing)

    def narrowed(self, pairs: Iterable[Pair]) -> "Selector":
        """The same selector, and each label of *pairs* must have its value too (``matchLabelKeys``)."""
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
    """None matches nothing, an empty selector everything; a broken one matches nothing and says what is wrong."""
    if selector is None:
        return NOTHING
    return _compiled(tuple(selector.match_labels.items()), selector.match_expressions)


@lru_cache(maxsize=8192)
def _compiled(labels: tuple[Pair, ...], expressions: tuple[Requirement, ...]) -> Selector:
    """Workloads name the same pods in budgets and in terms of every kind."""
    pairs = []
    tests = []
    equals = (Requirement(key=key, operator="In", values=(value,)) for key, value in labels)
    for one in (*equals, *expressions):
        if error := _label_error(one):
            return Selector(nothing=True, error=error)
        if one.operator == "In" and len(one.values) == 1:
            pairs.append((one.key, one.values[0]))
        else:
            tests.append((one.key, one.operator, frozenset(one.values)))
    return Selector(pairs, tests)


def node_selector_mask(selector: NodeSelector, snapshot: Snapshot, rows: Rows) -> Flags:
    """Which of *rows* any term of the selector takes; an array of the caller's own. Empty rows have no labels.

    A term without requirements takes no node, nor does one with an invalid requirement
    (``LazyErrorNodeSelector``). Costs O(rows x requirements), and O(distinct values) once for a requirement other
    than ``In`` with one value.
    """
    taken: Flags = np.zeros(len(snapshot.nodes.alive[rows]), np.bool_)
    for term in selector.node_selector_terms:
        if valid_term(term):
            taken |= _term_mask(term, snapshot, rows)
    return taken


def node_labels_mask(wanted: Iterable[Pair], snapshot: Snapshot, rows: Rows) -> Flags:
    """Which of *rows* carry every label of *wanted* with its value (``nodeSelector``)."""
    taken: Flags = np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    for key, value in wanted:
        column = snapshot.nodes.label(key)
        taken &= column.ids[rows] == column.number.get(value, _NO_VALUE)
    return taken


def parses(selector: NodeSelector) -> bool:
    """Whether no term has an invalid requirement (``NewNodeSelector``)."""
    return all(valid_term(term) for term in selector.node_selector_terms if term.match_expressions or term.match_fields)


@lru_cache(maxsize=4096)
def valid_term(term: NodeSelectorTerm) -> bool:
    """Whether the term has requirements, and all of them could be parsed by the scheduler."""
    if not (term.match_expressions or term.match_fields):
        return False
    return not any(_node_error(one) for one in term.match_expressions) and all(
        one.operator in _SET_OPERATORS and len(one.values) == 1 for one in term.match_fields
    )


def _holds(operator: str, value: str | None, values: frozenset[str]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None


def _label_error(one: Requirement) -> str:
    """The scheduler's text for what is wrong with a requirement of a label selector, "" where nothing is."""
    if one.operator not in (*_SET_OPERATORS, *_PRESENCE_OPERATORS):
        return f'"{one.operator}" is not a valid label selector operator'
    errors = requirement_errors(one.key, one.values, _values_error(one))
    return joined(errors) if errors else ""


def _node_error(one: Requirement) -> str:
    """What is wrong with a requirement of a node selector, "" where nothing is."""
    if one.operator in _ORDER_OPERATORS:
        broken = len(one.values) != 1 or _integer(one.values[0]) is None
        errors = requirement_errors(one.key, one.values, "exactly one integer is required" if broken else None)
        return joined(errors) if errors else ""
    return _label_error(one)


def _values_error(one: Requirement) -> str | None:
    if one.operator in _SET_OPERATORS:
        return None if one.values else "for 'in', 'notin' operators, values set can't be empty"
    return "values set must be empty for exists and does not exist" if one.values else None


def _term_mask(term: NodeSelectorTerm, snapshot: Snapshot, rows: Rows) -> Flags:
    taken: Flags = np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    for one in term.match_expressions:
        taken &= _expression_mask(one, snapshot.nodes.label(one.key), rows)
    for one in term.match_fields:
        taken &= _field_mask(one, snapshot, rows)
    return taken


def _expression_mask(one: Requirement, column: LabelColumn, rows: Rows) -> Flags:
    ids = column.ids[rows]
    if one.operator == "In" and len(one.values) == 1:
        equal: Flags = ids == column.number.get(one.values[0], _NO_VALUE)
        return equal
    kept = column.verdicts
    verdicts = kept.get(one)
    if verdicts is None or len(verdicts) != len(column.values) + 1:
        if len(kept) >= _KEPT:
            kept.clear()
        verdicts = kept[one] = _verdicts(one, column)
    return verdicts[ids]


def _verdicts(one: Requirement, column: LabelColumn) -> Flags:
    """One entry a value, and a last one for rows without the label: MISSING is -1."""
    verdicts: Flags = np.full(len(column.values) + 1, one.operator in ("NotIn", "Exists"))
    verdicts[-1] = one.operator in ("NotIn", "DoesNotExist")
    if one.operator in _SET_OPERATORS:
        verdicts[[column.number[value] for value in one.values if value in column.number]] = one.operator == "In"
    elif one.operator in _ORDER_OPERATORS:
        verdicts[:-1] = _compared(one, column.values)
    return verdicts


def _compared(one: Requirement, values: Sequence[str]) -> list[bool]:
    limit = _integer(one.values[0])
    assert limit is not None  # valid_term has seen to it.
    numbers = map(_integer, values)
    if one.operator == "Gt":
        return [number is not None and number > limit for number in numbers]
    return [number is not None and number < limit for number in numbers]


def _integer(text: str) -> int | None:
    """A decimal number of 64 bits, as Go's ``strconv.ParseInt`` reads it; None for anything else."""
    digits = text.lstrip("+-").lstrip("0")
    if not _INTEGER.fullmatch(text) or len(digits) > _LONGEST_INT64:
        return None
    number = int(digits or "0") * (-1 if text.startswith("-") else 1)
    return number if number in _INT64 else None


def _field_mask(one: Requirement, snapshot: Snapshot, rows: Rows) -> Flags:
    """``metadata.name`` is the one field that a node has; any other reads as empty."""
    named: Flags = np.zeros(len(snapshot.nodes), np.bool_)
    if one.key != "metadata.name":
        named[:] = not one.values[0]
    elif (row := snapshot.nodes.row.get(one.values[0])) is not None:
        named[row] = True
    found = named[rows]
    return found if one.operator == "In" else ~found
