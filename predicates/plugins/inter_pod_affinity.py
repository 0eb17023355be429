"""InterPodAffinity: required affinity and anti-affinity between pods (``interpodaffinity/filtering.go``).

The terms of the incoming pod must be satisfied, as must the anti-affinity terms of the placed pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, Rejections, RejectsRow, Scope
from predicates.indexes.counts import DomainCounts
from predicates.indexes.domains import HOSTNAME, Domains, Topology
from predicates.indexes.terms import affinity_terms
from predicates.indexes.topology import PodSet, TopologyIndex
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_AFFINITY, _ANTI_AFFINITY, _EXISTING_ANTI_AFFINITY = 1, 2, 3
_REASONS: Final = {
    _AFFINITY: (AFFINITY,),
    _ANTI_AFFINITY: (ANTI_AFFINITY,),
    _EXISTING_ANTI_AFFINITY: (EXISTING_ANTI_AFFINITY,),
}

_Codes: TypeAlias = npt.NDArray[np.int8]
#: Counts over the same domains are combined before they are mapped to rows.
_Grouped: TypeAlias = Mapping[Domains, Sequence[DomainCounts]]


class _PreFilterState:
    """The placed pods that a class depends on: those that its terms match, and those whose anti-affinity matches it."""

    __slots__ = (
        "affinity_counts",
        "all_anti_affinity_counts",
        "anti_affinity_counts",
        "error",
        "existing_anti_affinity_counts",
        "matches_own_terms",
        "term_count",
    )

    def __init__(self, index: TopologyIndex, pod: PodClass) -> None:
        terms = affinity_terms(pod)
        self.error = f"parsing pod: {terms.error}" if terms.error else ""
        selectors = frozenset(term.pod_selector(index.namespaces, index.version) for term in terms.affinity)
        keys = dict.fromkeys(term.topology_key for term in terms.affinity)
        #: Only pods that match all affinity terms count, in the domains of each term.
        self.affinity_counts = [index.counts(PodSet(selectors, terminating=True), Topology(key)) for key in keys]
        self.matches_own_terms = all(selector.matches(pod) for selector in selectors)
        self.anti_affinity_counts = _grouped(
            index.counts(
                PodSet(frozenset((term.pod_selector(index.namespaces, index.version),)), terminating=True),
                Topology(term.topology_key),
            )
            for term in terms.anti_affinity
        )
        self.existing_anti_affinity_counts: _Grouped = {}
        self.all_anti_affinity_counts: list[DomainCounts] = []  #: both of the above, as one list
        self.term_count = -1  #: the index's ``term_count`` when the existing terms were read


def _grouped(all_counts: Iterable[DomainCounts]) -> _Grouped:
    groups: dict[Domains, list[DomainCounts]] = {}
    for counts in all_counts:
        groups.setdefault(counts.domains, []).append(counts)
    return groups


def _pre_filter(pod: PodClass) -> PodClass:
    return pod


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    state = _state(pod, snapshot.index(TopologyIndex))
    if state.error:
        reasons = (state.error,)
        return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: reasons, prefilter=True)
    codes = _unsatisfied_affinity(state, rows) if state.affinity_counts else None
    if state.anti_affinity_counts:
        codes = _unsatisfied_anti_affinity(state.anti_affinity_counts, _ANTI_AFFINITY, rows, codes)
    if state.existing_anti_affinity_counts:
        codes = _unsatisfied_anti_affinity(state.existing_anti_affinity_counts, _EXISTING_ANTI_AFFINITY, rows, codes)
    return None if codes is None else Rejections(codes.astype(np.int64), _REASONS.__getitem__)


def _row_filter(pod: PodClass, snapshot: Snapshot) -> RejectsRow:
    index = snapshot.index(TopologyIndex)

    def rejects(row: int) -> bool:
        state = _state(pod, index)
        if state.error or (state.affinity_counts and not _satisfies_affinity(state, row)):
            return True
        for counts in state.all_anti_affinity_counts:  # noqa: SIM110 - a generator would cost more than most checks
            if counts.counter.rows and counts.in_domain_of(row):
                return True
        return False

    return rejects


def reaches_other_nodes(pod: PodClass, snapshot: Snapshot) -> bool:
    """Return whether pods on other nodes decide which nodes accept the class: by any term whose domain is not one node.

    Terms of the class itself count, and anti-affinity terms of placed pods that match it.
    """
    state = _state(pod, snapshot.index(TopologyIndex))
    if state.affinity_counts:
        return True
    return any(counts.domains.topology.key != HOSTNAME for counts in state.all_anti_affinity_counts)


def _state(pod: PodClass, index: TopologyIndex) -> _PreFilterState:
    state = index.cached(_PreFilterState)[pod]
    if state.term_count != index.term_count:
        state.existing_anti_affinity_counts = _grouped(index.existing_anti_affinity(pod))
        state.term_count = index.term_count
        groups = (*state.anti_affinity_counts.values(), *state.existing_anti_affinity_counts.values())
        state.all_anti_affinity_counts = [counts for group in groups for counts in group]
    return state


def _unsatisfied_affinity(state: _PreFilterState, rows: Rows) -> _Codes | None:
    """Reject rows that lack a topology label, or have no matching pod in one of their domains.

    If no pod in the cluster matches and the pod matches its own terms, it can be the first of a series.
    """
    is_first = _can_be_first(state)
    codes: _Codes | None = None
    for counts in state.affinity_counts:
        current = counts.current()
        missing: _Codes = np.zeros(len(current), np.int8) if is_first else (current == 0).view(np.int8)
        missing[-1] = not counts.domains.complete
        if missing.any():
            codes = _first(codes, counts.domains.for_rows(missing * np.int8(_AFFINITY), rows))
    return codes


def _satisfies_affinity(state: _PreFilterState, row: int) -> bool:
    """Return whether a single row satisfies the affinity terms (``satisfyPodAffinity``)."""
    counts = [counts.in_domain_of(row) for counts in state.affinity_counts]
    return None not in counts and (all(counts) or _can_be_first(state))


def _can_be_first(state: _PreFilterState) -> bool:
    return state.matches_own_terms and not any(counts.current()[:-1].any() for counts in state.affinity_counts)


def _unsatisfied_anti_affinity(grouped: _Grouped, code: int, rows: Rows, codes: _Codes | None) -> _Codes | None:
    """Add *code* to *codes* for rows that have any of the counted pods in one of their domains."""
    for domains, group in grouped.items():
        occupied = None
        for counts in group:
            if counts.counter.rows:
                current = counts.current() > 0
                occupied = current if occupied is None else occupied | current
        if occupied is None:
            continue
        occupied[-1] = False
        if occupied.any():
            codes = _first(codes, domains.for_rows(occupied.view(np.int8) * np.int8(code), rows))
    return codes


def _first(codes: _Codes | None, later: _Codes) -> _Codes:
    """Combine codes; the scheduler reports the first rejection."""
    return later if codes is None else np.where(codes, codes, later)


PLUGIN: Final = Plugin("InterPodAffinity", Scope.CLUSTER, _pre_filter, _filter, _row_filter)
