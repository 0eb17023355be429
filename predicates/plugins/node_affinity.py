"""NodeAffinity: the node's labels and name must be what the pod requires (``nodeaffinity/node_affinity.go``)."""

from functools import reduce
from operator import or_
from typing import Final, TypeAlias

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import NodeSelector, NodeSelectorTerm, PodClass
from predicates.selectors import Pair, node_labels_mask, node_selector_mask
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
CONFLICT: Final = "pod affinity terms conflict"

#: ``nodeSelector``, and the terms of the required affinity.
Wanted: TypeAlias = tuple[tuple[Pair, ...], NodeSelector | None]


def _pre_filter(pod: PodClass) -> Wanted | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    if required is None and not pod.spec.node_selector:
        return None
    return tuple(sorted(pod.spec.node_selector.items())), required


def _filter(wanted: Wanted, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    labels, required = wanted
    if required is not None and _conflicting(required):
        everywhere = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
        return Rejections(everywhere, lambda _: (CONFLICT,), prefilter=True)
    suits = node_labels_mask(labels, snapshot, rows)
    if required is not None:
        suits &= node_selector_mask(required, snapshot, rows)
    if suits.all():
        return None
    return Rejections((~suits).astype(np.int64), lambda _: (REASON,))


def _conflicting(required: NodeSelector) -> bool:
    """Whether every term asks for nodes by name, and none of them for a name that all its fields agree on.

    Fields count here whether or not the scheduler can parse the rest of their term.
    """
    named = [_names(term) for term in required.node_selector_terms]
    names = [one for one in named if one is not None]
    return bool(named) and len(names) == len(named) and not reduce(or_, names)


def _names(term: NodeSelectorTerm) -> frozenset[str] | None:
    asked = [frozenset(one.values) for one in term.match_fields if one.key == "metadata.name" and one.operator == "In"]
    return asked[0].intersection(*asked) if asked else None


PLUGIN: Final = Plugin("NodeAffinity", Scope.NODE, _pre_filter, _filter)
