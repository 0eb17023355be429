"""The pods that a topology spread constraint counts, for filtering and scoring (``podtopologyspread/common.go``)."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from predicates.indexes.counts import Counts, DomainCounts
from predicates.indexes.domains import Topology
from predicates.indexes.scopes import PodSelector
from predicates.indexes.topology import PodSet
from predicates.objects import PodClass, TopologySpreadConstraint
from predicates.selectors import NOTHING, Selector
from predicates.snapshot import Snapshot

#: Labels that differ between the pods of one owner, or between its revisions.
_PER_POD_LABELS: Final = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
)


def default_selector(pod: PodClass) -> Selector:
    """Return the selector of default constraints for pods of a class: the labels that all pods of its owner share."""
    return Selector((key, value) for key, value in pod.labels.items() if key not in _PER_POD_LABELS)


def with_match_label_keys(
    selector: Selector, constraint: TopologySpreadConstraint, labels: Mapping[str, str]
) -> Selector:
    """Return the constraint's *selector*, extended by the pod's *labels* listed in ``matchLabelKeys``."""
    same = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
    return selector.narrowed(same) if same else selector


def matching_pods(namespace: str, selector: Selector) -> PodSet:
    """Return the pods that a constraint counts. An empty selector counts no pods (``countPodsMatchSelector``)."""
    selector = NOTHING if selector.everything else selector
    return PodSet(frozenset((PodSelector(frozenset((namespace,)), selector),)), terminating=False)


def counting_topology(pod: PodClass, constraint: TopologySpreadConstraint, keys: frozenset[str]) -> Topology:
    """Return the topology by which a constraint counts pods.

    Only nodes with all topology *keys* of the pod's constraints count, subject to the node inclusion policies.
    """
    spec = pod.spec
    topology = Topology(constraint.topology_key, keys - {constraint.topology_key})
    if constraint.node_affinity_policy in (None, "Honor"):
        affinity = spec.affinity.node_affinity if spec.affinity else None
        topology = topology._replace(
            node_selector=tuple(sorted(spec.node_selector.items())),
            node_affinity=affinity.required if affinity else None,
        )
    if constraint.node_taints_policy == "Honor":
        topology = topology._replace(tolerations=spec.tolerations)
    return topology


def without_draining(pods: DomainCounts, counts: Counts, snapshot: Snapshot) -> Counts:
    """Return *counts* without the pods that remain on nodes being drained."""
    rows, draining_rows = pods.counter.rows, snapshot.draining_rows
    if common := list(rows.keys() & draining_rows.keys()):
        counts = counts.copy()
        np.subtract.at(counts, pods.domains.counted[common], [rows[row] for row in common])
    return counts
