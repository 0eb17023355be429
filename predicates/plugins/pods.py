"""The filter plugins that compare a pod with other pods: InterPodAffinity and PodTopologySpread."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, Rejections, RejectsRow, Scope
from predicates.indexes.domains import HOSTNAME, Counts, DomainCounts, Domains, Topology
from predicates.indexes.terms import AffinityTerms, affinity_terms
from predicates.indexes.topology import (
    PodSet,
    TooManySelectorsError,
    TopologyIndex,
    counting_topology,
    default_selector,
    matching_pods,
    with_match_label_keys,
    without_draining,
)
from predicates.nodes import Rows
from predicates.objects import PodClass, TopologySpreadConstraint
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot

# InterPodAffinity: required affinity and anti-affinity between pods (``interpodaffinity/filtering.go``).
#
# The terms of the incoming pod must be satisfied, as must the anti-affinity terms of the placed pods.

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
        "known_terms",
        "matches_own_terms",
        "reaches_other_nodes",
        "term_count",
    )

    def __init__(self, index: TopologyIndex, pod: PodClass) -> None:
        self.error = ""
        self.affinity_counts: list[DomainCounts] = []
        self.anti_affinity_counts: _Grouped = {}
        self.matches_own_terms = False
        self.existing_anti_affinity_counts: _Grouped = {}
        self.all_anti_affinity_counts: list[DomainCounts] = []  #: both of the above, as one list
        self.reaches_other_nodes = False  #: whether any of the domains of all these counts is more than a node
        self.term_count = -1  #: the index's ``term_count`` when the existing terms were read
        self.known_terms: int | None = None  #: how many of them were read; None if none were
        try:
            index.require(pod)
            terms = affinity_terms(pod)
            self.error = f"parsing pod: {terms.error}" if terms.error else ""
            if terms.affinity or terms.anti_affinity:  # most classes have none
                self._count(index, pod, terms)
        except TooManySelectorsError as error:
            self.error = str(error)

    def read_existing(self, index: TopologyIndex, pod: PodClass) -> None:
        """Read the terms of placed pods that were added since the last call."""
        self.term_count, start = index.term_count, self.known_terms
        self.known_terms = index.new_terms
        existing = () if self.error else index.existing_anti_affinity(pod, start)
        if existing or (start is None and self.anti_affinity_counts):
            known = chain.from_iterable(self.existing_anti_affinity_counts.values())
            self.existing_anti_affinity_counts = _grouped([*known, *existing])
            own = () if start is not None else chain.from_iterable(self.anti_affinity_counts.values())
            self.all_anti_affinity_counts += [*own, *existing]
        others = [counts.domains.topology.key != HOSTNAME for counts in self.all_anti_affinity_counts]
        self.reaches_other_nodes = bool(self.affinity_counts) or any(others)

    def _count(self, index: TopologyIndex, pod: PodClass, terms: AffinityTerms) -> None:
        index.require(pod, len(terms.affinity) + len(terms.anti_affinity))
        selectors = frozenset([term.pod_selector(index.namespaces, index.version) for term in terms.affinity])
        keys = dict.fromkeys([term.topology_key for term in terms.affinity])
        #: Only pods that match all affinity terms count, in the domains of each term.
        own = pod.namespace
        self.affinity_counts = [index.counts(PodSet(selectors, terminating=True), Topology(key), own) for key in keys]
        self.matches_own_terms = all(selector.matches(pod) for selector in selectors)
        self.anti_affinity_counts = _grouped(
            index.counts(
                PodSet(frozenset((term.pod_selector(index.namespaces, index.version),)), terminating=True),
                Topology(term.topology_key),
                own,
            )
            for term in terms.anti_affinity
        )


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


def _state(pod: PodClass, index: TopologyIndex) -> _PreFilterState:
    state = index.cached(_PreFilterState)[pod]
    while state.term_count != index.term_count:  # once, unless a namespace is given up, which drops all states
        state = index.cached(_PreFilterState)[pod]
        state.read_existing(index, pod)
    return state


def may_be_first(pod: PodClass, snapshot: Snapshot) -> bool:
    """Return whether the class has required affinity, and any node accepts it because no placed pod matches."""
    state = _state(pod, snapshot.index(TopologyIndex))
    return bool(state.affinity_counts) and _can_be_first(state)


def beside_others(pod: PodClass, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return those of *rows* where placed pods satisfy the required affinity of the class."""
    for counts in _state(pod, snapshot.index(TopologyIndex)).affinity_counts:
        occupied = counts.current() > 0
        occupied[-1] = False
        rows = rows[occupied.take(counts.domains.slots.take(rows))]
    return rows


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


def _concerns(pod: PodClass, snapshot: Snapshot) -> bool:
    """Return whether the class has terms, or placed pods have had terms that match it."""
    state = _state(pod, snapshot.index(TopologyIndex))
    return bool(state.error or state.affinity_counts or state.all_anti_affinity_counts)


INTER_POD_AFFINITY: Final = Plugin("InterPodAffinity", Scope.CLUSTER, _pre_filter, _filter, _row_filter, _concerns)


