"""NodeAffinity: the node must match ``nodeSelector`` and required node affinity (``nodeaffinity/node_affinity.go``)."""

from functools import reduce
from operator import or_
from typing import Final, TypeAlias

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.node_selectors import node_labels_mask, node_selector_mask
from predicates.nodes import Rows
from predicates.objects import NodeAffinity, NodeSelector, NodeSelectorTerm, PodClass
from predicates.selectors import Pair
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
_ENFORCED: Final = 2
CONFLICT: Final = "pod affinity terms conflict"

#: ``nodeSelector``, and the required node affinity.
Required: TypeAlias = tuple[tuple[Pair, ...], NodeSelector | None]


def required_by(pod: PodClass) -> Required | None:
    """Return the requirements of pods of this class, or None if they have none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    if required is None and not pod.spec.node_selector:
        return None
    return tuple(sorted(pod.spec.node_selector.items())), required


def _filter(state: Required, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    node_selector, required = state
    if required is not None and _conflicting(required):
        codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
        return Rejections(codes, lambda _: (CONFLICT,), prefilter=True)
    matches = node_labels_mask(node_selector, snapshot, rows)
    if required is not None:
        matches &= node_selector_mask(required, snapshot, rows)
    if matches.all():
        return None
    return Rejections((~matches).astype(np.int64), lambda _: (REASON,))


def _conflicting(required: NodeSelector) -> bool:
    """Return whether every term selects nodes by name and the names in each of them contradict each other.

    As upstream, this is checked even for terms that the scheduler cannot parse.
    """
    terms = [_node_names(term) for term in required.node_selector_terms]
    names = [term for term in terms if term is not None]
    return bool(terms) and len(names) == len(terms) and not reduce(or_, names)


def _node_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    fields = (field for field in term.match_fields if field.key == "metadata.name" and field.operator == "In")
    names = [frozenset(field.values) for field in fields]
    return names[0].intersection(*names) if names else None


PLUGIN: Final = Plugin("NodeAffinity", Scope.NODE, required_by, _filter)


def plugin(added: NodeAffinity | None) -> Plugin:
    """Return the plugin with the affinity *added* by the scheduler's configuration for all pods."""
    if added is None or added.required is None:
        return PLUGIN
    enforced = added.required

    def state(pod: PodClass) -> tuple[Required | None]:
        return (required_by(pod),)

    def filtered(state: tuple[Required | None], snapshot: Snapshot, rows: Rows) -> Rejections | None:
        own = None if state[0] is None else _filter(state[0], snapshot, rows)
        if own is not None and own.prefilter:
            return own
        matches = node_selector_mask(enforced, snapshot, rows)
        codes = np.where(matches, 0 if own is None else own.codes, _ENFORCED)
        return Rejections(codes.astype(np.int64), _reasons) if codes.any() else None

    return Plugin("NodeAffinity", Scope.NODE, state, filtered)


def _reasons(code: int) -> tuple[str, ...]:
    return (ENFORCED if code == _ENFORCED else REASON,)
