"""PodTopologySpread: pods of a kind are spread evenly over topology domains (``podtopologyspread/filtering.go``).

Only constraints that say ``DoNotSchedule`` filter; the default profile adds none of those by itself.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, Rejections, RejectsRow, Scope
from predicates.indexes.counts import Counts, DomainCounts
from predicates.indexes.spreading import counted, narrowed, topology, without_draining
from predicates.indexes.topology import TopologyIndex
from predicates.nodes import Rows
from predicates.objects import PodClass, TopologySpreadConstraint
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot

UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
UNLABELLED: Final = f"{UNEVEN} (missing required label)"

_UNEVEN, _UNLABELLED = 1, 2
_REASONS: Final = {_UNEVEN: (UNEVEN,), _UNLABELLED: (UNLABELLED,)}
_MAX_INT32: Final = 2**31 - 1

#: So few domains are looked through faster than NumPy begins.
_FEW: Final = 32


@dataclass(frozen=True, slots=True)
class _Constraint:
    max_skew: int
    min_domains: int
    own: int  #: 1 if the pod itself is selected
    counts: DomainCounts

    def verdicts(self, snapshot: Snapshot) -> npt.NDArray[np.int8] | None:
        """A code for each domain, the last for rows in none; None where no row is refused."""
        counts, limit = self._most(snapshot)
        codes = (counts > limit).view(np.int8)
        codes[-1] = 0 if self.counts.domains.complete else _UNLABELLED
        return codes if codes.any() else None

    def refuses(self, snapshot: Snapshot, row: int) -> bool:
        """The same of one row."""
        counts, limit = self._most(snapshot)
        slot = self.counts.domains.slots.item(row)
        return slot == self.counts.domains.size or counts.item(slot) > limit

    def _most(self, snapshot: Snapshot) -> tuple[Counts, int]:
        """The counts by domain, and how many there may be in the domain where the pod goes."""
        counts = self.counts.current()
        domains = self.counts.domains
        occupied = domains.occupied
        if snapshot.draining_rows and domains.excludes_draining:
            counts = without_draining(self.counts, counts, snapshot)
            occupied = domains.occupied_without(snapshot.draining_rows)
        limit = self.max_skew + self._least(counts, occupied) - self.own
        return counts, max(-1, min(limit, _MAX_INT32))

    def _least(self, counts: Counts, occupied: npt.NDArray[np.intp]) -> int:
        """The global minimum; 0 while there are fewer domains than ``minDomains``."""
        domains = len(occupied)
        if domains < self.min_domains:
            return 0
        if not domains:
            return _MAX_INT32
        some = counts[:-1] if domains == len(counts) - 1 else counts.take(occupied)
        return min(some.tolist()) if domains < _FEW else int(some.min())


def _pre_filter(pod: PodClass) -> PodClass | None:
    constraints = pod.spec.topology_spread_constraints
    return pod if constraints and any(map(_is_hard, constraints)) else None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    constraints = snapshot.index(TopologyIndex).current(_prepare)[pod]
    if isinstance(constraints, str):
        reasons = (constraints,)
        return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: reasons, prefilter=True)
    codes: npt.NDArray[np.int8] | None = None
    for one in constraints:
        if (verdicts := one.verdicts(snapshot)) is not None:
            found = one.counts.domains.pick(verdicts, rows)
            # The scheduler names the first constraint that does not hold.
            codes = found if codes is None else np.where(codes, codes, found)
    return None if codes is None else Rejections(codes.astype(np.int64), _REASONS.__getitem__)


def _rejects_row(pod: PodClass, snapshot: Snapshot) -> RejectsRow:
    index = snapshot.index(TopologyIndex)

    def refuses(row: int) -> bool:
        constraints = index.current(_prepare)[pod]
        return isinstance(constraints, str) or any(one.refuses(snapshot, row) for one in constraints)

    return refuses


def _prepare(index: TopologyIndex, pod: PodClass) -> tuple[_Constraint, ...] | str:
    """The hard constraints of the class, or the scheduler's text for what is wrong with them."""
    hard = [one for one in pod.spec.topology_spread_constraints if _is_hard(one)]
    selectors = [compile_selector(one.label_selector) for one in hard]
    if error := next((one.error for one in selectors if one.error), ""):
        return (
            f'running PreFilter plugin "PodTopologySpread": '
            f"get constraints from pod: obtaining pod's hard topology spread constraints: {error}"
        )
    keys = frozenset(one.topology_key for one in hard)
    return tuple(_constraint(index, pod, one, selector, keys) for one, selector in zip(hard, selectors, strict=True))


def _constraint(
    index: TopologyIndex, pod: PodClass, one: TopologySpreadConstraint, selector: Selector, keys: frozenset[str]
) -> _Constraint:
    selector = narrowed(selector, one, pod.labels)
    return _Constraint(
        max_skew=one.max_skew,
        min_domains=1 if one.min_domains is None else one.min_domains,
        own=int(selector.matches(pod.labels)),
        counts=index.counts(counted(pod.namespace, selector), topology(pod, one, keys)),
    )


def _is_hard(one: TopologySpreadConstraint) -> bool:
    return one.when_unsatisfiable == "DoNotSchedule"


PLUGIN: Final = Plugin("PodTopologySpread", Scope.CLUSTER, _pre_filter, _filter, _rejects_row)
