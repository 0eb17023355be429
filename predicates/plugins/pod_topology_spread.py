"""PodTopologySpread: hard topology spread constraints must hold (``podtopologyspread/filtering.go``).

Only constraints with ``whenUnsatisfiable: DoNotSchedule`` filter. The default profile adds no such constraints.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, Rejections, RejectsRow, Scope
from predicates.indexes.counts import Counts, DomainCounts
from predicates.indexes.domains import HOSTNAME
from predicates.indexes.spreading import (
    counting_topology,
    default_selector,
    matching_pods,
    with_match_label_keys,
    without_draining,
)
from predicates.indexes.topology import TopologyIndex
from predicates.nodes import Rows
from predicates.objects import PodClass, TopologySpreadConstraint
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot

CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
NODE_LABEL_NOT_MATCH: Final = f"{CONSTRAINTS_NOT_MATCH} (missing required label)"

_CONSTRAINTS_NOT_MATCH, _NODE_LABEL_NOT_MATCH = 1, 2
_REASONS: Final = {_CONSTRAINTS_NOT_MATCH: (CONSTRAINTS_NOT_MATCH,), _NODE_LABEL_NOT_MATCH: (NODE_LABEL_NOT_MATCH,)}
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
            eligible = domains.occupied_without(snapshot.draining_rows)
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


def reaches_other_nodes(pod: PodClass) -> bool:
    """Return whether a hard constraint of the class has domains of several nodes."""
    constraints = pod.spec.topology_spread_constraints
    return any(_is_hard(constraint) and constraint.topology_key != HOSTNAME for constraint in constraints)


#: Returns the hard constraints of a class, or the scheduler's message if one of them is invalid.
_Constraints: TypeAlias = Callable[[TopologyIndex, PodClass], "tuple[_Constraint, ...] | str"]


def _pre_filter(pod: PodClass) -> PodClass | None:
    constraints = pod.spec.topology_spread_constraints
    return pod if constraints and any(map(_is_hard, constraints)) else None


def _filter(of: _Constraints, pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    constraints = snapshot.index(TopologyIndex).cached(of)[pod]
    if isinstance(constraints, str):
        reasons = (constraints,)
        return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: reasons, prefilter=True)
    codes: npt.NDArray[np.int8] | None = None
    for constraint in constraints:
        if (by_domain := constraint.codes(snapshot)) is not None:
            by_row = constraint.counts.domains.for_rows(by_domain, rows)
            # The scheduler reports the first constraint that does not hold.
            codes = by_row if codes is None else np.where(codes, codes, by_row)
    return None if codes is None else Rejections(codes.astype(np.int64), _REASONS.__getitem__)


def _row_filter(of: _Constraints, pod: PodClass, snapshot: Snapshot) -> RejectsRow:
    index = snapshot.index(TopologyIndex)

    def rejects(row: int) -> bool:
        constraints = index.cached(of)[pod]
        return isinstance(constraints, str) or any(constraint.rejects(snapshot, row) for constraint in constraints)

    return rejects


def _constraints(index: TopologyIndex, pod: PodClass) -> tuple[_Constraint, ...] | str:
    """Return the hard constraints of the class, or the scheduler's message if one of them is invalid."""
    hard = [constraint for constraint in pod.spec.topology_spread_constraints if _is_hard(constraint)]
    selectors = [compile_selector(constraint.label_selector) for constraint in hard]
    if error := next((selector.error for selector in selectors if selector.error), ""):
        return (
            f'running PreFilter plugin "PodTopologySpread": '
            f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
        )
    keys = frozenset(constraint.topology_key for constraint in hard)
    return tuple(
        _constraint(index, pod, constraint, selector, keys)
        for constraint, selector in zip(hard, selectors, strict=True)
    )


def _constraint(
    index: TopologyIndex, pod: PodClass, constraint: TopologySpreadConstraint, selector: Selector, keys: frozenset[str]
) -> _Constraint:
    selector = with_match_label_keys(selector, constraint, pod.labels)
    return _Constraint(
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        self_match_num=int(selector.matches(pod.labels)),
        counts=index.counts(matching_pods(pod.namespace, selector), counting_topology(pod, constraint, keys)),
    )


def _is_hard(constraint: TopologySpreadConstraint) -> bool:
    return constraint.when_unsatisfiable == "DoNotSchedule"


PLUGIN: Final = Plugin(
    "PodTopologySpread", Scope.CLUSTER, _pre_filter, partial(_filter, _constraints), partial(_row_filter, _constraints)
)


def plugin(defaults: Sequence[TopologySpreadConstraint]) -> Plugin:
    """Return the plugin with the hard constraints among *defaults*, for pods that have no constraints.

    Their selector is that of the pod's owner and Services (``helper.DefaultSelector``). Here it is the labels of the
    pod, which are more: the pods of an owner have the same labels, unless they are of another revision.
    """
    hard = tuple(filter(_is_hard, defaults))
    if not hard:
        return PLUGIN
    keys = frozenset(constraint.topology_key for constraint in hard)

    def state(pod: PodClass) -> PodClass | None:
        return _pre_filter(pod) if pod.spec.topology_spread_constraints else pod

    def of(index: TopologyIndex, pod: PodClass) -> tuple[_Constraint, ...] | str:
        if pod.spec.topology_spread_constraints:
            return _constraints(index, pod)
        selector = default_selector(pod)
        if selector.everything:
            return ()
        return tuple(_constraint(index, pod, constraint, selector, keys) for constraint in hard)

    return Plugin("PodTopologySpread", Scope.CLUSTER, state, partial(_filter, of), partial(_row_filter, of))
