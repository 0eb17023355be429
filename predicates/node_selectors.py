"""Node selectors evaluated for many nodes at once, and tolerations of taints.

Source: ``component-helpers/scheduling/corev1/nodeaffinity``.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from predicates.nodes import Flags, LabelColumn, Rows
from predicates.objects import NodeSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from predicates.selectors import SET_OPERATORS, Pair, joined, requirement_error, requirement_errors
from predicates.snapshot import Snapshot

_ORDER_OPERATORS: Final = ("Gt", "Lt")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64: Final = range(-(2**63), 2**63)
_LONGEST_INT64: Final = 19  #: digits
_NO_VALUE: Final = -2  #: the value number of no row
_CACHED_REQUIREMENTS: Final = 1024  #: per label


def node_selector_mask(selector: NodeSelector, snapshot: Snapshot, rows: Rows) -> Flags:
    """Return which of *rows* match any term of *selector*, as a new array. Unused rows have no labels.

    A term without requirements, or with an invalid one, matches no node (``LazyErrorNodeSelector``).
    Costs O(rows x requirements), plus O(distinct label values) once for each requirement other than ``In`` with a
    single value.
    """
    mask: Flags = np.zeros(len(snapshot.nodes.alive[rows]), np.bool_)
    for term in selector.node_selector_terms:
        if valid_term(term):
            mask |= _term_mask(term, snapshot, rows)
    return mask


def node_labels_mask(labels: Iterable[Pair], snapshot: Snapshot, rows: Rows) -> Flags:
    """Return which of *rows* have all of *labels* (``nodeSelector``), as a new array."""
    mask: Flags = np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    for key, value in labels:
        column = snapshot.nodes.label(key)
        mask &= column.ids[rows] == column.number.get(value, _NO_VALUE)
    return mask


def all_terms_valid(selector: NodeSelector) -> bool:
    """Return whether all non-empty terms are valid (``NewNodeSelector``)."""
    return all(valid_term(term) for term in selector.node_selector_terms if term.match_expressions or term.match_fields)


@lru_cache(maxsize=4096)
def valid_term(term: NodeSelectorTerm) -> bool:
    """Return whether the term has requirements and the scheduler can parse all of them."""
    if not (term.match_expressions or term.match_fields):
        return False
    return not any(map(_node_error, term.match_expressions)) and all(
        field.operator in SET_OPERATORS and len(field.values) == 1 for field in term.match_fields
    )


def _node_error(requirement: Requirement) -> str:
    """Return the scheduler's error for a requirement of a node selector, or "" if it is valid."""
    if requirement.operator in _ORDER_OPERATORS:
        invalid = len(requirement.values) != 1 or _parse_int64(requirement.values[0]) is None
        values_error = "exactly one integer is required" if invalid else None
        errors = requirement_errors(requirement.key, requirement.values, values_error)
        return joined(errors) if errors else ""
    return requirement_error(requirement)


def _term_mask(term: NodeSelectorTerm, snapshot: Snapshot, rows: Rows) -> Flags:
    mask: Flags = np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    for expression in term.match_expressions:
        mask &= _expression_mask(expression, snapshot.nodes.label(expression.key), rows)
    for field in term.match_fields:
        mask &= _field_mask(field, snapshot, rows)
    return mask


def _expression_mask(requirement: Requirement, column: LabelColumn, rows: Rows) -> Flags:
    ids = column.ids[rows]
    if requirement.operator == "In" and len(requirement.values) == 1:
        equal: Flags = ids == column.number.get(requirement.values[0], _NO_VALUE)
        return equal
    cache = column.verdicts
    verdicts = cache.get(requirement)
    if verdicts is None or len(verdicts) != len(column.values) + 1:
        if len(cache) >= _CACHED_REQUIREMENTS:
            cache.clear()
        verdicts = cache[requirement] = _verdicts(requirement, column)
    return verdicts[ids]


def _verdicts(requirement: Requirement, column: LabelColumn) -> Flags:
    """Evaluate the requirement for each value of the label; the last entry is for rows without it (MISSING is -1)."""
    verdicts: Flags = np.full(len(column.values) + 1, requirement.operator in ("NotIn", "Exists"))
    verdicts[-1] = requirement.operator in ("NotIn", "DoesNotExist")
    if requirement.operator in SET_OPERATORS:
        listed = [column.number[value] for value in requirement.values if value in column.number]
        verdicts[listed] = requirement.operator == "In"
    elif requirement.operator in _ORDER_OPERATORS:
        verdicts[:-1] = _compare(requirement, column.values)
    return verdicts


def _compare(requirement: Requirement, values: Sequence[str]) -> list[bool]:
    limit = _parse_int64(requirement.values[0])
    assert limit is not None, "valid_term accepts only integers"
    numbers = map(_parse_int64, values)
    if requirement.operator == "Gt":
        return [number is not None and number > limit for number in numbers]
    return [number is not None and number < limit for number in numbers]


def _parse_int64(text: str) -> int | None:
    """Parse a decimal 64-bit integer like Go's ``strconv.ParseInt``; return None for any other text."""
    digits = text.lstrip("+-").lstrip("0")
    if not _INTEGER.fullmatch(text) or len(digits) > _LONGEST_INT64:
        return None
    number = int(digits or "0") * (-1 if text.startswith("-") else 1)
    return number if number in _INT64 else None


def _field_mask(requirement: Requirement, snapshot: Snapshot, rows: Rows) -> Flags:
    """Evaluate a ``matchFields`` entry. Only ``metadata.name`` is supported; any other field has the value ""."""
    equal: Flags = np.zeros(len(snapshot.nodes), np.bool_)
    if requirement.key != "metadata.name":
        equal[:] = not requirement.values[0]
    elif (row := snapshot.nodes.row.get(requirement.values[0])) is not None:
        equal[row] = True
    mask = equal[rows]
    return mask if requirement.operator == "In" else ~mask


# Taints and tolerations (``v1.Toleration.ToleratesTaint``).

HARD_EFFECTS = ("NoSchedule", "NoExecute")


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether *toleration* tolerates *taint*.

    An empty key or effect matches every key or effect; an empty operator means ``Equal``. The operators ``Gt`` and
    ``Lt`` never match: their feature gate is off by default in 1.36.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    """Return whether any of *tolerations* tolerates *taint*."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def first_untolerated(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> Taint | None:
    """Return the first NoSchedule or NoExecute taint that is not tolerated, or None."""
    hard = (taint for taint in taints if taint.effect in HARD_EFFECTS)
    return next((taint for taint in hard if not tolerated(taint, tolerations)), None)
