"""Label selectors and node selectors, as in the API."""

from predicates.objects.meta import Wire


class Requirement(Wire, frozen=True):
    """An entry of ``matchExpressions`` or ``matchFields``."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """A node selector term: requirements are ANDed; a term without requirements matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """A node selector: its terms are ORed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()
