"""The score plugins that compare a pod with other pods: InterPodAffinity and PodTopologySpread."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np

from predicates.indexes.domains import HOSTNAME, DomainCounts, Domains, Topology
from predicates.indexes.terms import preferred_terms
from predicates.indexes.topology import (
    AffinityWeights,
    PodSet,
    TooManySelectorsError,
    TopologyIndex,
    counting_topology,
    default_selector,
    matching_pods,
    with_match_label_keys,
    without_draining,
)
from predicates.nodes import Flags, Numbers
from predicates.objects import Pod, PodClass, TopologySpreadConstraint
from predicates.scores.frame import MAX_SCORE, ScoringRequest
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot

# InterPodAffinity: preferred terms of the pod and terms of placed pods (``interpodaffinity/scoring.go``).

_Weighted: TypeAlias = tuple[DomainCounts, int]
_T = TypeVar("_T")


def inter_pod_affinity(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if no term matches, or if all nodes have the same score."""
    snapshot, pod = request.snapshot, request.pod
    index = snapshot.index(TopologyIndex)
    own_terms = index.cached(_preferred)[pod]
    existing_terms = snapshot.index(AffinityWeights).for_pod(pod, index.namespaces)
    if not own_terms and not existing_terms:
        return None
    scores = np.zeros(len(request.rows), np.int64)
    for domains, sums in _by_domains([*own_terms, *((sums, 1) for sums in existing_terms)]).items():
        sums[-1] = 0  # Nodes without the label are in no domain.
        scores += sums.take(domains.slots.take(request.rows))
    min_score, max_score = int(scores.min()), int(scores.max())
    if min_score == max_score:
        return None
    normalized: Numbers = (MAX_SCORE * ((scores - min_score) / (max_score - min_score))).astype(np.int64)
    return normalized


def _preferred(index: TopologyIndex, pod: PodClass) -> tuple[_Weighted, ...]:
    """Return, for each preferred term of the class, the matching pods by domain and the weight of each pod."""
    return _counted(
        (
            index.counts(
                PodSet(frozenset((term.pod_selector(index.namespaces, index.version),)), terminating=True),
                Topology(term.topology_key),
                pod.namespace,
                required=False,
            ),
            weight,
        )
        for term, weight in preferred_terms(pod)
    )


def _counted(preferences: Iterable[_T]) -> tuple[_T, ...]:
    """Return the *preferences* of a class, or nothing if its namespace has too many of them to be counted."""
    try:
        return tuple(preferences)
    except TooManySelectorsError:
        return ()


def _by_domains(weighted: Iterable[_Weighted]) -> dict[Domains, Numbers]:
    """Return the weighted sum of all counts over the same domains, one entry per domain."""
    groups: defaultdict[Domains, list[Numbers]] = defaultdict(list)
    for counts, weight in weighted:
        current = counts.current()
        if counts.counter.rows:
            groups[counts.domains].append(current.astype(np.int64) * weight)
    return {domains: np.sum(sums, axis=0) for domains, sums in groups.items()}


# PodTopologySpread: prefer domains with fewer matching pods (``podtopologyspread/scoring.go``).
#
# Constraints with ``whenUnsatisfiable: ScheduleAnyway`` score. Pods without any constraint get the system default
# constraints, with a selector that the scheduler reads from the pod's owner and Services. Here the selector is the
# labels of the pod that all pods of its owner share. The results differ if the pods of an owner have different labels,
# or if only a Service selects the pod.

SOFT: Final = "ScheduleAnyway"

#: The constraints of pods that have none (``systemDefaultConstraints``).
SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
)

#: Kinds of owners whose selector the scheduler reads (``helper.DefaultSelector``).
_OWNERS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")


@dataclass(frozen=True, slots=True)
class _SoftConstraint:
    """A constraint that scores, and its matching pods by domain."""

    max_skew: int
    per_node: bool  #: the topology key is the hostname: pods are counted on the node itself
    counts: DomainCounts


def spreads_by_default(pod: Pod) -> bool:
    """Return whether *pod* has an owner for which the default constraints apply if it has no constraints itself."""
    return pod.owner is not None and pod.owner.kind in _OWNERS


