"""Node selectors, as in ``nodeaffinity.LazyErrorNodeSelector`` of 0.36.3."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates.node_selectors import all_terms_valid, node_labels_mask, node_selector_mask
from predicates.nodes import ALL
from predicates.objects import NodeSelector, Requirement
from predicates.snapshot import Snapshot
from tests.conformance.builders import node
from tests.conformance.generate.world import Json
from tests.predicates.asking import load

NODES = (
    node("n1", labels={"zone": "a", "slots": "5"}),
    node("n2", labels={"zone": "b", "slots": "10"}),
    node("n3", labels={"zone": "", "slots": "ten"}),
    node("n4", labels={"slots": "9223372036854775808"}),
)


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def _term(*expressions: Json, fields: tuple[Json, ...] = ()) -> Json:
    return {"matchExpressions": expressions, "matchFields": fields}


TERMS: dict[str, tuple[list[Json], set[str]]] = {
    "no terms": ([], set()),
    "an empty term": ([_term()], set()),
    "In": ([_term(_expression("zone", "In", "a"))], {"n1"}),
    "In several": ([_term(_expression("zone", "In", "a", "", "x"))], {"n1", "n3"}),
    "In with a value that no node has": ([_term(_expression("zone", "In", "x"))], set()),
    "NotIn matches nodes without the label": ([_term(_expression("zone", "NotIn", "a"))], {"n2", "n3", "n4"}),
    "Exists": ([_term(_expression("zone", "Exists"))], {"n1", "n2", "n3"}),
    "DoesNotExist": ([_term(_expression("zone", "DoesNotExist"))], {"n4"}),
    "Gt compares numbers": ([_term(_expression("slots", "Gt", "7"))], {"n2"}),
    "Lt reads leading zeros": ([_term(_expression("slots", "Lt", "007"))], {"n1"}),
    "expressions are ANDed": (
        [_term(_expression("zone", "Exists"), _expression("slots", "Gt", "0"))],
        {"n1", "n2"},
    ),
    "terms are ORed": ([_term(_expression("zone", "In", "a")), _term(_expression("zone", "In", "b"))], {"n1", "n2"}),
    "name": ([_term(fields=(_expression("metadata.name", "In", "n2"),))], {"n2"}),
    "NotIn name": ([_term(fields=(_expression("metadata.name", "NotIn", "n2"),))], {"n1", "n3", "n4"}),
    "name of no node": ([_term(fields=(_expression("metadata.name", "In", "x"),))], set()),
    "unsupported fields are empty": ([_term(fields=(_expression("spec.x", "In", ""),))], {"n1", "n2", "n3", "n4"}),
    "name and label": (
        [_term(_expression("zone", "In", "a"), fields=(_expression("metadata.name", "In", "n2"),))],
        set(),
    ),
}

BROKEN_TERMS: dict[str, Json] = {
    "Gt with text": _term(_expression("slots", "Gt", "ten")),
    "Gt with two numbers": _term(_expression("slots", "Gt", "1", "2")),
    "Gt with a sign, which is not a valid label value": _term(_expression("slots", "Gt", "-1")),
    "Lt beyond 64 bits": _term(_expression("slots", "Lt", "9223372036854775808")),
    "In without values": _term(_expression("zone", "In")),
    "In with an invalid label value": _term(_expression("zone", "In", "a", "has space")),
    "Exists with values": _term(_expression("zone", "Exists", "a")),
    "unknown operator": _term(_expression("zone", "Is", "a")),
    "no operator": _term(_expression("zone", "", "a")),
    "invalid key": _term(_expression("zone!", "DoesNotExist")),
    "two names": _term(fields=(_expression("metadata.name", "In", "n1", "n2"),)),
    "no name": _term(fields=(_expression("metadata.name", "NotIn"),)),
    "a name that exists": _term(fields=(_expression("metadata.name", "Exists"),)),
}


def _nodes(terms: list[Json]) -> tuple[NodeSelector, Snapshot, set[str]]:
    selector, table = msgspec.convert({"nodeSelectorTerms": terms}, NodeSelector), load(*NODES)
    mask = node_selector_mask(selector, table, ALL) & table.nodes.alive
    rows = np.array([table.nodes.row[name] for name in ("n4", "n2")])
    assert node_selector_mask(selector, table, rows).tolist() == mask[rows].tolist()
    return selector, table, {table.nodes.names[row] for row in np.flatnonzero(mask)}


@pytest.mark.parametrize(("terms", "expected"), TERMS.values(), ids=TERMS)
def test_node_selector_matches(terms: list[Json], expected: set[str]) -> None:
    selector, _, mask = _nodes(terms)
    assert (mask, all_terms_valid(selector)) == (expected, True)


@pytest.mark.parametrize("term", BROKEN_TERMS.values(), ids=BROKEN_TERMS)
def test_invalid_term_matches_no_node_and_does_not_affect_others(term: Json) -> None:
    selector, _, mask = _nodes([term, _term(_expression("zone", "In", "b"))])
    assert (mask, all_terms_valid(selector)) == ({"n2"}, False)


def test_changed_node_labels_are_used() -> None:
    selector, table, mask = _nodes([_term(_expression("zone", "In", "a"))])
    table.upsert("Node", load(node("n4", labels={"zone": "a"})).nodes.nodes[0])  # type: ignore[arg-type]
    now = node_selector_mask(selector, table, ALL)
    assert (mask, {table.nodes.names[row] for row in np.flatnonzero(now)}) == ({"n1"}, {"n1", "n4"})


def test_node_labels_are_compared_as_text() -> None:
    table = load(*NODES)
    mask = node_labels_mask([("zone", ""), ("slots", "ten")], table, ALL)
    assert [table.nodes.names[row] for row in np.flatnonzero(mask)] == ["n3"]


_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2", "30"]), max_size=3)
_EXPRESSIONS = st.tuples(
    st.sampled_from("abc"),
    st.sampled_from([("Exists", 0), ("DoesNotExist", 0), ("In", 2), ("NotIn", 2), ("Gt", 1), ("Lt", 1)]),
    st.sampled_from(["1", "2", "30"]),
    st.sampled_from(["", "1"]),
)


@given(_LABELS, st.lists(_EXPRESSIONS, min_size=1, max_size=3))
def test_columns_match_the_labels_of_single_nodes(labels: dict[str, str], given_: list[tuple[Any, ...]]) -> None:
    requirements = [
        Requirement(key=key, operator=operator, values=(value, other)[:count])
        for key, (operator, count), value, other in given_
    ]
    table = load(node("n", labels=labels), node("other", labels={"a": "1", "b": "40"}))
    term = {"matchExpressions": [msgspec.to_builtins(requirement) for requirement in requirements]}
    mask = node_selector_mask(msgspec.convert({"nodeSelectorTerms": [term]}, NodeSelector), table, ALL)
    assert mask[table.nodes.row["n"]] == all(
        _holds(requirement, labels.get(requirement.key)) for requirement in requirements
    )


def _holds(requirement: Requirement, value: str | None) -> bool:
    number = int(value) if value else None
    return {
        "Exists": value is not None,
        "DoesNotExist": value is None,
        "In": value in requirement.values,
        "NotIn": value not in requirement.values,
        "Gt": number is not None and bool(requirement.values) and number > int(requirement.values[0]),
        "Lt": number is not None and bool(requirement.values) and number < int(requirement.values[0]),
    }[requirement.operator]