# PodTopologySpread: hard topology spread constraints must hold (``podtopologyspread/filtering.go``).
#
# Only constraints with ``whenUnsatisfiable: DoNotSchedule`` filter. The default profile adds no such constraints, but
# the configuration of a profile may.

CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
NODE_LABEL_NOT_MATCH: Final = f"{CONSTRAINTS_NOT_MATCH} (missing required label)"

_CONSTRAINTS_NOT_MATCH, _NODE_LABEL_NOT_MATCH = 1, 2
_POD_TOPOLOGY_SPREAD_REASONS: Final = {
    _CONSTRAINTS_NOT_MATCH: (CONSTRAINTS_NOT_MATCH,),
    _NODE_LABEL_NOT_MATCH: (NODE_LABEL_NOT_MATCH,),
}
_MAX_INT32: Final = 2**31 - 1

#: Up to this number of domains, a Python loop is faster than NumPy.
_FEW_DOMAINS: Final = 32


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A hard constraint of a pod class.

    The judging criterion is
    ``'existing matching num' + 'if self-match (1 or 0)' - 'global minimum' <= 'maxSkew'``.
    """

    max_skew: int
    min_domains: int
    self_match_num: int  #: 1 if the selector matches the pod itself, else 0
    counts: DomainCounts

    def codes(self, snapshot: Snapshot) -> npt.NDArray[np.int8] | None:
        """Return a code for each domain and a last one for rows in no domain; None if no row is rejected."""
        match_num, limit = self._match_num_and_limit(snapshot)
        codes = (match_num > limit).view(np.int8)
        codes[-1] = 0 if self.counts.domains.complete else _NODE_LABEL_NOT_MATCH
        return codes if codes.any() else None

    def rejects(self, snapshot: Snapshot, row: int) -> bool:
        """Return whether the constraint rejects a single row."""
        match_num, limit = self._match_num_and_limit(snapshot)
        slot = self.counts.domains.slots.item(row)
        return slot == self.counts.domains.size or match_num.item(slot) > limit

    def _match_num_and_limit(self, snapshot: Snapshot) -> tuple[Counts, int]:
        """Return the matching pods by domain, and the largest number that does not reject the domain."""
        match_num = self.counts.current()
        domains = self.counts.domains
        eligible = domains.occupied
        if snapshot.draining_rows and domains.excludes_draining:
            match_num = without_draining(self.counts, match_num, snapshot)
            eligible = domains.occupied_without_drained()
        limit = self.max_skew + self._min_match_num(match_num, eligible) - self.self_match_num
        return match_num, max(-1, min(limit, _MAX_INT32))

    def _min_match_num(self, match_num: Counts, eligible: npt.NDArray[np.intp]) -> int:
        """Return the global minimum; 0 if there are fewer eligible domains than ``minDomains``."""
        domains = len(eligible)
        if domains < self.min_domains:
            return 0
        if not domains:
            return _MAX_INT32
        counts = match_num[:-1] if domains == len(match_num) - 1 else match_num.take(eligible)
        return min(counts.tolist()) if domains < _FEW_DOMAINS else int(counts.min())


def _pod_topology_spread_pre_filter(pod: PodClass) -> PodClass | None:
    constraints = pod.spec.topology_spread_constraints
    return pod if constraints and any(map(_is_hard, constraints)) else None


def _pod_topology_spread_or_default_pre_filter(pod: PodClass) -> PodClass | None:
    return _pod_topology_spread_pre_filter(pod) if pod.spec.topology_spread_constraints else pod


def _pod_topology_spread_filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    constraints = snapshot.index(TopologyIndex).cached(_constraints)[pod]
    if isinstance(constraints, str):
        reasons = (constraints,)
        return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: reasons, prefilter=True)
    codes: npt.NDArray[np.int8] | None = None
    for constraint in constraints:
        if (by_domain := constraint.codes(snapshot)) is not None:
            by_row = constraint.counts.domains.for_rows(by_domain, rows)
            # The scheduler reports the first constraint that does not hold.
            codes = by_row if codes is None else np.where(codes, codes, by_row)
    return None if codes is None else Rejections(codes.astype(np.int64), _POD_TOPOLOGY_SPREAD_REASONS.__getitem__)


def _pod_topology_spread_row_filter(pod: PodClass, snapshot: Snapshot) -> RejectsRow:
    index = snapshot.index(TopologyIndex)

    def rejects(row: int) -> bool:
        constraints = index.cached(_constraints)[pod]
        if isinstance(constraints, str):
            return True
        for constraint in constraints:  # noqa: SIM110 - as in any_rejects
            if constraint.rejects(snapshot, row):
                return True
        return False

    return rejects


def _has_constraints(pod: PodClass, snapshot: Snapshot) -> bool:
    """Return whether the class has hard constraints, or one that is invalid."""
    return bool(snapshot.index(TopologyIndex).cached(_constraints)[pod])


def _constraints(index: TopologyIndex, pod: PodClass) -> tuple[_Constraint, ...] | str:
    """Return the hard constraints of the class, or the scheduler's message if one of them is invalid.

    The selector of default constraints is that of the pod's owner and Services (``helper.DefaultSelector``). Here it is
    the labels of the pod, which are more: the pods of an owner have the same labels, unless they are of another
    revision.
    """
    hard = _hard(pod, index.snapshot)
    if not hard:
        return ()
    try:
        index.require(pod, len(hard))
        return _judged(index, pod, hard)
    except TooManySelectorsError as error:
        return str(error)


def _judged(
    index: TopologyIndex, pod: PodClass, hard: Sequence[TopologySpreadConstraint]
) -> tuple[_Constraint, ...] | str:
    """Return the *hard* constraints of the class, or a message. Raises TooManySelectorsError."""
    if pod.spec.topology_spread_constraints:
        selectors = [compile_selector(constraint.label_selector) for constraint in hard]
    elif (selector := default_selector(pod)).everything:
        return ()
    else:
        selectors = [selector] * len(hard)
    if error := next((selector.error for selector in selectors if selector.error), ""):
        return (
            f'running PreFilter plugin "PodTopologySpread": '
            f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
        )
    keys = frozenset(constraint.topology_key for constraint in hard)
    pairs = zip(hard, selectors, strict=True)
    return tuple(_constraint(index, pod, constraint, selector, keys) for constraint, selector in pairs)


def _constraint(
    index: TopologyIndex, pod: PodClass, constraint: TopologySpreadConstraint, selector: Selector, keys: frozenset[str]
) -> _Constraint:
    selector = with_match_label_keys(selector, constraint, pod.labels)
    return _Constraint(
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        self_match_num=int(selector.matches(pod.labels)),
        counts=index.counts(
            matching_pods(pod.namespace, selector, index.version),
            counting_topology(pod, constraint, keys),
            pod.namespace,
        ),
    )


def _hard(pod: PodClass, snapshot: Snapshot) -> list[TopologySpreadConstraint]:
    """Return the hard constraints of the class, or of its profile if it has no constraints."""
    constraints: Sequence[TopologySpreadConstraint] = pod.spec.topology_spread_constraints
    if not constraints:
        constraints = snapshot.scheduler.profile(pod.spec.scheduler_name).spread_defaults or ()
    return [constraint for constraint in constraints if _is_hard(constraint)]


def _is_hard(constraint: TopologySpreadConstraint) -> bool:
    return constraint.when_unsatisfiable == "DoNotSchedule"


POD_TOPOLOGY_SPREAD: Final = Plugin(
    "PodTopologySpread",
    Scope.CLUSTER,
    _pod_topology_spread_pre_filter,
    _pod_topology_spread_filter,
    _pod_topology_spread_row_filter,
    _has_constraints,
)


@dataclass(frozen=True, slots=True)
class Ties:
    """The placed pods on which the nodes of a class depend."""

    beside: Sequence[DomainCounts]  #: pods in whose domains it must be, by required affinity
    apart: Sequence[DomainCounts]  #: pods in whose domains it must not be, by anti-affinity of either side
    spread: Sequence[DomainCounts]  #: pods over whose domains it must be spread evenly
    min_domains: int = 1  #: the spread needs at least this many domains
    may_be_first: bool = False  #: whether *beside* allows any domain while there are no such pods: it is one itself

    @property
    def number(self) -> int:
        """The number of these counts."""
        return len(self.beside) + len(self.apart) + len(self.spread)

    @property
    def all_counts(self) -> Iterable[DomainCounts]:
        """The counts of all these pods."""
        return (*self.beside, *self.apart, *self.spread)


def reaches_other_nodes(pod: PodClass, snapshot: Snapshot) -> bool:
    """Return whether pods on other nodes decide which nodes accept the class.

    They do by a term whose domain is not one node, of the class itself or of the anti-affinity of placed pods, and by a
    hard spread constraint over such domains.
    """
    index = snapshot.index(TopologyIndex)
    return _state(pod, index).reaches_other_nodes or index.cached(_is_spread_over_nodes)[pod]


def _is_spread_over_nodes(index: TopologyIndex, pod: PodClass) -> bool:
    return any(constraint.topology_key != HOSTNAME for constraint in _hard(pod, index.snapshot))


def ties_of(pod: PodClass, snapshot: Snapshot) -> Ties | None:
    """Return the ties of a class, or None if one of its selectors or constraints is invalid."""
    index = snapshot.index(TopologyIndex)
    state = _state(pod, index)
    spread = index.cached(_constraints)[pod] if _hard(pod, snapshot) else ()
    if state.error or isinstance(spread, str):
        return None
    return Ties(
        beside=state.affinity_counts,
        apart=state.all_anti_affinity_counts,
        spread=[constraint.counts for constraint in spread],
        min_domains=max((constraint.min_domains for constraint in spread), default=1),
        may_be_first=state.matches_own_terms,
    )


def plugin(defaults: Sequence[TopologySpreadConstraint]) -> Plugin:
    """Return the plugin for a profile with these default constraints, which are for pods that have no constraints."""
    if not any(map(_is_hard, defaults)):
        return POD_TOPOLOGY_SPREAD
    return replace(POD_TOPOLOGY_SPREAD, pre_filter=_pod_topology_spread_or_default_pre_filter)