def pod_topology_spread(request: ScoringRequest) -> Numbers | None:
    """Return the scores, or None if there are no constraints that score."""
    index, rows = request.snapshot.index(TopologyIndex), request.rows
    has_constraints = bool(request.pod.spec.topology_spread_constraints)
    if not (has_constraints or request.spreads_by_default):
        return None
    constraints = index.cached(_constraints if has_constraints else _default_constraints)[request.pod]
    if not constraints:
        return None
    labeled = [_labeled(constraint, request) for constraint in constraints]
    by_system = not has_constraints and (
        request.snapshot.scheduler.profile(request.pod.spec.scheduler_name).spread_defaults is None
    )
    scored = np.ones(len(rows), np.bool_) if by_system else np.logical_and.reduce(labeled)
    scores = np.zeros(len(rows), np.float64)
    for constraint, has_label in zip(constraints, labeled, strict=True):
        counts, size = _pod_counts(constraint, request, scored)
        topology_weight = math.log(size + 2)
        scores += np.where(has_label, counts * topology_weight + float(constraint.max_skew - 1), 0.0)
    return _normalized(np.floor(scores + 0.5).astype(np.int64), scored)


def _labeled(constraint: _SoftConstraint, request: ScoringRequest) -> Flags:
    domains = constraint.counts.domains
    domains.refresh()
    labeled: Flags = domains.slots.take(request.rows) < domains.size
    return labeled


def _pod_counts(constraint: _SoftConstraint, request: ScoringRequest, scored: Flags) -> tuple[Numbers, int]:
    """Return the matching pods in the domain of each row, and the number of domains among the scored rows."""
    snapshot, rows, counts = request.snapshot, request.rows, constraint.counts.current()
    domains = constraint.counts.domains
    if constraint.per_node:
        return _pods_by_row(constraint.counts, snapshot)[rows], int(scored.sum())
    if snapshot.draining_rows and domains.excludes_draining:
        counts = without_draining(constraint.counts, counts, snapshot)
    slots = domains.slots.take(rows)
    return counts.take(slots).astype(np.int64), int(np.count_nonzero(np.bincount(slots[scored])))


def _pods_by_row(counts: DomainCounts, snapshot: Snapshot) -> Numbers:
    rows = counts.counter.rows
    pods = np.zeros(len(snapshot.nodes), np.int64)
    pods[np.fromiter(rows, np.intp, len(rows))] = np.fromiter(rows.values(), np.int64, len(rows))
    return pods


def _normalized(scores: Numbers, scored: Flags) -> Numbers:
    """Reverse the order, so that the lowest score becomes the highest; rows that are not scored get 0.

    ``MaxNodeScore * (maxScore + minScore - score) / maxScore``
    """
    considered = scores[scored]
    if not len(considered):
        return np.zeros(len(scores), np.int64)
    low, high = int(considered.min()), int(considered.max())
    reversed_scores: Numbers = MAX_SCORE * (high + low - scores) // high if high else np.full(len(scores), MAX_SCORE)
    return np.where(scored, reversed_scores, 0)


def _constraints(index: TopologyIndex, pod: PodClass) -> tuple[_SoftConstraint, ...]:
    soft = [constraint for constraint in pod.spec.topology_spread_constraints if constraint.when_unsatisfiable == SOFT]
    keys = frozenset(constraint.topology_key for constraint in soft)
    selectors = (with_match_label_keys(compile_selector(each.label_selector), each, pod.labels) for each in soft)
    return _counted(
        _soft_constraint(index, pod, constraint, selector, keys)
        for constraint, selector in zip(soft, selectors, strict=True)
    )


def _default_constraints(index: TopologyIndex, pod: PodClass) -> tuple[_SoftConstraint, ...]:
    """Return the default constraints. Nodes that lack a label of the system's own defaults are scored as well."""
    selector = default_selector(pod)
    if selector.everything:
        return ()
    configured = index.snapshot.scheduler.profile(pod.spec.scheduler_name).spread_defaults
    if configured is None:
        return _counted(_soft_constraint(index, pod, each, selector, frozenset()) for each in SYSTEM_DEFAULTS)
    soft = [constraint for constraint in configured if constraint.when_unsatisfiable == SOFT]
    keys = frozenset(constraint.topology_key for constraint in soft)
    return _counted(_soft_constraint(index, pod, constraint, selector, keys) for constraint in soft)


def _soft_constraint(
    index: TopologyIndex, pod: PodClass, constraint: TopologySpreadConstraint, selector: Selector, keys: frozenset[str]
) -> _SoftConstraint:
    counts = index.counts(
        matching_pods(pod.namespace, selector, index.version),
        counting_topology(pod, constraint, keys),
        pod.namespace,
        required=False,
    )
    return _SoftConstraint(constraint.max_skew, constraint.topology_key == HOSTNAME, counts)
