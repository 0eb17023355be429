"""What a topology spread constraint counts; filter and score read it same_content (``podtopologyspread/common.go``)."""

from collections.abc import Mapping

import numpy as np

from predicates.indexes.counts import Counts, DomainCounts
from predicates.indexes.domains import Topology
from predicates.indexes.scopes import Scope
from predicates.indexes.topology import Kind
from predicates.objects import PodClass, TopologySpreadConstraint
from predicates.selectors import NOTHING, Selector
from predicates.snapshot import Snapshot


def narrowed(selector: Selector, one: TopologySpreadConstraint, labels: Mapping[str, str]) -> Selector:
    """The constraint's *selector*, for the pod's own values of its ``matchLabelKeys``."""
    same = [(key, labels[key]) for key in one.match_label_keys if key in labels]
    return selector.narrowed(same) if same else selector


def counted(namespace: str, selector: Selector) -> Kind:
    """The pods that count. A selector that takes everything counts nothing (``countPodsMatchSelector``)."""
    selector = NOTHING if selector.everything else selector
    return Kind(frozenset((Scope(frozenset((namespace,)), selector),)), terminating=False)


def topology(pod: PodClass, one: TopologySpreadConstraint, keys: frozenset[str]) -> Topology:
    """Where they count: on nodes with all of *keys*, by default on those that the pod may select."""
    spec = pod.spec
    found = Topology(one.topology_key, keys - {one.topology_key})
    if one.node_affinity_policy in (None, "Honor"):
        affinity = spec.affinity.node_affinity if spec.affinity else None
        found = found._replace(
            node_selector=tuple(sorted(spec.node_selector.items())),
            node_affinity=affinity.required if affinity else None,
        )
    if one.node_taints_policy == "Honor":
        found = found._replace(tolerations=spec.tolerations)
    return found


def without_draining(found: DomainCounts, counts: Counts, snapshot: Snapshot) -> Counts:
    """The counts without the pods that are left on nodes under drain."""
    rows, draining_rows = found.counter.rows, snapshot.draining_rows
    left = (
        [row for row in draining_rows if row in rows]
        if len(draining_rows) < len(rows)
        else [row for row in rows if row in draining_rows]
    )
    if left:
        counts = counts.copy()
        np.subtract.at(counts, found.domains.counted[left], [rows[row] for row in left])
    return counts
