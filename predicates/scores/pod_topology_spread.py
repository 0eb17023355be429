"""PodTopologySpread: the fewer pods of the kind share the node's domains, the better (``scoring.go``).

Constraints that say ``ScheduleAnyway`` count; a pod without any constraint is kept apart from those of its owner by
the system's defaults. The scheduler reads their selector from the owner and from Services. Here it is the pod's own
labels, which every owner's selector takes (:func:`kept_apart_from`): it differs where an owner's pods differ in
labels, and where only a Service selects a pod.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from predicates.indexes.counts import DomainCounts
from predicates.indexes.spreading import counted, narrowed, topology, without_draining
from predicates.indexes.topology import TopologyIndex
from predicates.nodes import Flags, Numbers
from predicates.objects import Pod, PodClass, TopologySpreadConstraint
from predicates.scores.frame import MAX_SCORE, Question
from predicates.selectors import NOTHING, Selector, compile_selector
from predicates.snapshot import Snapshot

HOSTNAME: Final = "kubernetes.io/hostname"
SOFT: Final = "ScheduleAnyway"

#: What the scheduler adds to pods that name no constraint (``systemDefaultConstraints``).
SYSTEM_DEFAULTS: Final = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SOFT),
)

#: Owners whose selector the scheduler looks up (``helper.DefaultSelector``).
_OWNERS: Final = ("ReplicaSet", "ReplicationController", "StatefulSet")

#: Labels that tell the pods of one owner apart.
_OWN: Final = ("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index")


@dataclass(frozen=True, slots=True)
class _Soft:
    """A constraint that counts: pods of its kind by domain."""

    max_skew: int
    by_node: bool  #: the scheduler counts on the node itself, not in the domain
    counts: DomainCounts


def kept_apart_from(pod: Pod) -> Selector:
    """The pods that the defaults keep *pod* apart from: those with the labels that its owner gives all of them."""
    if pod.owner is None or pod.owner.kind not in _OWNERS:
        return NOTHING
    return Selector((key, value) for key, value in pod.cls.labels.items() if key not in _OWN)


def score(question: Question) -> Numbers | None:
    """None without constraints that count."""
    snapshot, rows = question.snapshot, question.rows
    index = snapshot.index(TopologyIndex)
    prepared = index.current(_prepare)
    given = bool(question.pod.spec.topology_spread_constraints)
    constraints = prepared[question.pod] if given else _defaults(index, question)
    if not constraints:
        return None
    lying = [_labelled(one, question) for one in constraints]
    counting = np.logical_and.reduce(lying) if given else np.ones(len(rows), np.bool_)
    crowding = np.zeros(len(rows), np.float64)
    for one, labelled in zip(constraints, lying, strict=True):
        pods, size = _pods(one, question, counting)
        crowding += np.where(labelled, pods * math.log(size + 2) + float(one.max_skew - 1), 0.0)
    return _normalized(np.floor(crowding + 0.5).astype(np.int64), counting)


def _labelled(one: _Soft, question: Question) -> Flags:
    domains = one.counts.domains
    domains.refresh()
    found: Flags = domains.slots.take(question.rows) < domains.size
    return found


def _pods(one: _Soft, question: Question, counting: Flags) -> tuple[Numbers, int]:
    """How many pods of the kind each row shares its domain with; and how many domains the counting rows have."""
    snapshot, rows, counts = question.snapshot, question.rows, one.counts.current()
    domains = one.counts.domains
    if one.by_node:
        return _on_nodes(one.counts, snapshot)[rows], int(counting.sum())
    if snapshot.draining_rows and domains.excludes_draining:
        counts = without_draining(one.counts, counts, snapshot)
    slots = domains.slots.take(rows)
    return counts.take(slots).astype(np.int64), len(np.unique(slots[counting]))


def _on_nodes(counts: DomainCounts, snapshot: Snapshot) -> Numbers:
    rows = counts.counter.rows
    found = np.zeros(len(snapshot.nodes), np.int64)
    found[np.fromiter(rows, np.intp, len(rows))] = np.fromiter(rows.values(), np.int64, len(rows))
    return found


def _normalized(crowding: Numbers, counting: Flags) -> Numbers:
    """The least crowded row gets most; rows that do not count get 0."""
    among = crowding[counting]
    if not len(among):
        return np.zeros(len(crowding), np.int64)
    least, most = int(among.min()), int(among.max())
    scores: Numbers = MAX_SCORE * (most + least - crowding) // most if most else np.full(len(crowding), MAX_SCORE)
    return np.where(counting, scores, 0)


def _prepare(index: TopologyIndex, pod: PodClass) -> tuple[_Soft, ...]:
    soft = [one for one in pod.spec.topology_spread_constraints if one.when_unsatisfiable == SOFT]
    keys = frozenset(one.topology_key for one in soft)
    selectors = (narrowed(compile_selector(one.label_selector), one, pod.labels) for one in soft)
    return tuple(_soft(index, pod, one, selector, keys) for one, selector in zip(soft, selectors, strict=True))


def _defaults(index: TopologyIndex, question: Question) -> tuple[_Soft, ...]:
    """Nodes count also where they lack one of the labels."""
    pod, selector = question.pod, question.spread_from
    if selector.nothing or selector.everything:
        return ()
    return tuple(_soft(index, pod, one, selector, frozenset()) for one in SYSTEM_DEFAULTS)


def _soft(
    index: TopologyIndex, pod: PodClass, one: TopologySpreadConstraint, selector: Selector, keys: frozenset[str]
) -> _Soft:
    counts = index.counts(counted(pod.namespace, selector), topology(pod, one, keys))
    return _Soft(one.max_skew, one.topology_key == HOSTNAME, counts)
