"""Selectors of labels and of nodes, in the API's shape."""

from predicates.objects.meta import Wire


class Requirement(Wire, frozen=True):
    """One ``matchExpressions`` entry of a label selector, or of a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """All of it must hold; a term without any requirement matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()
