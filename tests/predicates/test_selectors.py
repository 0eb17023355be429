"""Label selectors, as in ``metav1.LabelSelectorAsSelector`` of 0.36.3."""

import msgspec
import pytest

from predicates.objects import LabelSelector
from predicates.selectors import EVERYTHING, NOTHING, compile_selector
from tests.conformance.generate.world import Json

NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
DOMAIN_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def _selector(labels: Json | None = None, *expressions: Json) -> LabelSelector:
    return msgspec.convert({"matchLabels": labels or {}, "matchExpressions": expressions}, LabelSelector)


MATCHES: dict[str, tuple[LabelSelector | None, dict[str, str], bool]] = {
    "no selector selects nothing": (None, {"a": "1"}, False),
    "an empty selector selects all": (_selector(), {}, True),
    "equal value": (_selector({"a": "1"}), {"a": "1", "b": "2"}, True),
    "different value": (_selector({"a": "1"}), {"a": "2"}, False),
    "an empty value is a value": (_selector({"a": ""}), {"a": ""}, True),
    "an empty value is not a missing label": (_selector({"a": ""}), {}, False),
    "In matches any of its values": (_selector(None, _expression("a", "In", "1", "2")), {"a": "2"}, True),
    "In needs the label": (_selector(None, _expression("a", "In", "1", "2")), {}, False),
    "NotIn matches a missing label": (_selector(None, _expression("a", "NotIn", "1")), {}, True),
    "NotIn rejects its values": (_selector(None, _expression("a", "NotIn", "1", "2")), {"a": "2"}, False),
    "Exists matches an empty value": (_selector(None, _expression("a", "Exists")), {"a": ""}, True),
    "Exists needs the label": (_selector(None, _expression("a", "Exists")), {"b": ""}, False),
    "DoesNotExist rejects the label": (_selector(None, _expression("a", "DoesNotExist")), {"a": ""}, False),
    "DoesNotExist matches a missing label": (_selector(None, _expression("a", "DoesNotExist")), {"b": ""}, True),
    "all requirements must hold": (_selector({"a": "1"}, _expression("b", "Exists")), {"a": "1"}, False),
    "contradictory requirements match nothing": (_selector({"a": "1"}, _expression("a", "In", "2")), {"a": "1"}, False),
}


@pytest.mark.parametrize(("selector", "labels", "expected"), MATCHES.values(), ids=MATCHES)
def test_a_label_selector_matches(selector: LabelSelector | None, labels: dict[str, str], expected: bool) -> None:
    assert compile_selector(selector).matches(labels) is expected


ERRORS: dict[str, tuple[LabelSelector, str]] = {
    "In without values": (
        _selector(None, _expression("a", "In")),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    "Exists with values": (
        _selector(None, _expression("a", "Exists", "1", "é")),
        (
            '[values: Invalid value: ["1","é"]: values set must be empty for exists and does not exist, '
            f'values[1][a]: Invalid value: "é": {VALUE_RULE}]'
        ),
    ),
    "Gt is valid only for nodes": (
        _selector(None, _expression("a", "Gt", "1")),
        '"Gt" is not a valid label selector operator',
    ),
    "lower-case operator": (
        _selector(None, _expression("a", "in", "1")),
        '"in" is not a valid label selector operator',
    ),
    "key with a space": (_selector({"a b": "1"}), f'key: Invalid value: "a b": {NAME_RULE}'),
    "no key": (_selector({"": "1"}), f'key: Invalid value: "": name part must be non-empty; {NAME_RULE}'),
    "key without a prefix": (_selector({"/a": "1"}), 'key: Invalid value: "/a": prefix part must be non-empty'),
    "upper-case prefix": (_selector({"A.b/c": "1"}), f'key: Invalid value: "A.b/c": {DOMAIN_RULE}'),
    "prefix too long": (
        _selector({f"{'x' * 254}/c": "1"}),
        f'key: Invalid value: "{"x" * 254}/c": prefix part must be no more than 253 bytes',
    ),
    "two slashes": (
        _selector({"a/b/c": "1"}),
        (
            f'key: Invalid value: "a/b/c": a valid label key {NAME_RULE[len("name part ") :]} with an optional DNS '
            "subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ),
    ),
    "value too long": (
        _selector({"a": "x" * 64}),
        f'values[0][a]: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
    ),
    "key and value": (
        _selector({"-a": "b-"}),
        f'[key: Invalid value: "-a": {NAME_RULE}, values[0][-a]: Invalid value: "b-": {VALUE_RULE}]',
    ),
}


@pytest.mark.parametrize(("selector", "error"), ERRORS.values(), ids=ERRORS)
def test_invalid_selector_matches_nothing_and_has_the_schedulers_error(selector: LabelSelector, error: str) -> None:
    actual = compile_selector(selector)
    assert (actual.error, actual.matches({}), actual.matches({"a": "1"})) == (error, False, False)


def test_equal_selectors_have_equal_hashes() -> None:
    selector = compile_selector(_selector({"a": "1", "b": "2"}, _expression("c", "NotIn", "1", "2")))
    other = compile_selector(
        _selector({"b": "2"}, _expression("c", "NotIn", "2", "1", "2"), _expression("a", "In", "1"))
    )
    assert (selector, hash(selector)) == (other, hash(other))
    assert len({selector, other, compile_selector(_selector({"a": "1"})), NOTHING, EVERYTHING}) == 4


def test_pairs_are_the_labels_that_every_match_has() -> None:
    actual = compile_selector(_selector({"b": "2"}, _expression("a", "In", "1"), _expression("c", "In", "1", "2")))
    assert (actual.pairs, actual.everything) == ((("a", "1"), ("b", "2")), False)


def test_narrowed_selector_has_more_requirements() -> None:
    actual = EVERYTHING.narrowed([("a", "1")])
    assert (actual.matches({"a": "1"}), actual.matches({}), actual.everything) == (True, False, False)
    assert NOTHING.narrowed([("a", "1")]).matches({"a": "1"}) is False


# Nodes
