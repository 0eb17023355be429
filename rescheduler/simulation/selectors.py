"""Selectors of labels and fields, as in requests and as in objects."""

from collections.abc import Callable, Mapping
from typing import Any

from rescheduler.simulation.store import Json


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Return whether a LabelSelector selects *labels*. One that is None selects nothing, an empty one everything."""
    if selector is None:
        return False
    for name, value in (selector.get("matchLabels") or {}).items():
        if labels.get(name) != value:
            return False
    return all(_matches(term, labels) for term in selector.get("matchExpressions") or ())


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    value = labels.get(term["key"])
    match term["operator"]:
        case "In":
            return value in term["values"]
        case "NotIn":
            return value not in term["values"]
        case "Exists":
            return value is not None
        case "Gt" | "Lt" as operator:
            if value is None or not value.isdigit():
                return False
            limit = int(term["values"][0])
            return int(value) > limit if operator == "Gt" else int(value) < limit
        case _:
            return value is None


def accepts(spec: Json, node: Json) -> bool:
    """Return whether the nodeSelector and the required node affinity of a PodSpec accept *node*."""
    labels = node["metadata"].get("labels") or {}
    if not selects({"matchLabels": spec.get("nodeSelector")}, labels):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and selects({"matchExpressions": term.get("matchExpressions")}, labels)
        and selects({"matchExpressions": term.get("matchFields")}, fields)
        for term in required.get("nodeSelectorTerms") or ()
    )


def by_labels(text: str) -> Callable[[Json], bool]:
    """Return the filter of the query parameter ``labelSelector``: ``a=b``, ``a!=b``, ``a`` and ``!a``."""
    terms = [term.strip() for term in text.split(",") if term.strip()]

    def matches(item: Json) -> bool:
        labels = item["metadata"].get("labels") or {}
        return all(_label_term(term, labels) for term in terms)

    return matches


def _label_term(term: str, labels: Mapping[str, str]) -> bool:
    if "!=" in term:
        name, _, value = term.partition("!=")
        return labels.get(name) != value
    if "=" in term:
        name, _, value = term.partition("=")
        return labels.get(name) == value.lstrip("=")
    return term[1:] not in labels if term.startswith("!") else term in labels


def by_fields(text: str) -> Callable[[Json], bool]:
    """Return the filter of the query parameter ``fieldSelector``: ``a.b=c`` and ``a.b!=c``."""
    terms = []
    for term in text.split(","):
        path, equals, value = term.partition("!=") if "!=" in term else term.partition("=")
        terms.append((path.split("."), value, equals == "="))

    def matches(item: Json) -> bool:
        return all((_field(item, path) == value) is equal for path, value, equal in terms)

    return matches


def _field(item: Any, path: list[str]) -> str:
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return "" if item is None else str(item)
